"""Build events of lanes from given numbers, without a model or a clock, to test what is said about them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from specdec.events import DraftToken, Event, Finished, Round, SamplingParams, Started
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import Metrics, compute_metrics
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import PromptItem
from specdec.report.verdict import Note

_MODEL = {"layers": 2, "dtype": "float32", "bits": None}
PAIR = {
    "name": "embedded", "device": "cpu", "compiled": False,
    "target": {"name": "t", **_MODEL}, "draft": {"kind": "model", "name": "d", **_MODEL},
}  # fmt: skip
TEXT = tuple(range(10, 74))  # 64 tokens: the first, and 63 after it

_KEPT = DraftToken(1, "accepted", 1.0, 1.0, 1.0, None, 1, 0.9)
_MISSED = DraftToken(2, "rejected", 1.0, 0.0, 0.0, None, 1, 0.9)
_UNTESTED = DraftToken(3, "discarded", 1.0, None, None, None, None, 0.9)


def started(lane: str, gamma: int | str, tokens: int = len(TEXT), **settings) -> Started:
    fields = {"params": SamplingParams(max_new_tokens=tokens), "acceptance": "lossless", "accept_top_k": None}
    return Started(
        lane=lane, prompt_ids=(1,), gamma=gamma, pair=PAIR, machine={"cpu": "x"}, versions={}, neutralised={},
        **fields | settings,
    )  # fmt: skip


@cache
def plain(seconds: float, lane: LaneConfig = BASELINE, stall: float = 0.0, text: tuple[int, ...] = TEXT) -> list[Event]:
    """One token a round, ``seconds`` apart; the tenth is ``stall`` seconds late. Passes of our loop take 9/10 of it."""
    verify = None if lane == BASELINE else 0.9 * seconds
    rounds = [
        Round(i, (), t, "target", (t,), 0.0, verify, 1 + i * seconds + (stall if i >= 10 else 0.0), 0.9 * seconds)
        for i, t in enumerate(text)
    ]
    return [started(*_start(lane), tokens=len(text)), *rounds, Finished("length", 1.0, rounds[-1].elapsed_seconds)]


def _start(lane: LaneConfig) -> tuple[str, int | str]:
    return lane.lane, lane.gamma or 0


def loop(seconds: float, **more) -> list[Event]:
    return plain(seconds, LOOP, **more)


def drafting(
    gamma: int | str, kept: tuple[int, ...], guess: float, check: float, rest: float = 0.0, *, made: int | None = None,
    stall: float = 0.0, text: tuple[int, ...] = TEXT, capped: bool = True,
) -> list[Event]:  # fmt: skip
    """Rounds of ``made`` guesses, or gamma if not given. ``kept`` has the accepted guesses of each round, used in turn.

    ``guess``, ``check`` and ``rest`` are seconds of one guess, of a round's check and of other work. The third round is
    ``stall`` seconds late. If ``capped`` is false, a draft and the last round may go beyond the text.
    """
    length = made if made is not None else gamma
    rounds = [Round(0, (), text[0], "target", text[:1], 0.0, check, 1.0, check)]
    written, elapsed = 1, 1.0
    while written < len(text):
        room = min(length, len(text) - written - 1) if capped else length
        stand = min(kept[(len(rounds) - 1) % len(kept)], room)
        draft = (_KEPT,) * stand + (_MISSED,) * (stand < room) + (_UNTESTED,) * (room - stand - 1)
        ids = tuple(range(text[0] + written, text[0] + written + stand + 1))
        drafted = guess * room
        elapsed += drafted + check + rest + (stall if len(rounds) == 3 else 0.0)
        kind = "target" if not room else "bonus" if stand == room else "correction"
        rounds.append(Round(len(rounds), draft, ids[-1], kind, ids, drafted, check, elapsed, drafted + check))
        written += len(ids)
    return [
        started("speculative", gamma, tokens=len(text) if capped else 4 * len(text)),
        *rounds,
        Finished("length", 1.0, elapsed),
    ]


def sides(before: list[Event], lane: list[Event], alone: list[Event] | None = None) -> RunMetrics:
    return RunMetrics(compute_metrics(before), compute_metrics(lane), compute_metrics(alone) if alone else None)


_MEASURED: dict[int, Metrics] = {}  # of the lists that ``plain`` caches


def trial(run: int, config: LaneConfig, events: list[Event], prompt: str = "a", category: str = "c") -> Trial:
    ids = tuple(token for event in events if isinstance(event, Round) for token in event.committed_ids)
    return Trial(run, prompt, category, *config, ids, "length", True, _measured(events))


def _measured(events: list[Event]) -> Metrics:
    """Measure a lane. Plain ``generate``, which many cases share, is measured only once."""
    if events[0].lane != BASELINE.lane:
        return compute_metrics(events)
    if id(events) not in _MEASURED:
        _MEASURED[id(events)] = compute_metrics(events)
    return _MEASURED[id(events)]


def plan(configs: tuple[LaneConfig, ...], runs: int = 1, prompts: tuple[str, ...] = ("a",)) -> Plan:
    items = tuple(PromptItem(name, "c", name) for name in prompts)
    return Plan(items, configs, SamplingParams(max_new_tokens=len(TEXT)), runs)


def texts(notes: Iterable[Note]) -> list[str]:
    """The sentences of notes."""
    return [note.text for note in notes]
