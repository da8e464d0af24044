"""The events of a lane: ``Started``, then a ``Round`` for each round, then ``Finished``.

A lane is an iterator over these events: our speculative loop, the same loop at gamma 0, transformers' ``generate``, or
its assisted generation. In plain decoding each round drafts nothing. All values are plain Python values without
tensors, so events can be pickled, compared and written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from specdec.errors import BadSetting, quoted
from specdec.facts import MachineFacts, PairFacts
from specdec.text import require_text

MAX_GAMMA = 16
LOSSLESS = ("lossless", "block")  # our own kinds of acceptance that leave the target's distribution as it is

Status = Literal["accepted", "rejected", "discarded"]
TokenKind = Literal["correction", "bonus", "target"]
FinishReason = Literal["eos", "length", "stop", "deadline"]
GrammarKind = Literal["json-schema", "regex", "lark", "function"]
GRAMMAR_NAMES: dict[GrammarKind, str] = {
    "json-schema": "a JSON schema", "regex": "a regular expression", "lark": "a Lark grammar",
    "function": "a function as grammar",
}  # fmt: skip
GRAMMAR_KINDS: tuple[GrammarKind, ...] = ("json-schema", "regex", "lark")  # those that are texts
FORCED = "grammar"  # ``Round.drafted_by`` where the grammar allowed one token alone at each place of the draft
# JSON as Python writes it. With any whitespace between its parts, a model that writes no JSON may never end them. A
# schema may say otherwise under "x-guidance".
JSON_STYLE: dict[str, Any] = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
# The token ids that may follow, from the new token ids so far: ids, or a bool tensor over the vocabulary.
Allowed = Callable[[tuple[int, ...]], Iterable[int]]


@dataclass(frozen=True, slots=True)
class Grammar:
    """What a text must obey: ``text`` is a JSON schema, a regular expression or a grammar in Lark's notation.

    ``Grammar.json_schema`` takes the schema as a dict too, and ``Grammar.function`` a function of your own. llguidance
    reads the three texts; its documentation says which keywords and which notation it knows. Of a function, ``kind`` is
    "function" and ``text`` its name; a recording has no more of it. Raises ``InvalidInput`` for another kind, for no
    text, and for half of a surrogate pair in it.
    """

    kind: GrammarKind
    text: str

    def __post_init__(self) -> None:
        if self.kind not in (*GRAMMAR_KINDS, "function"):
            raise BadSetting(f"grammar is a {quoted(self.kind)}; the kinds are {', '.join(GRAMMAR_KINDS)}.")
        if not isinstance(self.text, str) or not self.text.strip():
            raise BadSetting(f"grammar is {quoted(self.text)}; give the text of a {self.kind}.")
        require_text("The grammar", self.text)
        if self.kind == "json-schema" and self.text.strip() == "true":  # the same schema, as llguidance reads it
            object.__setattr__(self, "text", "{}")

    @classmethod
    def json_schema(cls, schema: str | dict[str, Any] | bool) -> Grammar:
        """The grammar of JSON texts that a schema allows; ``schema`` is JSON, or the value that it stands for.

        Raises ``InvalidInput`` for a value that JSON cannot hold.
        """
        return cls("json-schema", schema if isinstance(schema, str) else _json(schema))

    @staticmethod
    def function(allowed: Allowed) -> GrammarFunction:
        """The grammar of a function that gives the token ids that may follow, from the tuple of new ids so far.

        It may give a bool tensor over the target's vocabulary instead. Where the text may end, an end-of-text id must
        be among them. It is called once for each place of each text that is tried, so it must depend on nothing else.
        """
        return GrammarFunction(allowed)


class GrammarFunction(Grammar):
    """``Grammar.function``, which says what it does. Two are equal if their functions are."""

    __slots__ = ("allowed",)
    allowed: Allowed

    def __init__(self, allowed: Allowed) -> None:
        name = getattr(allowed, "__qualname__", type(allowed).__qualname__)
        super().__init__("function", name)
        object.__setattr__(self, "allowed", allowed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GrammarFunction) and self.allowed == other.allowed

    def __hash__(self) -> int:
        return hash(self.allowed)

    def __reduce__(self) -> tuple[Any, ...]:
        return GrammarFunction, (self.allowed,)


def _json(schema: Any) -> str:
    """A schema as JSON, in which two halves of a surrogate pair are the one character that they stand for."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSetting(f"grammar cannot be written as JSON ({error}); give a schema of plain values.") from None
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How every lane picks its tokens.

    - ``max_new_tokens``: tokens to write at most, 1 or more.
    - ``temperature``: 0 is greedy; else 0.01 to 100.
    - ``top_k``: sample from the k most likely tokens; 0 keeps the whole vocabulary.
    - ``top_p``: sample from the most likely tokens that together have this probability, above 0 up to 1.
    - ``min_p``: leave out tokens whose probability is below this share of the highest one, 0 to 1.
    - ``repetition_penalty``: above 1 makes tokens that occurred before less likely (Keskar et al. 1909.05858); 0.01
      to 100.
    - ``seed``: of the call's one random generator, 0 to 2^63 - 1; None draws a seed, which ``Started`` names.
    - ``stop``: one or more strings; the text ends with the token that completes one of them, which is kept.
    - ``ignore_eos``: go on after an end-of-text token.
    - ``grammar``: what the new text must obey. A dict is taken as a JSON schema, and a function as
      ``Grammar.function`` does. Each token is drawn from the target's distribution over the tokens that
      are allowed at its place, as ``generate`` does it with a logits processor. That is not the distribution of the
      target's whole texts on the condition that they obey.
    - ``draft_mask``: whether the draft obeys the grammar too. Without that it guesses freely, and what breaks the
      grammar is rejected. The text has the same distribution either way.

    Raises ``InvalidInput`` for values outside these bounds.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    grammar: Grammar | None = None
    draft_mask: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):  # as a sequence it would be its letters
            object.__setattr__(self, "stop", (self.stop,))
        if not isinstance(self.stop, (list, tuple)):
            raise BadSetting(f"stop is {quoted(self.stop)}; give one or more strings.")
        object.__setattr__(self, "stop", tuple(self.stop))
        for name in ("ignore_eos", "draft_mask"):
            if not isinstance(getattr(self, name), bool):
                raise BadSetting(f"{name} is {quoted(getattr(self, name))}; give True or False.")
        grammar: Any = self.grammar
        if isinstance(grammar, dict):
            object.__setattr__(self, "grammar", Grammar.json_schema(grammar))
        elif callable(grammar):
            object.__setattr__(self, "grammar", GrammarFunction(grammar))
        elif not (grammar is None or isinstance(grammar, Grammar)):
            raise BadSetting(f"grammar is {quoted(grammar)}; give a Grammar, a JSON schema as a dict, or a function.")
        _require_int("max_new_tokens", self.max_new_tokens, 1)
        _require_int("top_k", self.top_k, 0)
        require_number("temperature", self.temperature, 0, 100)
        require_number("top_p", self.top_p, 0, 1, above=True)
        require_number("min_p", self.min_p, 0, 1)
        require_number("repetition_penalty", self.repetition_penalty, 0.01, 100)
        if 0 < self.temperature < 0.01:
            raise BadSetting(
                f"temperature {self.temperature} is between 0 and 0.01; use 0 for greedy, else 0.01 or more."
            )
        if self.seed is not None:
            _require_int("seed", self.seed, 0, 2**63 - 1)
        if not all(isinstance(text, str) and text for text in self.stop):
            raise BadSetting(f"stop is {quoted(self.stop)}; give strings that are not empty.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Started:
    """The first event. It has everything that is needed to run the same call again.

    With ``gamma`` "auto" another greedy call may choose other draft lengths, because the times of rounds decide too;
    the text is the same. A sampled call (temperature above 0) estimates these costs from the sizes of the models, so
    its seed repeats the lengths and the text.

    - ``lane``: the name of a row of ``specdec.lanes.table.LANES``.
    - ``prompt_ids``: the encoded prompt.
    - ``params``: the settings, with the seed that is really used.
    - ``gamma``: the draft length, or a policy's name.
    - ``acceptance``, ``accept_top_k``: as in ``speculative``.
    - ``pair``, ``machine``: the models and the hardware, as plain values; see ``specdec.facts``.
    - ``versions``: of the packages, by name.
    - ``neutralised``: the fields of the target's own generation config that were not used, with their values.
    - ``claims_lossless``: whether the acceptance claims to leave the target's distribution as it is. For "lossless",
      "block" and "top-k" their name decides, whatever a recording says.
    """

    lane: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    gamma: int | str
    acceptance: str
    accept_top_k: int | None
    pair: PairFacts
    machine: MachineFacts
    versions: dict[str, str]
    neutralised: dict[str, Any]
    claims_lossless: bool = False

    def __post_init__(self) -> None:
        if self.acceptance in (*LOSSLESS, "top-k"):
            object.__setattr__(self, "claims_lossless", self.acceptance in LOSSLESS)


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One guess and its outcome.

    - ``token_id``: None where the lane does not tell it: a server tells only how many guesses were not kept.
    - ``status``: "accepted", "rejected" (the first that was not accepted) or "discarded" (after that
      one; it is not tested, or in block verification its test does not count).
    - ``draft_prob``: q at this token, 0 to 1; 1 in greedy decoding, where q is one-hot.
    - ``target_prob``: p at this token; in greedy decoding 1 if the target chose it, else 0.
    - ``accept_prob``: the chance that the test passes, min(1, p/q). With top-k acceptance it is 1 or 0. With block
      acceptance it is the chance of the test at this place; a token whose test failed is accepted where a later test
      passed.
    - ``draw``: the uniform number that was compared with it; None where nothing is drawn (greedy, top-k).
    - ``target_token_id``: the target's own most likely token at this place.
    - ``draft_confidence``: the probability of this token by the softmax of the draft's raw logits. Where a DSpark head
      predicts whether its guesses will be accepted, the probability that this one is.
    - ``overlap``: the sum of min(p, q) over the vocabulary at this place. It is the chance, before the guess is drawn,
      that a tested guess is kept (Leviathan et al. 2211.17192, Corollary 3.6). None in greedy decoding, and with block
      or top-k acceptance.

    Of a discarded token, ``target_prob``, ``accept_prob``, ``draw``, ``target_token_id`` and ``overlap`` are None. A
    run that comes from a link has no probabilities.
    """

    token_id: int | None
    status: Status
    draft_prob: float | None
    target_prob: float | None
    accept_prob: float | None
    draw: float | None
    target_token_id: int | None
    draft_confidence: float | None
    overlap: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The ten most likely tokens at the place where the target added its token, as (token id, probability).

    Tokens with probability 0 are left out. In greedy decoding ``p`` and ``q`` are the softmax of the raw logits, and
    ``residual`` is None. ``q`` and ``residual`` are None where there was no guess at this place. In greedy decoding
    ``q`` is None too for a draft without logits over the target's vocabulary.
    """

    p: tuple[tuple[int, float], ...]
    q: tuple[tuple[int, float], ...] | None
    residual: tuple[tuple[int, float], ...] | None


@dataclass(frozen=True, slots=True)
class Round:
    """One round of Algorithm 1: a draft, one target pass, its outcome. Round 0 is the prefill.

    - ``draft``: the guesses; empty where none was made.
    - ``token_id``: the token that the target added; ``token_kind`` says how: "correction" after a rejection, "bonus"
      after a full acceptance, "target" where nothing was drafted. Both are None where EOS or a stop string ends the
      text inside the draft.
    - ``committed_ids``: the tokens that the round appended.
    - ``draft_seconds``, ``verify_seconds``: seconds of drafting, and of checking: the target's pass, the processed
      logits and the decision. Committing the tokens and cutting the caches are in neither.
    - ``elapsed_seconds``: seconds since the call began, without the time in which the consumer held an event.
    - ``model_seconds``: seconds inside the models' forward passes; of a captured step, with the choice of its tokens.
    - ``target_margin``: the gap between the target's two largest raw logits where it added its token.
    - ``decision``: the most likely tokens there.
    - ``missed``: what the draft would have guessed, with its confidence, at places where the target had added a token
      before the draft read that far. They belong to the last ``len(missed)`` ids before this round.
    - ``reread``: how many committed tokens the target read again in this round, because recurrent state can only be
      set back to the start of an earlier pass; 0 for models without such state.
    - ``state_seconds``: seconds of copying recurrent state; ``verify_seconds`` does not count them.
    - ``drafted_by``: which way of a combination made the guesses, by its kind, such as "prompt-lookup" or "model"; None
      for a pair that drafts in one way, and without guesses.

    A lane that cannot observe a value has None there.
    """

    index: int
    draft: tuple[DraftToken, ...] | None
    token_id: int | None
    token_kind: TokenKind | None
    committed_ids: tuple[int, ...]
    draft_seconds: float | None
    verify_seconds: float | None
    elapsed_seconds: float
    model_seconds: float | None = None
    target_margin: float | None = None
    decision: Decision | None = None
    missed: tuple[tuple[int, float], ...] = ()
    reread: int = 0
    state_seconds: float = 0.0
    drafted_by: str | None = None

    @property
    def committed_kinds(self) -> list[str]:
        """The kind of each committed token: "accepted", or the round's ``token_kind``.

        It is "unknown" where the lane does not report its draft.
        """
        if self.draft is None:
            return ["unknown"] * len(self.committed_ids)
        accepted = ["accepted"] * (len(self.committed_ids) - (self.token_id is not None))
        return accepted + ([self.token_kind or "target"] if self.token_id is not None else [])


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event.

    ``finish_reason`` is "eos", "length", "stop" (a stop string) or "deadline". ``prefill_seconds`` is the time to the
    first token, in which the models of the lane read the prompt. ``elapsed_seconds`` is the time of the whole call.
    ``cpu_seconds`` is the processor time of the thread that ran the call: far less than ``elapsed_seconds`` if other
    programs kept the processor busy. It is None where the thread waits for a GPU, and where it was not measured.
    """

    finish_reason: FinishReason
    prefill_seconds: float
    elapsed_seconds: float
    cpu_seconds: float | None = None


Event = Started | Round | Finished


def check_gamma(gamma: int) -> int:
    """Return ``gamma``. Raises ``InvalidInput`` unless it is a whole number from 0 to 16."""
    _require_int("gamma", gamma, 0, MAX_GAMMA)
    return gamma


def _require_int(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadSetting(f"{name} is {quoted(value)}; give a whole number.")
    if value < low or (high is not None and value > high):
        raise BadSetting(
            f"{name} is {value}; give {low} to {high}."
            if high is not None
            else f"{name} is {value}; give {low} or more."
        )


def require_number(name: str, value: object, low: float, high: float, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadSetting(f"{name} is {quoted(value)}; give a number.")
    if not (low <= value <= high) or (above and value == low):
        bounds = f"above {low} and at most {high}" if above else f"from {low} to {high}"
        raise BadSetting(f"{name} is {value}; give a number {bounds}.")


def longest_draft(facts: PairFacts) -> int:
    """The most guesses that a draft of the pair can have: a block drafter's own bound, else ``MAX_GAMMA``.

    A combination has no bound, because a copied draft may be longer than a block.
    """
    draft = facts["draft"]
    if draft is None or draft["kind"] == "combined":
        return MAX_GAMMA
    return min(MAX_GAMMA, draft.get("most_guesses", MAX_GAMMA))
