"""What stands in for a GPU on a CPU: the capture of CUDA graphs, and the host's reads from a device.

Each function patches the engine with ``patch(owner, name, value)``, which is ``setattr`` or that of pytest's
``monkeypatch``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from fakes import tensors
from torch.utils._python_dispatch import TorchDispatchMode

import specdec.forward.runner
import specdec.models.pair
from specdec.forward import cuda_graph, lean_check
from specdec.forward.cuda_graph import GraphEngine
from specdec.forward.lean import LeanModel
from specdec.runtime import draws

Patch = Callable[[Any, str, Any], Any]


class Recorded(TorchDispatchMode):
    """The operators of a step with their input and output tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Callable, tuple, dict, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class StandIn:
    """Captures on a CPU as CUDA does: a replay repeats the recorded operators on the recorded tensors, without Python.

    ``unknown`` are inputs that were neither made in a captured step nor lie in a fixed buffer.
    """

    def __init__(self, known: list[torch.Tensor]):
        self.known = known
        self.replays = 0
        self.unknown: list[str] = []

    def __call__(self, step, rng):
        state = rng.get_state()
        with Recorded() as recorded:
            found = step()
        rng.set_state(state)  # a capture draws nothing
        fixed = {storage(tensor) for tensor in self.known}
        for func, args, kwargs, out in recorded.calls:
            if func is torch.ops.aten.lift_fresh.default:  # a number in the code
                fixed |= {storage(tensor) for tensor in tensors(args)}
            self.unknown += [str(func) for tensor in tensors(args, kwargs) if storage(tensor) not in fixed]
            fixed |= {storage(tensor) for tensor in tensors(out)}
        self.known += tensors(found)  # the graph keeps its outputs, which a later step may read

        def replay() -> None:
            self.replays += 1
            for func, args, kwargs, out in recorded.calls:
                for old, new in zip(tensors(out), tensors(func(*args, **kwargs)), strict=True):
                    if storage(old) != storage(new):
                        old.copy_(new)

        return found, replay


def forget_engines(patch: Patch) -> None:
    """Begin without the engines and the refusals of earlier calls."""
    for name in ("_free", "_reasons"):
        patch(cuda_graph, name, WeakKeyDictionary())


def stand_in_for_captures(patch: Patch) -> None:
    """Let ``StandIn`` capture the steps of the graph engine."""
    begin, passes = GraphEngine.__init__, GraphEngine.passes

    def with_stand_in(self, model, room):
        begin(self, model, room)
        self.fixed = [self._rows, self._place.at, self._place.numbers]
        self._capture.known += self.fixed

    def known_passes(self, model, rounded=False):
        found = passes(self, model)
        _, buffer = self._buffers[model]
        self.fixed += [*buffer.held, *buffer.angles, *model.parameters(), *model.buffers()]
        self._capture.known += self.fixed
        return found

    patch(cuda_graph, "capture_for", lambda device: StandIn([]))
    patch(GraphEngine, "__init__", with_stand_in)
    patch(GraphEngine, "passes", known_passes)


class Reads(TorchDispatchMode):
    """Counts how often the host reads from the device "meta", and gives it zeros."""

    def __init__(self, patch: Patch) -> None:
        super().__init__()
        self.count = 0
        for name, value in (("tolist", lambda t: torch.zeros(t.shape, dtype=t.dtype).tolist()), ("item", lambda t: 0)):
            patch(torch.Tensor, name, self._counting(name, value))

    def _counting(self, name: str, zeros: Callable) -> Callable:
        original = getattr(torch.Tensor, name)

        def read(tensor):
            if tensor.device.type != "meta":
                return original(tensor)
            self.count += 1
            return zeros(tensor)

        return read

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name == "copy_" and args[1].device.type == "meta" and args[0].device.type == "cpu":
            self.count += 1
            return args[0].zero_()
        return func(*args, **(kwargs or {}))  # any other read of a value fails there


def on_meta(model):
    """The same tensors without values. Reading a value fails, except through ``Reads``."""
    return copy.deepcopy(model).to("meta")


def reads_on_meta(patch: Patch) -> Reads:
    """Let models run on "meta", where draws need no generator. The result counts the host's reads."""
    make = torch.Generator
    patch(lean_check, "_build", lambda model: LeanModel(model))
    patch(cuda_graph, "_difference", lambda model, lean: None)
    patch(torch, "Generator", lambda device=None: make())
    patch(draws, "draw", lambda p, rng: (p / torch.empty_like(p).exponential_()).argmax(-1))
    patch(draws, "uniform", lambda count, rng, like: torch.rand_like(like[:count, 0]))
    for module in (specdec.forward.runner, specdec.models.pair):
        patch(module, "device_of", lambda model: model.device)
    return Reads(patch)
