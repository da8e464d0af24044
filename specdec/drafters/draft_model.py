"""Drafting with a second, smaller model."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, cast

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from specdec.drafters.autoregressive import ChainDraft, chain, rows_of, with_stand_ins
from specdec.drafters.base import Drafter, DraftMethod, DraftWork, Finding, Level, Loaded, Planned, Proposal
from specdec.drafters.cross_tokenizer import TranslatedDraft
from specdec.drafters.forms import form_of
from specdec.drafters.translation import Translation, tokenizer_difference
from specdec.errors import InvalidInput
from specdec.facts import DraftFacts
from specdec.forward.model_info import context_length, model_facts
from specdec.forward.runner import Runner
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

USUAL = 2  # unread tokens in front of a draft at most, where every round asks for one
MOST_UNREAD = 16  # in front of a draft; reading more in the draft's first pass would make its logits too many


@dataclass(frozen=True)
class DraftModel(DraftMethod):
    """Draft with a smaller model: a hub id or a folder until it is loaded, then the model itself.

    ``tokenizer`` is the draft's; None means the target's. Where the two differ, the draft works in its own vocabulary,
    and a pair fills in the ``translation`` between them. ``rounded``: its passes read its weights in 8 bits, where they
    run in C. Its guesses are then a little less often right and take less time; they are judged as all others are.
    ``load_pair`` sets it for a model that it loads.
    """

    kind: ClassVar[str] = "model"
    label: ClassVar[str] = "Draft model"
    about: ClassVar[str] = "a smaller model guesses, one token a pass"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = ""

    model: str | PreTrainedModel
    tokenizer: Any = field(default=None, repr=False)
    translation: Translation | None = field(default=None, compare=False, repr=False)
    rounded: bool = False

    @classmethod
    def parse(cls, text: str) -> Self | None:
        return cls(text) if text else None

    def describe(self) -> DraftFacts:
        if isinstance(self.model, str):  # its name is all that is known
            return {
                "kind": self.kind,
                "text": self.model,
                "python": json.dumps(self.model),
                "depends_on_start": False,
            }
        facts = model_facts(self.model)
        found = {
            "kind": self.kind,
            "text": facts["name"],
            "python": json.dumps(facts["name"]),
            "depends_on_start": self.own_tokenizer,  # the text that it reads ends at the target's last token
            **facts,
            "own_tokenizer": self.own_tokenizer,
        }
        return cast(DraftFacts, found)

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        (draft,) = parts
        difference = tokenizer_difference(target.tokenizer, draft.tokenizer)
        if difference is None:
            yield Finding("good", "Tokenizer", "Target and draft share one tokenizer: each guess is one target token.")
            yield from _narrower(target, draft)
        else:
            shared = len(Translation(target.tokenizer, draft.tokenizer).shared)
            yield Finding(
                "note" if shared else "bad",
                "Tokenizer",
                f"Two tokenizers ({difference}) with {shared:,} tokens in common. The draft uses its own "
                "vocabulary and its text is translated, so fewer guesses are kept than with one tokenizer.",
            )
        yield _cost(target, draft, self.work(target, parts))

    def parts(self) -> tuple[str, ...]:
        return (self.model,) if isinstance(self.model, str) else ()

    def loaded(self, models: Sequence[Loaded]) -> Self:
        ((model, tokenizer),) = models
        return replace(self, model=model, tokenizer=tokenizer)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        if isinstance(self.model, str):
            raise InvalidInput(f"The draft is the name {self.model!r}; give a model. load_pair takes names.")
        if self.tokenizer is None:
            return replace(self, translation=None)
        if tokenizer is None:
            raise InvalidInput("The draft has a tokenizer and the target has none; give both, or neither.")
        differ = tokenizer_difference(tokenizer, self.tokenizer) is not None
        return replace(self, translation=Translation(tokenizer, self.tokenizer) if differ else None)

    @property
    def own_tokenizer(self) -> bool:
        """Whether its tokens differ from the target's."""
        return self.translation is not None

    @property
    def models(self) -> tuple[PreTrainedModel, ...]:
        return () if isinstance(self.model, str) else (self.model,)

    @property
    def no_graphs(self) -> str | None:
        return "A draft with a tokenizer of its own hands its text over on the host." if self.own_tokenizer else None

    @property
    def context_length(self) -> int | None:
        # With its own tokenizer it counts other tokens, and it stops drafting where its context is full.
        return None if self.own_tokenizer else context_length(self._model.config)

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        runner = target.beside(self._model, self.rounded)
        if self.translation is not None:
            return TranslatedDraft(runner, self.translation, vocabulary, sampler, context)
        return ModelDraft(runner, vocabulary, sampler, context, rows_of(target.model.get_input_embeddings()))

    @property
    def _model(self) -> PreTrainedModel:
        (model,) = self.models
        return model


def _narrower(target: Planned, draft: Planned) -> Iterator[Finding]:
    """Findings about a draft with the target's tokenizer whose vocabulary or context is smaller."""
    ours, theirs = (part.config.get_text_config(decoder=True).vocab_size for part in (target, draft))
    if ours != theirs:
        yield Finding(
            "good", "Draft vocabulary", f"{theirs:,} rows; the target has {ours:,}. The smaller one is padded."
        )
    bound, most = context_length(draft.config), context_length(target.config)
    if bound and (most is None or bound < most):
        yield Finding("note", "Draft context", f"{bound:,} tokens: this also limits the pair.")


