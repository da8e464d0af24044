"""The pair that a program works with, and how it is exchanged: where the new one fails, the old one is loaded again."""

from __future__ import annotations

import gc
import traceback
from dataclasses import replace
from typing import Any

import torch

from specdec.errors import LoadFailed, SpecdecError
from specdec.models.checkpoint import Progress
from specdec.models.loading import PairPlan, load, must_spread
from specdec.models.memory import free_bytes
from specdec.models.pair import Pair


class Slot:
    """Holds the loaded pair. Whoever keeps a reference to ``pair`` beyond a call keeps its memory too.

    ``facts`` are what ``Pair.facts`` said of it, and ``chat`` whether its tokenizer has a chat template; both can be
    read while another pair is being loaded.
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
        """Load ``plan`` instead of what is here; return whether the old pair had to be freed first.

        It is loaded beside the old pair where both fit. Otherwise the old one is freed first, and loaded again if the
        new one fails: then the error of the new one is raised, and ``pair`` works as before.
        """
        plan = replace(plan, engine=self._plan.engine)
        must_spread(plan, regained=self._plan.weights)  # what cannot fit even without the old pair is not fetched
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
        self.facts: dict[str, Any] = pair.facts()
        self.chat = bool(getattr(pair.tokenizer, "chat_template", None))

    def _restore(self, error: Exception) -> None:
        try:
            self._pair = load(self._plan)
        except SpecdecError as lost:
            raise LoadFailed(f"{error} The old pair could not be loaded again either: {lost}") from error


def _rehearsed(plan: PairPlan) -> Pair:
    """The pair of a plan, once its passes have been compared: where that fails, the old pair is still there."""
    pair = load(plan)
    pair.describe()
    return pair


def _drop_frames(error: BaseException) -> None:
    """Let go of what the frames of an error hold: of a pair that failed, the models that were loaded already."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _give_back(device: torch.device) -> None:
    """Free the memory of a pair that nothing refers to any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
