"""Where a draft ends before its full length, by the draft's own probabilities."""

from __future__ import annotations

import math
from dataclasses import dataclass

FARTHEST = 8.0  # log-odds beyond it count as this: a probability of 0.9997


@dataclass(frozen=True, slots=True)
class DraftStop:
    """A draft ends with its first guess that is too uncertain. That guess is still proposed.

    Whether a guess is proposed thus depends on those before it and never on itself, so sampling stays lossless.

    least_chance    the least raw probability of a guess by the draft
    least_survival  for each number of guesses, 1 first, the least probability that all of them are accepted; empty for
                    none. Each is accepted with sigmoid(slope x + bias), where x is its ``log_odds``. It is looked at
                    only where the host need not wait for the device
    """

    least_chance: float = 0.0
    least_survival: tuple[float, ...] = ()
    slope: float = 1.0
    bias: float = 0.0


class Watch:
    """Follows the guesses of one draft."""

    def __init__(self, stop: DraftStop):
        self._stop, self._survival, self._least = stop, 1.0, iter(stop.least_survival)

    def ends(self, chance: float) -> bool:
        """Whether the draft ends with the guess that has this raw probability. Called for each guess in turn."""
        stop = self._stop
        self._survival *= sigmoid(stop.slope * log_odds(chance) + stop.bias)
        return chance < stop.least_chance or self._survival < next(self._least, 0.0)


def log_odds(chance: float) -> float:
    """log(p / (1 - p)), between -``FARTHEST`` and ``FARTHEST``."""
    if not 0 < chance < 1:
        return -FARTHEST if chance <= 0 else FARTHEST
    return min(max(math.log(chance / (1 - chance)), -FARTHEST), FARTHEST)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def watch_of(stop: DraftStop | None, blocks_host: bool) -> Watch | None:
    """What looks at each guess while a draft is made; None where nothing ends it, or a look waits for the device."""
    return Watch(stop) if stop and not blocks_host else None
