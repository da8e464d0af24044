"""Engines run a call's passes: one by one, or (``cuda_graph``) in captured graphs over buffers at fixed addresses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, Self, TypeVar

import torch
from transformers import PreTrainedModel

from specdec.forward.hf import HFForward
from specdec.forward.lean import LeanForward
from specdec.forward.lean_check import lean_model
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

T = TypeVar("T")


class Passes(Protocol):
    """A model's passes with their cache, by the lean forward or by the model's own."""

    def logits(self, ids: torch.Tensor, start: int, keep: int | None) -> torch.Tensor:
        """Feed ``ids`` (n,) after ``start`` cached tokens; logits (keep or n, V) of the last rows."""

    def greedy(
        self, ids: torch.Tensor, start: int, count: int, stop: DraftStop | None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """``Runner.greedy`` after ``start`` cached tokens; None where passes cannot choose for themselves."""

    @property
    def stateful(self) -> bool:
        """Whether the model keeps recurrent state; known after its first pass."""

    def tap(self, layers: Sequence[int]) -> None:
        """Keep the inputs of these layers in all later passes, for ``features``.

        As many as there are layers stands for the output of the last one, and ``hf.NORMED`` for that output after the
        final norm, which the output matrix reads.
        """

    def features(self) -> torch.Tensor:
        """The inputs of the tapped layers in the last pass, joined: (n, layers x H)."""

    def keys_values(self, layer: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """``Runner.keys_values`` with ``length`` cached tokens."""

    def remember(self, start: int) -> None:
        """Prepare to undo the next pass, which follows ``start`` tokens.

        Called for a stateful model before such a pass.
        """

    def forget(self, count: int) -> int:
        """Drop the last ``count`` tokens and return how many were dropped. Called in each round, also with 0.

        More are dropped where a model can only go back to the start of a pass.
        """

    def first_layers(self, early: PreTrainedModel, count: int) -> Passes:
        """The passes of ``early``, which has the first ``count`` layers, in the same cache."""

    def require_cache(self, length: int) -> None:
        """Refuse a cache that cannot be rolled back. Called after a first pass over ``length`` tokens."""


class Keyed(Protocol):
    """A draft, as far as an engine knows it."""

    @property
    def key(self) -> Hashable | None:
        """What the addresses and shapes of its tensors depend on besides the call's settings; None if it is unique."""


class Engine(Protocol):
    """Runs the steps of one call. As a context manager it takes its buffers back at the end."""

    captures: bool  # whether steps with one name and key must run the same operators at the same addresses

    def context(self, prompt_ids: torch.Tensor, room: int) -> TokenBuffer:
        """The call's ids: the prompt (n,), and room for ``room`` new tokens."""

    def rng(self, seed: int) -> torch.Generator:
        """The call's only random generator, on the device of its ``context``, which is made first."""

    def passes(self, model: PreTrainedModel, rounded: bool = False) -> Passes:
        """Passes of ``model`` over an empty cache; ``rounded``: native ones read its weights in 8 bits."""

    def run(self, name: str, key: Hashable | None, step: Callable[[], T]) -> T:
        """Run the step called ``name`` and return its result.

        In calls with the same settings, steps with the same name and key run the same operators. None marks a unique
        step.
        """

    def __enter__(self) -> Self: ...
    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...


class EagerEngine:
    """Runs every step directly, over tensors that are made for the call."""

    captures = False

    def context(self, prompt_ids: torch.Tensor, room: int) -> TokenBuffer:
        self._device = prompt_ids.device
        return TokenBuffer(prompt_ids, room)

    def rng(self, seed: int) -> torch.Generator:
        return torch.Generator(self._device).manual_seed(seed)

    def passes(self, model: PreTrainedModel, rounded: bool = False) -> Passes:
        """By the lean forward if the model has one whose logits agree; else by the model's own."""
        lean = lean_model(model)
        if isinstance(lean, str):
            return HFForward(model)
        return LeanForward(lean.rounded() if rounded else lean.halved())

    def run(self, name: str, key: Hashable | None, step: Callable[[], T]) -> T:
        return step()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...
