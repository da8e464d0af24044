"""Acceptance rules as values: which draft tokens of a round are kept, and which token the target adds to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from specdec import entry_points
from specdec.drafters.base import Proposal
from specdec.engine.verify import VerifyResult, verify, verify_block, verify_greedy, verify_top_k
from specdec.errors import BadSetting, InvalidInput, quoted
from specdec.runtime.sampling import Sampler


class Acceptance(ABC):
    """An acceptance rule. Subclasses are frozen dataclasses, because calls with equal rules share captured steps."""

    name: ClassVar[str]  # as in ``speculative``; for a rule of another package the name of its entry point
    lossless: ClassVar[bool]  # whether it claims that the output has the target's distribution

    @abstractmethod
    def judge(
        self,
        draft: Proposal,
        processed: torch.Tensor,
        choices: torch.Tensor,
        p: torch.Tensor | None,
        sampler: Sampler,
    ) -> VerifyResult:
        """Judge a draft of g tokens, 0 or more, by the target's pass over it.

        - draft: its tokens ``ids`` (g,), their distributions ``q`` (g, V), and its ``limit`` (), if it has one: draft
          tokens from there on must not be kept.
        - processed (g + 1, V): the target's logits after temperature, filters and penalty. The first g rows are those
          at the draft tokens, and the last one follows them.
        - choices (g + 1,): its most likely token in each row.
        - p (g + 1, V): its probabilities; None in greedy decoding, where ``draft.q`` is None too.
        - sampler: draws tokens (``sampler.draw``) and has the call's one generator (``sampler.rng``).

        A rule draws by ``sampler`` and by ``specdec.runtime.draws`` only, and keeps nothing between rounds. It reads no
        value on the host, which would wait for the device.
        """


@dataclass(frozen=True)
class Lossless(Acceptance):
    """Tests one draft token after the other and keeps the target's distribution (Leviathan et al. 2211.17192)."""

    name: ClassVar = "lossless"
    lossless: ClassVar = True
    _verify: ClassVar = staticmethod(verify)

    def judge(
        self,
        draft: Proposal,
        processed: torch.Tensor,
        choices: torch.Tensor,
        p: torch.Tensor | None,
        sampler: Sampler,
    ) -> VerifyResult:
        if p is None:
            return verify_greedy(draft.ids, choices, draft.limit)
        assert draft.q is not None  # it is None in greedy decoding only
        return self._verify(draft.ids, draft.q, p, sampler.rng, draft.limit)


@dataclass(frozen=True)
class Block(Lossless):
    """Judges a sampled draft as a whole; keeps the target's distribution too (Sun et al. 2403.10444)."""

    name: ClassVar = "block"
    _verify: ClassVar = staticmethod(verify_block)


@dataclass(frozen=True)
class TopK(Acceptance):
    """Keeps a draft token that is among the target's ``top_k`` most likely ones. Not lossless."""

    name: ClassVar = "top-k"
    lossless: ClassVar = False
    top_k: int

    def judge(
        self,
        draft: Proposal,
        processed: torch.Tensor,
        choices: torch.Tensor,
        p: torch.Tensor | None,
        sampler: Sampler,
    ) -> VerifyResult:
        drawn = choices if p is None else sampler.draw(p)
        return verify_top_k(draft.ids, processed, drawn, self.top_k, draft.limit)


def acceptance_of(name: str, top_k: int | None = None) -> Acceptance:
    """The rule that the arguments ``acceptance`` and ``accept_top_k`` name. Raises ``InvalidInput``."""
    if name == TopK.name:
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise BadSetting(f"accept_top_k is {quoted(top_k)}; give a whole number, 1 or more.")
        return TopK(top_k)
    own: dict[str, type[Acceptance]] = {rule.name: rule for rule in (Lossless, Block)}
    row = (own.get(name) or _of_others().get(name)) if isinstance(name, str) else None
    if row is None and isinstance(name, str) and name in entry_points.names_of(entry_points.ACCEPTANCE):
        raise InvalidInput(f"The acceptance {quoted(name)} of an installed package cannot be used; a warning says why.")
    if row is None:
        names = [*own, TopK.name, *_of_others()]
        choice = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
        raise InvalidInput(f"acceptance is {quoted(name)}; use {choice}.")
    if row.name != name:
        raise InvalidInput(f"The package of acceptance {quoted(name)} calls it {quoted(row.name)}; both must be equal.")
    if top_k is not None:
        raise BadSetting(f"accept_top_k is {quoted(top_k)}, but acceptance is {quoted(name)}; leave one of them out.")
    try:
        return row()
    except TypeError as error:
        raise InvalidInput(f"The acceptance {quoted(name)} cannot be made without arguments ({error}).") from error


def _of_others() -> dict[str, type[Acceptance]]:
    return entry_points.loaded(entry_points.ACCEPTANCE, Acceptance, ("name", "lossless"))
