"""Drafting what a grammar forces: where it allows one token alone, that token is known without a guess.

The target would choose it too, because its distribution has only that token. So such a token costs no draft pass, and
it is always kept. All other rounds are drafted in the pair's own way.
"""

from __future__ import annotations

from specdec.drafters.base import Drafter
from specdec.drafters.combined import CombinedDraft
from specdec.drafters.prompt_lookup import LookupDraft
from specdec.events import FORCED
from specdec.forward.engine import Engine
from specdec.runtime.grammar import Masks
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer


class ForcedIndex:
    """Finds the tokens that must follow a text. ``masks``: those of the call."""

    def __init__(self, masks: Masks):
        self._masks = masks

    def read(self, tokens: list[int]) -> None: ...

    def continuation(self, tokens: list[int], count: int) -> list[int]:
        """Up to ``count`` tokens that must follow ``tokens``; fewer where more than one is allowed."""
        return self._masks.forced(tokens, count)


class ForcedFirst(CombinedDraft):
    """Proposes the tokens that must follow, and where more than one may follow asks ``then``."""

    def __init__(
        self, masks: Masks, then: Drafter, engine: Engine, vocabulary: int, sampler: Sampler, context: TokenBuffer
    ):
        forced = LookupDraft(ForcedIndex(masks), engine, vocabulary, sampler, context)
        super().__init__((forced, FORCED), (then, None))
        self.watches = then.watches
