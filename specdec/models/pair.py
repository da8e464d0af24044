"""A pair is a target, its way to draft, and their tokenizer. Nothing is loaded or decoded here."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.utils import logging as transformers_logging

from specdec.drafters.base import DraftMethod
from specdec.drafters.combined import guessing
from specdec.drafters.draft_model import DraftModel
from specdec.errors import InvalidInput, quoted
from specdec.facts import PairFacts
from specdec.forward.cuda_graph import graph_engine, no_graphs
from specdec.forward.engine import EagerEngine, Engine
from specdec.forward.model_info import context_length, copy_weights, model_facts, why_not_lean, why_torch_passes
from specdec.forward.runner import device_of
from specdec.forward.torch_private import is_compiled
from specdec.models.compatibility import refuse_unsuitable, refuse_untimed, require_model
from specdec.models.sandbox import NoAnswer, render
from specdec.models.settings import ENGINES
from specdec.text import require_text

Prompt = str | list[dict[str, str]] | torch.Tensor


@dataclass(frozen=True, eq=False)
class Pair:
    """A target model and its way to draft. Models are set to eval mode, and calls never change them.

    - ``target``: a causal language model of transformers.
    - ``draft``: a model, ``PromptLookup()``, ``Suffix()``, ``EarlyExit(layers)``, ``Eagle3(head)``, ``Mtp(model)``,
      ``DFlash(head)``, ``DSpark(head)``, ``Gemma4Assistant(head)``, ``Combined(first, then)``, ``Recycling()``, or
      None: then only gamma 0 can run. A model is wrapped, so ``pair.draft`` is a ``DraftMethod`` or None.
    - ``tokenizer``: the target's; None if all prompts are ids.
    - ``draft_tokenizer``: only for a draft that is a model. If it differs from the target's, the draft works in its own
      vocabulary.
    - ``name``: a name to show in place of the models' names.
    - ``engine``: "eager" runs each pass by itself. "graph" runs the steps of a round over fixed buffers, captured as
      CUDA graphs on a GPU. "auto" is "graph" on a GPU where the models allow it, else "eager".
    - ``device``: where the target's passes begin. It is determined once, by the thread that makes the pair, because on
      ZeroGPU all other threads see weights of the GPU as those of a CPU.

    Raises ``InvalidInput`` and ``IncompatiblePair``.
    """

    target: PreTrainedModel
    draft: DraftMethod | None = None
    tokenizer: Any = None
    draft_tokenizer: InitVar[Any] = None
    name: str | None = None
    engine: str = "auto"
    device: torch.device = field(init=False)

    def __post_init__(self, draft_tokenizer: Any) -> None:
        require_engine(self.engine)
        require_model("target", self.target)
        draft: Any = self.draft
        if not (draft is None or isinstance(draft, DraftMethod)):
            require_model("draft", draft, "a way to draft such as PromptLookup(), or None")
            draft = DraftModel(draft, draft_tokenizer)
        elif draft_tokenizer is not None:
            raise InvalidInput("A draft tokenizer was given, and the draft is not a model; leave the tokenizer out.")
        for name, given in (("tokenizer", self.tokenizer), ("draft_tokenizer", draft_tokenizer)):
            if not (given is None or hasattr(given, "get_vocab")):
                raise InvalidInput(f"{name} is {quoted(given)}; give a loaded tokenizer. load_pair takes names.")
        for model in (self.target, *(draft.models if draft else ())):
            refuse_unsuitable(model.config, type(model))
            refuse_untimed(model.device)
            model.eval()
        if draft is not None:
            draft.refuse(self.target.config)
            draft = draft.bound_to(self.target, self.tokenizer)
        object.__setattr__(self, "draft", draft)
        object.__setattr__(self, "device", device_of(self.target))

    @property
    def vocabulary(self) -> int:
        """The number of rows of the target's output, padding included."""
        return self.target.get_output_embeddings().weight.shape[0]

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end a text in every lane, from the target's generation config."""
        eos = self.target.generation_config.eos_token_id
        eos = eos.flatten().tolist() if isinstance(eos, torch.Tensor) else eos
        return frozenset(eos if isinstance(eos, (list, tuple)) else [] if eos is None else [eos])

    def context_length(self, drafting: bool = True) -> int | None:
        """How many tokens the target can read, with ``drafting`` its draft too; None if there is no bound."""
        bounds = [context_length(self.target.config)]
        if drafting and self.draft is not None:
            bounds.append(self.draft.context_length)
        return min((bound for bound in bounds if bound), default=None)

    def models(self, drafting: bool) -> list[PreTrainedModel]:
        """The target, and with ``drafting`` the models of its draft."""
        return [self.target, *(self.draft.models if drafting and self.draft else ())]

    def new_engine(self, tokens: int, settings: Hashable) -> Engine:
        """The engine of one call of up to ``tokens`` tokens.

        ``settings`` are those of the call that its steps depend on: steps of an earlier call with others are not
        repeated.
        """
        return graph_engine(self.target, tokens, settings) if self.uses_graphs else EagerEngine()

    @property
    def uses_graphs(self) -> bool:
        """Whether the graph engine runs the passes."""
        return self._wants_graphs and self._no_graphs() is None

    @property
    def _wants_graphs(self) -> bool:
        return self.engine == "graph" or (self.engine == "auto" and self.device.type == "cuda")

    @property
    def rounds_draft(self) -> bool:
        """Whether passes of the draft model read its weights in 8 bits: where it is asked for and they run in C."""
        draft = guessing(self.draft)
        rounds = isinstance(draft, DraftModel) and draft.rounded and not self.uses_graphs
        return rounds and not any(map(why_torch_passes, self.models(drafting=True)[1:]))

    def _no_graphs(self) -> str | None:
        """Why the graph engine cannot run this pair, in a sentence; None if it can."""
        if self.draft is not None and (reason := self.draft.no_graphs):
            return reason
        return no_graphs(self.models(drafting=True))

    def encode(self, prompt: Prompt) -> torch.Tensor:
        """Encode a prompt: ids (1, n), where n is at least 1. Chat messages go through the tokenizer's own template."""
        if isinstance(prompt, torch.Tensor):
            return self._check_ids(prompt)
        if self.tokenizer is None:
            raise InvalidInput("The pair has no tokenizer; give the prompt as a LongTensor of ids.")
        if isinstance(prompt, str):
            if not prompt:
                raise InvalidInput("The prompt is empty; write at least one character.")
            require_text("The prompt", prompt)
            try:
                ids = self.tokenizer(prompt, verbose=False).input_ids
            except (TypeError, ValueError) as error:
                raise InvalidInput(
                    "The prompt is not valid text: it holds a character that cannot be encoded."
                ) from error
        elif isinstance(prompt, list) and prompt and all(isinstance(m, dict) and "role" in m for m in prompt):
            if not getattr(self.tokenizer, "chat_template", None):
                raise InvalidInput(
                    f"The prompt is {len(prompt)} chat message(s), but the target's tokenizer has no chat template; "
                    "write the prompt as text."
                )
            for text in _texts(prompt):
                require_text("A chat message", text)
            # The template writes a BOS itself. Encoding with special tokens would add a second one.
            try:
                text = render(self.tokenizer, prompt)
                ids = self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids
            except (NoAnswer, TypeError, ValueError) as error:
                raise InvalidInput(f"The tokenizer's chat template refuses these messages: {error}.") from error
        else:
            raise InvalidInput(
                f"The prompt is a {type(prompt).__name__}; give a str, a list of chat messages or a LongTensor of ids."
            )
        return self._check_ids(torch.tensor([ids], dtype=torch.long))

    def facts(self) -> PairFacts:
        """Facts about the pair as plain values, without a pass. ``draft`` is the description of its way to draft."""
        return {
            "name": self.name,
            "context": self.context_length(),
            "device": str(self.device),
            "compiled": is_compiled(self.target),
            "target": model_facts(self.target),
            "draft": self.draft.describe() if self.draft else None,
        }

    def describe(self) -> PairFacts:
        """``facts``, and what runs the passes. The first call for a pair runs passes to find out.

        Adds ``own_forward``, ``torch_passes`` and ``in_16_bits`` to each model, and ``engine``, with a reason where the
        graph engine was asked for and cannot run. A draft whose weights are read in 8 bits has the number type "int8".
        """
        facts = self.facts()
        facts["target"]["own_forward"] = why_not_lean(self.target)
        facts["target"]["torch_passes"] = why_torch_passes(self.target)
        if copy_weights(self.target):
            facts["target"]["in_16_bits"] = True
        if self.draft and self.draft.models and facts["draft"]:
            forward, products = (
                next(filter(None, map(why, self.draft.models)), None) for why in (why_not_lean, why_torch_passes)
            )
            facts["draft"] = {**facts["draft"], "own_forward": forward, "torch_passes": products}
            rounded = self.rounds_draft
            if rounded:
                facts["draft"]["dtype"] = "int8"
            if any([copy_weights(model, rounded) for model in self.draft.models]):
                facts["draft"]["in_16_bits"] = True
        no_graphs = self._no_graphs() if self._wants_graphs else None
        graphs = self._wants_graphs and no_graphs is None
        facts["engine"] = {"name": "graph" if graphs else "eager", "reason": no_graphs}
        return facts

    def _check_ids(self, ids: torch.Tensor) -> torch.Tensor:
        kinds = {"nested": ids.is_nested, "quantized": ids.is_quantized, "sparse": ids.layout != torch.strided}
        if kind := next((name for name, found in kinds.items() if found), None):
            raise InvalidInput(f"The prompt is a {kind} tensor; give an ordinary one of ids, (n,) or (1, n).")
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool or ids.ndim not in (1, 2):
            raise InvalidInput(
                f"The prompt is a {ids.dtype} tensor of shape {tuple(ids.shape)}; give ids, (n,) or (1, n)."
            )
        if ids.device.type == "meta":
            raise InvalidInput("The prompt is on the meta device, which holds no values; give ids on a real one.")
        ids = ids.long().view(1, -1) if ids.ndim == 1 else ids.long()
        if len(ids) != 1:
            raise InvalidInput(f"The prompt is a batch of {len(ids)}; one prompt at a time can be decoded.")
        if ids.shape[1] == 0:
            raise InvalidInput("The prompt is empty; give at least one token.")
        rows = self.target.get_input_embeddings().weight.shape[0]
        if int(ids.min()) < 0 or int(ids.max()) >= rows:
            wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise InvalidInput(f"The prompt holds id {wrong}; the target knows ids 0-{rows - 1}.")
        return ids


def _texts(value: Any) -> Iterator[str]:
    """Every text in nested lists and dicts, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _texts(name)
            yield from _texts(part)


def require_engine(name: str) -> None:
    """Refuse a name that is no engine."""
    if name not in ENGINES:
        raise InvalidInput(f"engine is {name!r}; use {', '.join(map(repr, ENGINES))}.")


def silence_libraries() -> None:
    """Turn off progress bars and advice of transformers. For programs; the library itself never calls it."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message="MatMul8bitLt")  # bitsandbytes warns in every layer of every pass
