"""The events of a lane: ``Started``, then a ``Round`` for each round, then ``Finished``.

A lane is a generator of these events, whoever decodes: our speculative loop, the same loop at gamma 0,
transformers' ``generate`` or its assisted generation. Plain decoding is a round that drafted nothing.
Everything is a plain Python value (no tensors), so events pickle, compare and serialise as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specdec.errors import InvalidInput, quoted

MAX_GAMMA = 16
LOSSLESS = ("lossless", "block")  # the kinds of acceptance that leave the target's distribution as it is

Status = Literal["accepted", "rejected", "discarded"]
TokenKind = Literal["correction", "bonus", "target"]
FinishReason = Literal["eos", "length", "stop", "deadline"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How every lane picks its tokens. ``temperature=0`` is greedy, ``top_k=0`` keeps the whole vocabulary."""

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):  # a bare string would be read as its letters
            object.__setattr__(self, "stop", (self.stop,))
        if not isinstance(self.stop, (list, tuple)):
            raise InvalidInput(f"stop is {quoted(self.stop)}; give one or more strings.")
        object.__setattr__(self, "stop", tuple(self.stop))
        _require_int("max_new_tokens", self.max_new_tokens, 1)
        _require_int("top_k", self.top_k, 0)
        _require_number("temperature", self.temperature, 0, 100)
        _require_number("top_p", self.top_p, 0, 1, above=True)
        _require_number("min_p", self.min_p, 0, 1)
        _require_number("repetition_penalty", self.repetition_penalty, 0, 100, above=True)
        if 0 < self.temperature < 0.01:
            raise InvalidInput(
                f"temperature {self.temperature} is between 0 and 0.01; use 0 for greedy, else 0.01 or more."
            )
        if self.seed is not None:
            _require_int("seed", self.seed, 0, 2**63 - 1)
        if not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidInput(f"stop is {quoted(self.stop)}; give strings that are not empty.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Started:
    """The first event: everything needed to run the same call again.

    ``lane`` is the name of one of ``lanes.table.LANES``. ``gamma`` is a length or a policy's name.
    ``params.seed`` is the seed really used. ``neutralised`` names the fields of the target's own generation config
    that were set aside.
    """

    lane: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    gamma: int | str
    acceptance: str
    accept_top_k: int | None
    pair: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    neutralised: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DraftToken:
    """One proposed token and what became of it.

    ``draft_prob`` is q and ``target_prob`` p at this token, ``accept_prob`` is min(1, p/q), ``draw`` the uniform
    number it was compared with (None in greedy). In greedy, q and p are one-hot; ``draft_confidence``, the draft's
    raw softmax, tells how sure it was. With top-k acceptance ``accept_prob`` is 1 or 0 and nothing is drawn. With
    block acceptance ``accept_prob`` is the chance of the test at this token, and a token whose test failed is accepted
    where a later one passed. Of a discarded token p, ``accept_prob``, ``draw`` and ``target_token_id`` (the target's
    own most likely token there) are None: it was of no consequence. A run from a link has no probabilities at all.

    ``overlap`` is the sum of min(p, q) over the vocabulary at this place: the chance, before the guess is drawn, that
    it is kept if it is tested. None in greedy, of a discarded token, and where guesses are not tested one by one
    against p / q (block and top-k acceptance).
    """

    token_id: int
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
    """The ten most likely tokens, as (token id, probability), where the target added its token; zeros left out.

    In greedy, p and q are the raw softmax (their one-hot forms say nothing more than the choice) and
    ``residual`` is None. ``q`` and ``residual`` are None too where no draft stood at this position, and ``q`` in
    greedy where the draft has no logits over the target's vocabulary.
    """

    p: tuple[tuple[int, float], ...]
    q: tuple[tuple[int, float], ...] | None
    residual: tuple[tuple[int, float], ...] | None


@dataclass(frozen=True, slots=True)
class Round:
    """One pass of Algorithm 1: a draft, one target pass, its outcome. Round 0 is the prefill.

    ``token_id`` is the token the target added and ``token_kind`` how: ``correction`` after a rejection,
    ``bonus`` after a fully accepted draft, ``target`` where nothing was drafted. Both are None where EOS or a stop
    string falls inside the draft. ``committed_ids`` is what the round appended.

    ``draft_seconds`` and ``verify_seconds`` are spent in drafting and verifying, ``elapsed_seconds`` since the call
    began; the clock stands still while the consumer holds an event. ``target_margin`` is the gap between the two
    largest raw logits where the target added its token. ``missed`` holds the draft's own choice and confidence at
    positions where the target had added a token without it: they belong to the last ``len(missed)`` ids before
    this round. ``reread`` is how many committed tokens the target read once more in this round, because its recurrent
    state could only be set back to where an earlier pass began, and ``state_seconds`` the time spent in copying such
    state, which ``verify_seconds`` leaves out; both are 0 in models without it. What a lane cannot observe is None.
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


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event. ``prefill_seconds`` is the time to the first token, both models' prompts read."""

    finish_reason: FinishReason
    prefill_seconds: float
    elapsed_seconds: float


Event = Started | Round | Finished


def check_gamma(gamma: int) -> int:
    """Return ``gamma`` if it is a whole number from 0 to 16, else say what it is."""
    _require_int("gamma", gamma, 0, MAX_GAMMA)
    return gamma


def _require_int(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} is {quoted(value)}; give a whole number.")
    if value < low or (high is not None and value > high):
        raise InvalidInput(
            f"{name} {value} is outside {low}-{high}." if high is not None else f"{name} {value} is below {low}."
        )


def _require_number(name: str, value: object, low: float, high: float, above: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInput(f"{name} is {quoted(value)}; give a number.")
    if not (low <= value <= high) or (above and value == low):
        bounds = f"above {low} and at most {high}" if above else f"from {low} to {high}"
        raise InvalidInput(f"{name} is {value}; give a number {bounds}.")
