"""Holds the pair of a program and exchanges it. If the new pair fails, the old one is loaded again."""

from __future__ import annotations

import gc
import traceback
from dataclasses import replace

import torch

from specdec.errors import LoadFailed, SpecdecError
from specdec.facts import PairFacts
from specdec.models.checkpoint import Progress
from specdec.models.loading import PairPlan, load, must_spread
from specdec.models.pair import Pair
from specdec.runtime.memory import free_bytes


class Slot:
    """Holds the loaded pair. A reference to ``pair`` that is kept beyond a call keeps its memory too.

    ``facts`` are those of ``Pair.describe``, on a GPU those of ``Pair.facts``; ``chat`` says whether the tokenizer has
    a chat template. Both can be read while another pair is being loaded.
    """

    def __init__(self, plan: PairPlan):
        self._pair: Pair | None = None
        self._take(plan, load(plan))

    @property
    def pair(self) -> Pair:
        if self._pair is None:
            raise LoadFailed("No pair is loaded; load one first.")
        return self._pair

    @property
    def loaded(self) -> bool:
        return self._pair is not None

    def change(self, plan: PairPlan, progress: Progress | None = None) -> bool:
        """Load ``plan`` in place of the present pair. Returns whether the old pair had to be freed first.

        Where both fit, the new pair is loaded while the old one is kept. Otherwise the old one is freed first, and
        loaded again if the new one fails. Then the error of the new one is raised, and ``pair`` works as before.
        """
        plan = replace(plan, engine=self._plan.engine)
        must_spread(plan, regained=self._plan.weights)  # do not fetch what cannot fit even without the old pair
        for part in plan.parts:
            part.checkpoint.fetch(progress)
        if plan.bytes <= free_bytes(plan.device):
            self._take(plan, _rehearsed(plan))
            _give_back(plan.device)
            return False
        self._pair = None
        _give_back(plan.device)
        try:
            self._take(plan, _rehearsed(plan))
        except Exception as error:
            _drop_frames(error)
            self._restore(error)
            raise
        return True

    def _take(self, plan: PairPlan, pair: Pair) -> None:
        self._plan, self._pair = plan, pair
        # On a CPU the draft's number type is known only after the passes were compared. A lent GPU runs none here.
        self.facts: PairFacts = pair.describe() if pair.device.type == "cpu" else pair.facts()
        self.chat = bool(getattr(pair.tokenizer, "chat_template", None))

    def _restore(self, error: Exception) -> None:
        try:
            self._pair = load(self._plan)
        except SpecdecError as lost:
            raise LoadFailed(f"{error} The old pair could not be loaded again either: {lost}") from error


def _rehearsed(plan: PairPlan) -> Pair:
    """Load a plan and compare its passes, so that a failure leaves the old pair in place."""
    pair = load(plan)
    pair.describe()
    return pair


def _drop_frames(error: BaseException) -> None:
    """Clear the frames of an error, which hold the models of a pair that failed."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _give_back(device: torch.device) -> None:
    """Free the memory of a pair to which no reference is left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
