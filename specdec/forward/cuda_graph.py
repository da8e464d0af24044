"""The graph engine: the steps of a round over buffers at fixed addresses, captured as CUDA graphs on a GPU.

A small pass on a GPU waits for its kernels to be launched one by one. A captured graph launches all of them at once. A
round has three graphs: the draft's passes with their choices, the target's pass with the decision, and the gathering of
what the round reports. Two steps are the same if their name, their key and the settings of their call are equal. The
first one warms up, the second one is captured. On a CPU the same steps run without a capture.

``cli/graphs_tried`` says on which GPUs it ran. Three things are proven without one. The steps write the tokens of the
eager engine. A stand-in for the capture, which repeats the recorded operators on the recorded tensors, shows that a
replay needs nothing else. On torch's meta device the host waits once a round. On a GPU, where a capture fails or logits
differ at the check, the eager engine runs instead, and the reason is shown.

On a CPU one thing differs: a confidence stop while sampling. There the eager engine stops drafting at the unsure token,
and this one draws the whole draft before it is cut. So they draw different numbers from the same seed, and their texts
differ; the distribution of both is the target's.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from specdec.forward.lean import LeanForward, LeanModel
from specdec.forward.lean_check import BOUNDS, NOT_COMPARED, compared_passes, lean_model, share_apart
from specdec.forward.static_buffers import StaticKVBuffer, StaticPositions, StaticTokenBuffer, bound_of
from specdec.runtime.tokens import TokenBuffer

MOST_GRAPHS = 128  # of one engine; if a call begins with more, all are dropped
CHECKED = (9, 2, 2, 2, 6, 6, 6)  # rows of the compared passes: each kind plain, captured, and replayed

T = TypeVar("T")
_lock = threading.RLock()  # the garbage collector may end a dropped call in a thread that holds it
_capturing = threading.Lock()  # CUDA allows one capture at a time in a process
_free: WeakKeyDictionary[PreTrainedModel, list[GraphEngine]] = WeakKeyDictionary()
_reasons: WeakKeyDictionary[PreTrainedModel, tuple[LeanModel, str | None]] = WeakKeyDictionary()


class Capture(Protocol):
    """Records a step. Returns its result, which each replay overwrites, and the function that replays it."""

    def __call__(self, step: Callable[[], T], rng: torch.Generator) -> tuple[T, Callable[[], None]]: ...


class CudaCapture:
    """Captures steps as CUDA graphs on one device, which share one pool of memory.

    A replay may overwrite the results of graphs that were captured later. So the graphs of a round must be captured in
    the order in which they run, and their results are valid until the next round.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool: Any = torch.cuda.graph_pool_handle()

    def __call__(self, step: Callable[[], T], rng: torch.Generator) -> tuple[T, Callable[[], None]]:
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(rng)
        # ``torch.cuda.graph`` would make its own stream, on the device that is current when it is first used, and it
        # leaves a stream current whose capture has failed.
        stream, usual = _capture_stream(self._device), torch.cuda.current_stream(self._device)
        try:
            with (
                _capturing,
                torch.cuda.device(self._device),
                torch.cuda.stream(usual),
                torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
            ):
                found = step()
        except RuntimeError:
            # torch leaves these generators in the capture that has failed, and they would refuse every later draw.
            for generator in (rng, torch.cuda.default_generators[rng.device.index]):
                generator.graphsafe_set_state(generator.clone_state())
            raise
        return found, graph.replay


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def capture_for(device: torch.device) -> Capture | None:
    """The capture for steps on ``device``; None where steps run directly."""
    return CudaCapture(device) if device.type == "cuda" else None