def _cost(target: Planned, draft: Planned, work: DraftWork) -> Finding:
    """What layers and parameters predict for the cost coefficient c."""
    deep, shallow = target.config.get_text_config(decoder=True).num_hidden_layers, work.layers
    by_layers, by_size = shallow / deep, work.bytes / target.bytes
    low, high = sorted((by_layers, by_size))
    # At alpha 0.7 and c 0.5 the best length is 1, and the gain is at most 1.7 / 1.5 = 1.13 (Leviathan et al.
    # 2211.17192, Theorem 3.8). This leaves out the loop, and that checking two tokens takes longer than one.
    level: Level = "good" if high < 0.25 else "note" if low < 0.5 else "bad"
    advice = {
        "good": "Drafting is cheap.",
        "note": "Measure it: layers decide the speed of small models, bytes the speed of large models.",
        "bad": "Such a draft hardly pays; choose one with fewer layers and parameters.",
    }[level]
    return Finding(
        level,
        "Cost",
        f"A draft pass costs about {by_layers:.2f} of a target pass by layers ({shallow} of {deep}) and {by_size:.2f} "
        f"by bytes ({_millions(draft)} of {_millions(target)} million parameters). {advice}",
    )


def _millions(part: Planned) -> str:
    millions = part.parameters / 1e6
    return f"{millions:,.0f}" if millions >= 100 else f"{millions:.1f}"


class ModelDraft(ChainDraft):
    """Drafts with a small model.

    The first pass of a draft reads all committed tokens that are not in its cache. After a full acceptance these are
    two: its own last guess, which it has never read, and the bonus. Each later pass reads the token just drafted.
    """

    own_choice = True  # whether a greedy guess is the draft's most likely token

    def __init__(
        self, runner: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer, readable: int | None = None
    ):
        """``readable``: how many ids the target reads, where it can be more than the ``vocabulary`` that it writes."""
        super().__init__(vocabulary, sampler, context)
        self._runner = runner
        self._rows = rows_of(runner.model.get_input_embeddings())
        self._lacks = self._rows < max(vocabulary, readable or 0)  # rows for ids that the text may hold
        self._prefilled: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._reported_up_to = 0  # for how many ids its choice is known: its own guesses, and what rounds reported

    def prefill(self, context: TokenBuffer) -> None:
        raw, processed = self._forward(context, context.length, keep=1, committed=True)
        # A captured draft begins with the prompt's last token instead, which is read again there.
        if not self._runner.engine.captures:
            self._prefilled = [(raw, processed.argmax(-1))]

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        if gamma == 0:
            return self._nothing
        cached, length = len(self._runner), context.length
        # After a round without a draft there is more to read than usual.
        usual = length - cached <= USUAL and not self._prefilled
        kind = type(self).__name__, weakref.ref(self._runner.model)  # not ``id()``: a later model may get the same one
        key = (kind, gamma, stop and stop.least_chance) if usual else None

        def draft() -> Proposal:
            missed, self._prefilled = self._prefilled, []
            found = self._at_once(context, gamma, stop)
            if found is None:
                return self._draft(context, gamma, stop, missed)
            logits, ids = found
            context.write(0, ids)
            if unread := len(logits) - len(ids):
                missed.append((logits[:unread], logits[:unread].argmax(-1)))
            return chain(ids, [logits[unread:]], None, missed)

        proposal = self._runner.run("draft", key, draft, length + gamma - 1)
        known = max(0, self._reported_up_to - cached - 1)
        self._reported_up_to = length + (len(proposal.ids) if proposal.limit is None else 0)
        return proposal._replace(key=key, choices=proposal.choices._replace(already_reported=known))

    def crop_to(self, length: int) -> None:
        # Choices after a wrong draft token belong to another text.
        self._reported_up_to = min(self._reported_up_to, length + 1)
        # A captured draft reads two tokens first in every round, as after a full acceptance.
        self._runner.crop_to(length - self._runner.engine.captures)

    def take_seconds(self) -> float:
        return self._runner.take_seconds()

    def require_cache(self) -> None:
        self._runner.require_cache()

    def catch_up(self, context: TokenBuffer) -> None:
        """Prepare a draft after rounds that another way drafted. Choices at their places are not reported."""
        if self._runner.engine.captures:  # a captured draft begins with as many unread tokens as in any other round
            self._runner.catch_up(context, most=USUAL - 1)
            self._runner.crop_to(context.length - USUAL)
        else:
            self._runner.catch_up(context, MOST_UNREAD)
        self._prefilled, self._reported_up_to = [], context.length

    def _at_once(
        self, context: TokenBuffer, gamma: int, stop: DraftStop | None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """``Runner.greedy`` over the unread ids, where nothing has to be done between the passes; else None."""
        if not (self.own_choice and self._sampler.takes_largest and self._rows == self._vocabulary) or self._lacks:
            return None
        found = self._runner.greedy(context.ids(len(self._runner), context.length), gamma, stop)
        return found and (found[0].to(context.device), found[1].to(context.device))

    def _forward(
        self, context: TokenBuffer, end: int, keep: int | None = None, committed: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Feed the ids up to ``end`` that are not cached; raw and processed logits over the target's ids."""
        ids = context.ids(len(self._runner), end)
        if self._lacks:
            ids = with_stand_ins(ids, self._rows)
        raw = self._runner.forward(ids, keep, committed).to(context.device)
        if raw.shape[-1] != self._vocabulary:
            # Ids beyond the target's rows cannot be proposed. Ids beyond the draft's rows have probability zero.
            raw = raw[:, : self._vocabulary]
            raw = F.pad(raw, (0, self._vocabulary - raw.shape[-1]), value=float("-inf"))
        return raw, self._sampler.process(raw, context, end)
