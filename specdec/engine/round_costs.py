"""What a round costs, estimated from the sizes of a pair's models, and where the times of its rounds are kept.

γ "auto" decides by the estimates in sampled calls. By measured times it would choose other draft lengths in each run,
and with them the same seed would write another text: all guesses and tests of a call draw from one generator. In greedy
calls a pair's first one begins with them, and measured times correct them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

from specdec.drafters.base import DraftMethod, DraftWork
from specdec.drafters.combined import Combined, guessing
from specdec.engine.chooser import KnownCosts
from specdec.engine.round_times import RoundTimes
from specdec.events import FORCED
from specdec.forward.model_info import why_torch_passes
from specdec.forward.pass_size import PassSize, head_size, model_size
from specdec.models.compatibility import recurrent_layers
from specdec.models.pair import Pair


class PassRates(NamedTuple):
    """How long a pass takes beside reading its weights.

    layer   the time of starting the operations of a layer, in bytes that are read meanwhile
    choice  the time of choosing a token from a pass's logits outside the pass, in such bytes
    rows    so many rows take as long as one, because a pass waits for the weights
    row     the time that each further row adds, as a share of the time of reading the weights
    """

    layer: float
    choice: float
    rows: int
    row: float


# Rounded from passes over one row and over several on AMD EPYC and NVIDIA H200 (docs/performance.md), and from the time
# of sampled guesses there.
IN_C = PassRates(layer=1e5, choice=3e6, rows=4, row=0.15)
BY_TORCH = PassRates(layer=3e6, choice=3e6, rows=1, row=0.07)
ON_GPU = PassRates(layer=2.5e8, choice=2.5e8, rows=16, row=0.01)
IN_GRAPHS = PassRates(layer=6e7, choice=6e7, rows=16, row=0.01)


@dataclass(frozen=True)
class EstimatedCosts:
    """The costs of a pair's rounds, in target passes over one row."""

    target: PassSize
    layers: int
    target_rates: PassRates
    drafting: DraftWork
    draft_rates: PassRates
    one_call: bool  # all guesses of a draft are made and chosen in one call in C
    copied: frozenset[str]  # by ``Round.drafted_by``: what no model guessed, as by a combination's first way
    stateful: bool

    def check(self, rows: int) -> float:
        """A pass of the target over so many rows."""
        return self._check(rows) / self._one

    def draft(self, guesses: int, drafted_by: str | None = None) -> float:
        """A draft of so many guesses. ``drafted_by``: as in ``Round``; None for a pass of the draft."""
        work, rates = self.drafting, self.draft_rates
        if not guesses:
            return 0.0
        if drafted_by in self.copied or not work.bytes:  # a copy takes as long as one choice, whatever its length
            seconds = rates.choice
        elif work.one_pass:
            seconds = _pass(work.bytes, work.layers, guesses, rates) + (guesses - 1) * rates.choice
        else:
            choices = 1 if self.one_call else guesses
            seconds = guesses * _pass(work.bytes, work.layers, 1, rates) - (guesses - choices) * rates.choice
        return seconds / self._one

    def _check(self, rows: int) -> float:
        return _pass(self.target.bytes_of(rows), self.layers, rows, self.target_rates)

    @cached_property
    def _one(self) -> float:
        return self._check(1)


_known: WeakKeyDictionary[Pair, KnownCosts] = WeakKeyDictionary()


def known_costs(pair: Pair, greedy: bool) -> KnownCosts:
    """What is known of the costs of ``pair`` before a call.

    Its greedy calls share the times that they measure, and estimates of the first one, which take a millisecond. Text
    that is sampled depends on the draft lengths, and a seed must repeat it. So no time decides there, and nothing of
    earlier calls: their costs are estimated for the models as they are now.
    """
    if not greedy:
        return KnownCosts(estimated_costs(pair), None)
    if (found := _known.get(pair)) is None:
        found = _known.setdefault(pair, KnownCosts(estimated_costs(pair, greedy), RoundTimes()))
    return found


def estimated_costs(pair: Pair, greedy: bool = False) -> EstimatedCosts:
    """The costs of ``pair``, which depend on its models, its engine, on what runs the passes, and on whether a call is
    ``greedy``.
    """
    target, draft = model_size(pair.target), guessing(pair.draft)
    rates = _rates(pair, draft is not None and _in_c(pair, draft))
    return EstimatedCosts(
        target=target,
        layers=pair.target.config.get_text_config(decoder=True).num_hidden_layers,
        target_rates=_rates(pair, why_torch_passes(pair.target) is None),
        drafting=DraftWork() if draft is None else draft.work(target, _parts(pair, draft)),
        draft_rates=rates,
        one_call=greedy and rates is IN_C,
        copied=frozenset({FORCED, *([pair.draft.first.kind] if isinstance(pair.draft, Combined) else [])}),
        stateful=bool(recurrent_layers(pair.target.config)),
    )


def _pass(read: float, layers: int, rows: int, rates: PassRates) -> float:
    """The time of a pass and of one choice, in bytes that are read meanwhile."""
    return read * (1 + rates.row * max(0, rows - rates.rows)) + layers * rates.layer + rates.choice


def _parts(pair: Pair, draft: DraftMethod) -> list[PassSize]:
    models = [model_size(model) for model in draft.models]
    if pair.rounds_draft:
        models = [replace(model, bytes=float(model.parameters)) for model in models]
    return [*models, *map(head_size, draft.heads)]


def _in_c(pair: Pair, draft: DraftMethod) -> bool:
    """Whether passes of the draft run in C. Early exit runs the target's own."""
    return not draft.heads and all(why_torch_passes(model) is None for model in draft.models or (pair.target,))


def _rates(pair: Pair, in_c: bool) -> PassRates:
    if pair.device.type != "cpu":
        return IN_GRAPHS if pair.uses_graphs else ON_GPU
    return IN_C if in_c else BY_TORCH