class GraphEngine:
    """Buffers for calls of up to ``room`` tokens, and the graphs that were captured over them. One call at a time."""

    captures = True

    def __init__(self, model: PreTrainedModel, room: int):
        device = model.device
        self.room = room
        self._place = StaticPositions(device, room)
        self._rows = torch.zeros(2, room, dtype=torch.long, device=device)
        self._rng = torch.Generator(device)
        self._buffers: WeakKeyDictionary[PreTrainedModel, tuple[LeanModel, StaticKVBuffer]] = WeakKeyDictionary()
        self._capture = capture_for(device)
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[Any, Callable[[], None]]] = {}
        self._settings: Hashable = None
        self.failure: str | None = None
        self._model: PreTrainedModel | None = None

    def context(self, prompt_ids: torch.Tensor, room: int) -> TokenBuffer:
        return StaticTokenBuffer(prompt_ids, self._rows, self._place)

    def rng(self, seed: int) -> torch.Generator:
        return self._rng.manual_seed(seed)

    def passes(self, model: PreTrainedModel, rounded: bool = False) -> LeanForward:
        """By torch's operators, which read all weights as they are."""
        lean = lean_model(model)
        assert isinstance(lean, LeanModel)  # otherwise the eager engine would run
        known, buffer = self._buffers.get(model, (None, None))
        if buffer is None or known is not lean:
            if known is not None:  # the graphs read the weights that the model had
                self._forget_graphs()
            buffer = StaticKVBuffer(len(lean.layers), lean.shape, lean.embedding, lean.rotary, self._place)
            self._buffers[model] = lean, buffer
        else:
            buffer.renew_angles()
        return LeanForward(lean, buffer)

    def run(self, name: str, key: Hashable | None, step: Callable[[], T]) -> T:
        if key is None or self._capture is None or self.failure is not None:
            return step()
        key = (self._place.bound, name, self._settings, key)
        if key not in self._graphs:
            if key not in self._seen:
                self._seen.add(key)
                return step()
            try:
                self._graphs[key] = self._capture(step, self._rng)
            except torch.OutOfMemoryError:  # says nothing about the next call
                raise
            except RuntimeError as error:
                self.failure = f"A CUDA graph could not be captured ({str(error).splitlines()[0]})."
                return step()
        found, replay = self._graphs[key]
        replay()
        return found

    def checked_step(self, passes: LeanForward, ids: torch.Tensor, start: int) -> Callable[[], torch.Tensor]:
        """A pass over ``ids`` (n,) after ``start`` tokens, built like the steps of a round."""
        end = start + len(ids)
        self._rows[0, start:end].copy_(ids)
        self._place.set(start)
        return lambda: passes.logits(self._rows[0].index_select(0, self._place.rows(start, end)), start, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Keep the buffers for the next call. After an error they may hold NaN, which a mask does not hide."""
        model, self._model = self._model, None
        if model is None:
            return
        with _lock:
            if self.failure is not None:
                _reasons[model] = _reasons[model][0], self.failure
            elif kind in (None, GeneratorExit) and all(self.room >= other.room for other in _free.get(model, [])):
                _free[model] = [self]

    def lent(self, model: PreTrainedModel, settings: Hashable) -> Self:
        """The engine itself, for a call of ``model``; see ``graph_engine``."""
        if len(self._graphs) > MOST_GRAPHS:
            self._forget_graphs()
        self._model, self._settings = model, settings
        return self

    def serves(self, model: PreTrainedModel, tokens: int) -> bool:
        """Whether it has buffers for calls of ``model`` of up to ``tokens`` tokens."""
        lean, _ = self._buffers.get(model, (None, None))
        return self.room >= tokens and lean is lean_model(model)

    def _forget_graphs(self) -> None:
        self._graphs.clear()
        self._seen.clear()
        self._capture = capture_for(self._place.at.device)  # a pool whose graphs are all gone accepts no new one


def graph_engine(model: PreTrainedModel, tokens: int, settings: Hashable) -> GraphEngine:
    """An engine for a call of ``model`` of up to ``tokens`` tokens: that of the last call, if it is large enough.

    ``settings`` are what the operators of all its steps depend on.
    """
    with _lock:
        found = _free.pop(model, [])
    if found and found[0].serves(model, tokens):
        return found[0].lent(model, settings)
    found.clear()  # frees its memory before the next one is made
    return GraphEngine(model, bound_of(tokens)).lent(model, settings)


def no_graphs(models: Sequence[PreTrainedModel]) -> str | None:
    """Why passes of ``models`` cannot go through the graph engine, in a sentence; None if they can.

    Each model is compared once. The logits of its steps, captured where the device can capture, must agree with those
    of the eager engine.
    """
    if len({model.device for model in models}) > 1:
        return "Target and draft are on different devices."
    for model in models:
        lean = lean_model(model)
        if isinstance(lean, str):
            return f"{type(model).__name__} has no lean forward pass here."
        with _lock:
            known = _reasons.get(model)
        if known is None or known[0] is not lean:
            known = lean, _difference(model, lean)
            if known[1] != NOT_COMPARED:
                with _lock:
                    _reasons[model] = known
        if known[1] is not None:
            return known[1]
    return None


@torch.inference_mode()
def _difference(model: PreTrainedModel, lean: LeanModel) -> str | None:
    """How the graph engine's logits differ from the eager engine's, in a sentence; None if they agree."""
    buffer, differences = lean.new_buffer(), []
    try:
        with torch.inference_mode(False):
            engine = GraphEngine(model, bound_of(sum(CHECKED)))
            passes = engine.passes(model)
        for start, fed in compared_passes(lean, CHECKED):
            ours = engine.run("pass", len(fed), engine.checked_step(passes, fed, start))
            differences.append(share_apart(ours, lean.forward(fed, buffer, start, None)))
        largest = float(torch.stack(differences).max())
    except RuntimeError as error:
        return f"A step of the graph engine fails ({str(error).splitlines()[0]})."
    if engine.failure is not None:
        return engine.failure
    if not math.isfinite(largest):
        return NOT_COMPARED
    if largest > BOUNDS[model.dtype]:
        return f"Logits of the graph engine would differ by {largest:.0e} of their range."
    return None
