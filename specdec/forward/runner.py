"""Runs one model with its KV cache: feeds ids after the cached ones, returns logits, cuts the cache to a length."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import torch
from transformers import PreTrainedModel

from specdec.errors import IncompatiblePair
from specdec.forward.accelerate_private import execution_device
from specdec.forward.engine import EagerEngine, Engine, Keyed, Passes
from specdec.runtime.clock import Mark, mark, taken
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer

T = TypeVar("T")


class Runner:
    """Runs one model for one call. The cache belongs to the call. The model is shared; its weights are only read."""

    def __init__(self, model: PreTrainedModel, engine: Engine | None = None, passes: Passes | None = None):
        self.model = model
        self.device = device_of(model)
        self.engine = engine or EagerEngine()
        self._passes = passes or self.engine.passes(model)
        self._length = 0
        self._marks: list[tuple[Mark, Mark]] = []
        self._copies: list[tuple[Mark, Mark]] = []
        self._restores: list[tuple[Mark, Mark]] = []
        self._in_step = False
        self._on_features: Callable[[int, torch.Tensor], None] | None = None

    def __len__(self) -> int:
        """How many tokens are cached. Counted here, because cache classes report different things."""
        return self._length

    def forward(self, ids: torch.Tensor, keep: int | None = None, committed: bool = False) -> torch.Tensor:
        """Feed ``ids`` (n,) after the cached tokens; return raw float32 logits (keep or n, V) of the last rows.

        ``committed``: no crop will remove one of them.
        """
        if not committed and self._passes.stateful:
            self._timed(self._copies, lambda: self._passes.remember(self._length))
        start = None if self._in_step else mark(self.device)
        logits = self._passes.logits(ids.to(self.device), self._length, keep).float()
        if start is not None:
            self._marks.append((start, mark(self.device)))
        self._length += len(ids)
        if self._on_features is not None:
            self._on_features(self._length - len(ids), self._passes.features())
        return logits

    def greedy(
        self, ids: torch.Tensor, count: int, stop: DraftStop | None = None
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Feed ``ids`` (n,) and then the most likely token, up to ``count`` times (1 or more), in one call.

        ``stop`` may end it earlier. Returns raw logits (n + m - 1, V) in float32 and the m chosen ids, of which the
        last is not fed; None where each pass has to be started by itself. For a model without recurrent state, outside
        of ``run``.
        """
        start = mark(self.device)
        found = self._passes.greedy(ids.to(self.device), self._length, count, stop)
        if found is not None:
            self._marks.append((start, mark(self.device)))
            self._length += len(ids) + len(found[1]) - 1
        return found

    def tap(self, layers: Sequence[int], on_features: Callable[[int, torch.Tensor], None]) -> None:
        """Call ``on_features`` after each pass with the number of tokens before it and its hidden states.

        These are the inputs of ``layers``, joined: (n, layers x H).
        """
        self._passes.tap(layers)
        self._on_features = on_features

    def keys_values(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The keys and values, each (kv heads, m, head size), of the cached tokens in the layer of this number.

        In a layer with a window of W tokens these are the last W - 1 of them, which the next token sees. They may be
        views of the cache: read them before the next pass. The layer must have keys and values of its own.
        """
        return self._passes.keys_values(layer, self._length)

    def catch_up(self, context: TokenBuffer, most: int) -> None:
        """Read the uncached committed tokens, except the last, in their own pass if there are more than ``most``."""
        if 0 < self._length < context.length - 1 - most:
            self.forward(context.ids(self._length, context.length - 1), keep=1, committed=True)
            self.crop_to(context.length - 1)

    def verify(self, draft: Keyed, step: Callable[[], T], length: int) -> T:
        """Run the step that judges ``draft`` and leaves ``length`` tokens in the cache; return its result.

        For drafts with one key it is the same step, which reads the last committed token and the draft: each round cuts
        the cache back to that token. The prompt's pass reads more, so the draft before it has no key. A model with
        recurrent state may read more too, but no engine that captures runs it.
        """
        return self.run("verify", draft.key, step, length)

    def run(self, name: str, key: Hashable | None, step: Callable[[], T], length: int) -> T:
        """Run ``step``, whose passes of this model leave ``length`` tokens in the cache, and return its result.

        ``name`` and ``key`` say which steps are alike: see ``Engine.run``.

        An engine that captures replays a step without running this code. Then the step is timed as a whole, so choosing
        tokens counts as part of the passes.
        """
        if not self.engine.captures:
            return step()
        cached, self._in_step = self._length, True

        def from_here() -> T:
            self._length = cached  # a failed capture has run the step before
            return step()

        start = mark(self.device)
        found = self.engine.run(name, key, from_here)
        self._marks.append((start, mark(self.device)))
        self._length, self._in_step = length, False
        return found

    def crop_to(self, length: int) -> None:
        """Keep the first ``length`` tokens. Called in each round, also when nothing is cut: see ``new_cache``.

        A model with recurrent state may keep fewer and read the rest again: see ``RecurrentSnapshots``.
        """
        count = max(0, self._length - length)
        if count and self._passes.stateful:
            self._length -= self._timed(self._restores, lambda: self._passes.forget(count))
        else:
            self._length -= self._passes.forget(count)

    def beside(self, model: PreTrainedModel, rounded: bool = False) -> Runner:
        """A runner of another model in the same call; ``rounded`` as in ``Engine.passes``."""
        return Runner(model, self.engine, self.engine.passes(model, rounded))

    def sharing(self, early: PreTrainedModel) -> Runner:
        """A runner of this model's first layers, which shares their part of the cache; see ``follow``."""
        count = early.config.get_text_config(decoder=True).num_hidden_layers
        return Runner(early, self.engine, self._passes.first_layers(early, count))

    def follow(self, length: int) -> None:
        """Note that the other runner of this cache has left ``length`` tokens in it."""
        self._length = length

    def require_cache(self) -> None:
        """Refuse a model that did not fill its cache, or whose cache cannot be rolled back.

        Called after a first pass.
        """
        self._passes.require_cache(self._length)

    def take_seconds(self) -> float:
        """Seconds spent in ``forward`` since the last call of this method; the device must be idle."""
        return taken(self._marks)

    def take_copy_seconds(self) -> tuple[float, float]:
        """Seconds since the last call spent in copying recurrent state before passes, and in restoring it."""
        return taken(self._copies), taken(self._restores)

    def _timed(self, marks: list[tuple[Mark, Mark]], work: Callable[[], T]) -> T:
        start = mark(self.device)
        found = work()
        marks.append((start, mark(self.device)))
        return found


def device_of(model: PreTrainedModel) -> torch.device:
    """The device on which a model takes its ids.

    Weights that accelerate keeps elsewhere until they are needed are on "meta"; then its hooks know the device.
    """
    if model.device.type != "meta":
        return model.device
    if (device := execution_device(model)) is not None:
        return device
    raise IncompatiblePair(f"{type(model).__name__} has its weights on no device; load them first.")
