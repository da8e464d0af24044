"""Passes over several sequences at fixed addresses, captured as CUDA graphs. They are timed, and decode no text.

They are to ``batched_buffer`` what ``static_buffers`` is to ``kv_buffer``: rows by index, and all slots up to a bound,
with a mask. All sequences have one length, as in a batch whose passes are timed. A pass is captured at its first call,
after one that warms up. No GPU has run this yet. On a CPU a stand-in for the capture shows that a replay reads fixed
buffers only, and that its logits are those of lean passes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from specdec.errors import InvalidInput
from specdec.forward import cuda_graph
from specdec.forward.batched_buffer import BatchedKVBuffer, BatchedPassView
from specdec.forward.kv_buffer import PassView
from specdec.forward.lean import LeanModel
from specdec.forward.static_buffers import WIDEST, StaticPassView, StaticPositions, bound_of


class StaticBatchedKVBuffer(BatchedKVBuffer):
    """``BatchedKVBuffer`` whose slots start as zeros, because NaN in a slot would survive a mask."""

    def __init__(self, lean: LeanModel, batch: int, place: StaticPositions):
        super().__init__(lean, batch, len(place.numbers))
        self._place = place
        for held in self.held:
            held.zero_()

    def span(self, start: int, count: int) -> PassView:
        if count > WIDEST * self._batch:  # of a prompt: by slices, never captured
            return super().span(start, count)
        end = start + count // self._batch
        view = StaticBatchedPassView(self._place, start, end, self.angles, self.held[0])
        return view.over(self._batch, self._heads)


class StaticBatchedPassView(BatchedPassView, StaticPassView):
    """The n x B rows of one pass by index; see ``BatchedPassView``."""

    def write(self, held: torch.Tensor, states: torch.Tensor) -> None:
        StaticPassView.write(self, held, self.by_head(states).flatten(self._heads, self._heads + 1))


class BatchedGraphs:
    """The passes of one model over ``batch`` sequences of up to ``tokens`` tokens each, a graph for each width.

    Raises ``InvalidInput`` where the device captures nothing.
    """

    def __init__(self, lean: LeanModel, batch: int, tokens: int):
        device = lean.embedding.device
        capture = cuda_graph.capture_for(device)
        if capture is None:
            raise InvalidInput(f"CUDA graphs need a CUDA device, and this model is on {device}.")
        self._capture, self._rng = capture, torch.Generator(device)
        self._lean, self._place = lean, StaticPositions(device, bound_of(tokens))
        self._buffer = StaticBatchedKVBuffer(lean, batch, self._place)
        self._rows = torch.zeros(WIDEST * batch, dtype=torch.long, device=device)
        self._graphs: dict[tuple[int, int], tuple[torch.Tensor, Callable[[], None]]] = {}

    def fill(self, ids: torch.Tensor, start: int) -> None:
        """Read ``ids`` (n x B,) after ``start`` tokens of each sequence, without a capture."""
        self._place.set(start)
        self._lean.forward(ids, self._buffer, start, 1)

    def prepared(self, ids: torch.Tensor, start: int) -> Callable[[], torch.Tensor]:
        """A captured pass over ``ids`` (n x B,) after ``start`` tokens of each sequence, n up to ``WIDEST``.

        Each call of it gives the logits (n x B, V), which the next one overwrites. Raises ``InvalidInput`` where the
        capture fails.
        """
        rows = self._rows[: len(ids)]
        rows.copy_(ids)
        self._place.set(start)
        key = (self._place.bound, len(ids))
        if key not in self._graphs:

            def step() -> torch.Tensor:
                return self._lean.forward(rows, self._buffer, start, None)

            step()
            try:
                self._graphs[key] = self._capture(step, self._rng)
            except torch.OutOfMemoryError:  # says nothing about captures
                raise
            except RuntimeError as error:
                raise InvalidInput(f"A CUDA graph could not be captured ({str(error).splitlines()[0]}).") from error
        found, replay = self._graphs[key]

        def replayed() -> torch.Tensor:
            replay()
            return found

        return replayed
