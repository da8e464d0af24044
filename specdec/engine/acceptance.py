"""Acceptance rules as values: which draft tokens of a round are kept, and which token the target adds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch

from specdec.drafters.base import Proposal
from specdec.engine.verify import VerifyResult, verify, verify_block, verify_greedy, verify_top_k
from specdec.errors import BadSetting, InvalidInput, quoted
from specdec.runtime.sampling import Sampler


@dataclass(frozen=True)
class Lossless:
    """Tests one draft token after the other and keeps the target's distribution (Leviathan et al. 2211.17192)."""

    name: ClassVar = "lossless"
    top_k: ClassVar = None
    _verify: ClassVar = staticmethod(verify)

    def judge(
        self,
        draft: Proposal,
        processed: torch.Tensor,
        choices: torch.Tensor,
        p: torch.Tensor | None,
        sampler: Sampler,
    ) -> VerifyResult:
        """Judge a draft of g tokens by the target's pass over it.

        - processed (g + 1, V): its logits after temperature, filters and penalty.
        - choices (g + 1,): its most likely token in each row.
        - p (g + 1, V): its probabilities; None in greedy decoding.
        """
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
class TopK:
    """Keeps a draft token that is among the target's ``top_k`` most likely ones. Not lossless."""

    top_k: int
    name: ClassVar = "top-k"

    def judge(
        self,
        draft: Proposal,
        processed: torch.Tensor,
        choices: torch.Tensor,
        p: torch.Tensor | None,
        sampler: Sampler,
    ) -> VerifyResult:
        """As ``Lossless.judge``."""
        drawn = choices if p is None else sampler.draw(p)
        return verify_top_k(draft.ids, processed, drawn, self.top_k, draft.limit)


Acceptance: TypeAlias = Lossless | TopK


def acceptance_of(name: str, top_k: int | None = None) -> Acceptance:
    """The rule that the arguments ``acceptance`` and ``accept_top_k`` name. Raises ``InvalidInput``."""
    if name == TopK.name:
        if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
            raise BadSetting(f"accept_top_k is {quoted(top_k)}; give a whole number, 1 or more.")
        return TopK(top_k)
    exact = next((rule for rule in (Lossless(), Block()) if rule.name == name), None)
    if exact is None:
        raise InvalidInput(f"acceptance is {quoted(name)}; use 'lossless', 'block' or 'top-k'.")
    if top_k is not None:
        raise BadSetting(f"accept_top_k is {quoted(top_k)}, but acceptance is {quoted(name)}; leave one of them out.")
    return exact
