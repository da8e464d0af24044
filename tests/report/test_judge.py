"""The judge turns figures into a kind, a reason and doubts. All figures are computed by hand."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
from judged import TEXT, drafting, loop, plain, sides

from specdec.closed_forms import expected_tokens
from specdec.lanes.table import LOOP
from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import Metrics
from specdec.measure.summary import Share, Summary
from specdec.report.judge import LOSING, Advice, Doubt, Judgement, Kind, Reason, _reason, judge, judge_lengths


def runs(lane: float, alone: float | None, before: float = 1.0, count: int = 1) -> list[RunMetrics]:
    """Runs at these seconds a token: rounds of 4 guesses, 3 of them kept, whose check takes a pass over one token."""
    check = 0.9 * (alone or 0.5)
    drafted = drafting(4, (3,), 0.05, check, 4 * lane - 0.2 - check)
    return [sides(plain(before), drafted, loop(alone) if alone else None)] * count


def with_shares(run: RunMetrics, plain: float | None, lane: float | None, loop: float | None = None) -> RunMetrics:
    """The run with these shares of its lanes' time in which the thread had a processor."""

    def shared(side: Metrics, share: float | None) -> Metrics:
        return replace(side, cpu_seconds=share and share * (side.prefill_seconds + side.decode_seconds))

    alone = run.loop and shared(run.loop, loop if loop is not None else lane)
    return RunMetrics(shared(run.plain, plain), shared(run.lane, lane), alone)


@pytest.mark.parametrize(
    ("lane", "alone", "kind"),
    [
        (0.5, 0.9, Kind.FASTER),
        (0.5, None, Kind.FASTER_UNSPLIT),
        (0.5, 0.51, Kind.FASTER_PERHAPS),
        (0.84, 0.7, Kind.FASTER_BY_ENGINE),
        (1.0, 1.02, Kind.UNCLEAR),
        (1.0, None, Kind.UNCLEAR_UNSPLIT),
        (1.0, 1.3, Kind.UNCLEAR_GAINS),
        (1.0, 0.7, Kind.UNCLEAR_LOSES),
        (1.5, 1.0, Kind.SLOWER),
        (1.5, None, Kind.SLOWER_UNSPLIT),
        (1.5, 1.5, Kind.SLOWER_PERHAPS),
        (1.5, 2.0, Kind.SLOWER_BY_ENGINE),
    ],
)
def test_the_kind_keeps_the_engine_and_speculation_apart(lane: float, alone: float | None, kind: Kind) -> None:
    """The loop's gain over plain at 1 s a token is never counted as speculation's."""
    found = judge(runs(lane, alone), 4)
    assert found.kind is kind
    assert (found.engine is None) == (found.speculation is None) == (alone is None)
    if alone:
        assert found.gain == pytest.approx(found.engine * found.speculation)


def test_the_engine_alone_makes_it_faster() -> None:
    """Plain 1.0 s a token, our loop 0.7, speculative 0.84: 1.19 times plain, 1.43 the engine's, 0.83 speculation's."""
    drafted = drafting(4, (1,), 0.1, 0.9, 2 * 0.84 - 1.3, capped=False)
    found = judge([sides(plain(1.0), drafted, loop(0.7))], 4)
    assert found.kind is Kind.FASTER_BY_ENGINE
    assert (found.gain, found.engine, found.speculation) == (
        pytest.approx(1 / 0.84), pytest.approx(1 / 0.7), pytest.approx(0.7 / 0.84),
    )  # fmt: skip
    assert found.alpha == 0.5 and found.reason is Reason.FEW_KEPT


def test_terms_are_worked_out_by_hand() -> None:
    """Our loop: 0.9 s a pass; guesses 0.18 s, checks 1.35 s: c 0.2, v 1.5; 2 of 4 kept, so alpha is 2/3."""
    found = judge([sides(plain(2.0), drafting(4, (2,), 0.18, 1.35, 0.1, capped=False), loop(1.0))], 4)
    assert (found.c, found.v, found.alpha) == (pytest.approx(0.2), pytest.approx(1.5), pytest.approx(2 / 3))
    assert found.tokens == 3 and found.cost == pytest.approx(4 * 0.2 + 1.5)
    assert expected_tokens(found.needed_alpha, 4) == pytest.approx(found.cost)
    assert found.predicted == pytest.approx(expected_tokens(2 / 3, 4) / found.cost)
    assert sum(seconds for _, seconds in found.steps) == pytest.approx(2.0 / found.gain)
    steps = dict(found.steps)
    assert steps["Plain generate"] == pytest.approx(2.0) and steps["Our loop"] == pytest.approx(-1.0)


def test_needed_acceptance_and_predicted_gain_agree() -> None:
    """Theory predicts a gain exactly where the kept guesses reach the needed share."""
    for kept in range(5):
        for guess in (0.02, 0.2, 0.5, 1.1):
            for check in (0.9, 1.5, 3.0):
                found = judge([sides(plain(1.0), drafting(4, (kept,), guess, check), loop(1.0))], 4)
                enough = found.needed_alpha is not None and found.alpha >= found.needed_alpha
                assert (found.predicted >= 1) == enough, (kept, guess, check)
                assert found.can_break_even == (found.cost <= 5)


@pytest.mark.parametrize(
    ("lane", "alone", "reason", "advice"),
    [
        (drafting(4, (1,), 0.05, 1.4, 1.0), 0.7, Reason.FEW_KEPT, Advice.SHORTER),
        (drafting(4, (0,), 0.2, 1.0), 1.0, Reason.FEW_KEPT, Advice.CLOSER),
        (drafting(4, (3,), 1.1, 1.0), 1.0, Reason.GUESSES_COST, Advice.CHEAPER),
        (drafting(4, (3,), 0.05, 9.0), 1.0, Reason.CHECKING_GROWS, Advice.SHORTER),
        (drafting(4, (3,), 0.05, 1.0, 4.0), 1.0, Reason.OVERHEAD, None),
        (drafting(4, (4, 0), 0.09, 2.52, 0.4, capped=False), 1.0, Reason.UNEVEN, Advice.SHORTER),
        (drafting(4, (3,), 1.1, 1.0), None, Reason.GUESSES_COST, Advice.CHEAPER),
        (drafting(4, (3,), 0.05, 9.0), None, Reason.CHECKING_OR_LOOP, Advice.SHORTER),
        (drafting(4, (0,), 0.2, 1.0), None, Reason.FEW_KEPT, Advice.CLOSER),
        (drafting("auto", (0,), 0.3, 1.0, made=2), 1.0, Reason.FEW_KEPT, Advice.CLOSER),
        (drafting(1, (1, 0, 0), 0.1, 1.4), 1.0, Reason.FEW_KEPT, Advice.CLOSER),  # no draft is shorter
        (drafting(2, (1, 0, 0), 0.1, 1.4), 1.0, Reason.FEW_KEPT, Advice.SHORTER),
    ],
)
def test_the_reason_is_the_largest_loss(lane: list, alone: float | None, reason: Reason, advice: Advice) -> None:
    gamma = lane[0].gamma
    found = judge([sides(plain(1.0), lane, loop(alone) if alone else None)], gamma)
    assert (found.reason, found.advice) == (reason, advice)
    assert found.needed_alpha is None or gamma != "auto"


@pytest.mark.parametrize(
    ("lane", "reason", "advice"),
    [
        (drafting(4, (0,), 0.2, 1.0), Reason.FEW_KEPT, Advice.CLOSER),
        (drafting(4, (1,), 0.25, 1.4), Reason.FEW_KEPT, Advice.CLOSER),  # 1.9 tokens for a draft of 1.1 and a check
        (drafting(4, (1,), 0.05, 1.9), Reason.FEW_KEPT, Advice.SHORTER),
        (drafting(4, (3,), 0.05, 9.0), Reason.CHECKING_GROWS, Advice.SHORTER),
        (drafting(4, (3,), 1.1, 1.0), Reason.GUESSES_COST, Advice.CHEAPER),
        (drafting(1, (1, 0, 0), 0.1, 1.4), Reason.FEW_KEPT, Advice.CLOSER),  # no draft is shorter
    ],
)
def test_a_shorter_draft_of_one_pass_saves_no_drafting(lane: list, reason: Reason, advice: Advice) -> None:
    """So it is advised only where its tokens could pay for the whole pass."""
    found = judge([sides(plain(1.0), lane, loop(1.0))], lane[0].gamma, one_pass=True)
    assert found.one_pass and (found.reason, found.advice) == (reason, advice)


def test_a_round_that_cannot_yield_its_cost_needs_no_acceptance() -> None:
    """If a guess costs 1.2 target passes, no acceptance pays and no needed share is named."""
    found = judge([sides(plain(1.0), drafting(4, (3,), 1.2, 1.0), loop(1.0))], 4)
    assert found.can_break_even is False and found.needed_alpha is None


def test_a_text_too_short_for_a_round_that_is_cut() -> None:
    """Five tokens a round for the time of 4.5, but the last round is cut to one token."""
    text = tuple(range(7))
    found = judge([sides(plain(1.0, text=text), drafting(4, (4,), 0.1, 4.1, text=text))], 4)
    assert found.tokens == 5 and found.gain < 1
    assert (found.reason, found.advice) == (Reason.CUT, Advice.LONGER)
    split = judge([sides(plain(1.0, text=text), drafting(4, (4,), 0.1, 4.1, text=text), loop(1.0, text=text))], 4)
    assert split.split and (split.reason, split.advice) == (Reason.CUT, Advice.LONGER)


def test_no_shorter_draft_is_advised_where_it_was_measured() -> None:
    lane = [sides(plain(1.0), drafting(4, (1,), 0.05, 1.4, 1.0), loop(0.7))]
    assert judge(lane, 4, shorter_lost=True).advice is Advice.CLOSER


def test_lanes_that_guessed_nothing() -> None:
    nothing = [sides(plain(1.0), drafting(4, (0,), 0.1, 1.0, made=0), loop(0.9))]
    assert judge(nothing, 4).kind is Kind.NOTHING_GUESSED
    assert judge(nothing, 0).kind is Kind.NO_GUESSES and judge(nothing, 0).speculation is None


@pytest.mark.parametrize(
    ("speculation", "alpha", "needed", "refutes"),
    [
        (1.2, 0.5, 0.6, True), (1.2, 0.6, 0.6, False), (1.2, 0.5, None, True), (1.0, 0.5, 0.6, True),
        (0.8, 0.6, 0.6, True), (0.8, 0.5, 0.6, False), (0.8, 0.5, None, False), (None, 0.7, 0.6, False),
    ],
)  # fmt: skip
def test_theory_is_contradicted_where_the_measured_gain_differs(
    speculation: float | None, alpha: float, needed: float | None, refutes: bool
) -> None:
    found = Judgement(Kind.FASTER, 4, speculation=speculation, alpha=alpha, needed_alpha=needed, guesses=4.0, cost=2.0)
    assert found.refutes_theory == refutes
    assert not replace(found, cost=None).refutes_theory


def test_a_lane_whose_guesses_have_no_time_of_their_own() -> None:
    """Without times of guesses the cost of a round and the needed share are unknown."""
    (run,) = runs(1.5, 1.0)
    untimed = replace(run.lane, draft_seconds=None)
    found = judge([RunMetrics(run.plain, untimed, run.loop)], 4)
    assert (found.c, found.cost, found.needed_alpha, found.reason) == (None, None, None, Reason.UNKNOWN)


def test_too_few_tokens() -> None:
    short = sides(plain(1.0, text=TEXT[:1]), drafting(4, (1,), 0.1, 1.0, text=TEXT[:1]))
    assert judge([short], 4) == Judgement(Kind.TOO_FEW_TOKENS, 4) == judge([], 4)
    assert judge([], 4).runs == 0


def test_a_lane_that_does_not_report_its_guesses() -> None:
    """If a lane reports no guesses, as transformers' assisted generation, the reason for being slower is unknown."""
    (run,) = runs(1.5, None)
    hidden = replace(run.lane, accepted=None, rejected=None, discarded=None, alpha=None, draft_seconds=None)
    found = judge([RunMetrics(run.plain, hidden, None)], 4)
    assert (found.kind, found.reason, found.advice) == (Kind.SLOWER_UNSPLIT, Reason.UNKNOWN, None)


def test_our_loop_counts_only_where_it_ran_in_every_run() -> None:
    found = judge([*runs(0.5, 0.9), *runs(0.5, None)], 4)
    assert found.kind is Kind.FASTER_UNSPLIT and found.c == pytest.approx(0.05)
    untimed = sides(plain(1.0), drafting(4, (3,), 0.05, 0.9), plain(0.9))  # passes without times of their own
    assert untimed.engine and untimed.verify_growth is None
    assert judge([*runs(0.5, 0.9), untimed], 4).kind is Kind.FASTER_UNSPLIT


def test_drafts_that_are_much_shorter_than_gamma_have_no_closed_form() -> None:
    """It assumes gamma guesses a round; prompt lookup often finds fewer. Seven of ten are taken as ten."""
    for made, whole in ((4, False), (6, False), (7, True), (10, True)):
        lane = drafting(10, (3,), 0.05, 0.9, made=made, capped=False)
        found = judge([sides(plain(1.0), lane, loop(1.0))], 10)
        assert found.guesses == made and (found.predicted is not None) == (found.can_break_even is not None) == whole


def test_figures_are_those_of_the_median_run() -> None:
    found = judge([*runs(0.5, 0.9), *runs(0.4, 0.8), *runs(0.8, 1.0)], 4)
    each = [run.gain for run in (*runs(0.5, 0.9), *runs(0.4, 0.8), *runs(0.8, 1.0))]
    assert found.runs == 3 and found.gain == each[0] and found.spread == (min(each), max(each))
    assert found.engine == pytest.approx(1 / 0.9) and found.speculation == pytest.approx(found.gain / found.engine)
    even = judge([*runs(0.5, 0.9), *runs(0.4, 0.8)], 4)
    assert even.gain == each[0] and even.engine == pytest.approx(1 / 0.9), "of two runs the slower one"


@pytest.mark.parametrize("where", ["plain", "loop", "lane"])
def test_a_stall_in_any_lane_is_a_doubt(where: str) -> None:
    """A round of 30 s among rounds of 1 s is a doubt: over 5 times as long and over a tenth of the time."""
    late = {name: 30.0 if name == where else 0.0 for name in ("plain", "loop", "lane")}
    lane = drafting(4, (3,), 0.05, 0.9, stall=late["lane"])
    found = judge([sides(plain(1.0, stall=late["plain"]), lane, loop(1.0, stall=late["loop"]))], 4)
    assert Doubt.STALL in found.doubts and found.stalled == 1
    for short in (4.0, 5.0):  # not 5 times as long, and not a tenth of the time
        assert not judge([sides(plain(1.0, stall=short), drafting(4, (3,), 0.05, 0.9), loop(1.0))], 4).doubts


def test_other_doubts() -> None:
    """Doubts: runs far apart, a difference too small for these runs. A check that is 3 % cheaper than one is none."""
    assert judge([*runs(0.5, 0.9), *runs(0.8, 0.9)], 4).doubts == (Doubt.WIDE_SPREAD, Doubt.FEW_RUNS)
    little_less = judge([sides(plain(1.0), drafting(4, (3,), 0.05, 0.88), loop(1.0))], 4)
    assert little_less.v is not None and 0.95 < little_less.v < 1 and little_less.doubts == ()
    assert little_less.kind is Kind.FASTER
    close = [sides(plain(step), drafting(4, (3,), 0.05, 3.8)) for step in (1.02, 1.03)]
    assert judge(close, 4).kind is Kind.UNCLEAR_UNSPLIT and judge(close, 4).doubts == (Doubt.FEW_RUNS,)
    large = [*runs(0.25, 0.8), *runs(0.235, 0.8)]  # 4.00x and 4.26x
    assert Doubt.WIDE_SPREAD not in judge(large, 4).doubts
    assert not judge(close[:1], 4).doubts, "one run has no spread to doubt"
    assert not judge(close * 3, 4).doubts, "more runs of the same are enough"
    closer = [sides(plain(step), drafting(4, (3,), 0.05, 3.8)) for step in (1.016, 1.017, 1.015, 1.016, 1.017)]
    assert judge(closer, 4).kind is Kind.UNCLEAR_UNSPLIT and not judge(closer, 4).doubts
    apart = [sides(plain(step), drafting(4, (3,), 0.05, 3.8)) for step in (0.98, 1.05)]
    assert judge(apart, 4).kind is Kind.UNCLEAR_UNSPLIT and not judge(apart, 4).doubts, "runs that disagree say so"


@pytest.mark.parametrize(
    ("shares", "busy"),
    [
        ((1.0, 1.0, 1.0), False), ((0.76, 0.8, 0.78), False), ((0.74, 0.75, 0.8), True), ((1.0, 0.82, 1.0), True),
        ((1.0, 1.0, 0.5), True), ((None, None, None), False), ((None, 0.5, None), True),
    ],
)  # fmt: skip
def test_a_busy_machine_gives_no_clear_figure(shares: tuple[float | None, ...], busy: bool) -> None:
    """Other programs took processor time: much of it from a lane, or unequal parts from the lanes."""
    (quiet,) = runs(0.5, 0.9)
    plain, lane, alone = shares
    found = judge([with_shares(quiet, plain, lane, alone)], 4)
    assert (found.kind is Kind.BUSY) == (Doubt.BUSY in found.doubts) == busy
    assert found.kind is (Kind.BUSY if busy else Kind.FASTER) and found.gain == quiet.gain
    assert found.reason is None and found.busy == busy


def test_quiet_runs_outweigh_busy_ones() -> None:
    """One busy run of three does not matter unless it is the median run."""
    fast, middle, slow = (runs(lane, 0.9)[0] for lane in (0.4, 0.5, 0.6))
    busy = [with_shares(run, 0.5, 0.5) for run in (fast, middle, slow)]
    assert judge([busy[0], middle, slow], 4).kind is Kind.FASTER
    assert judge([fast, busy[1], slow], 4).kind is Kind.BUSY
    assert judge([busy[0], middle, busy[2]], 4).kind is Kind.BUSY
    assert judge([busy[0], *runs(0.45, 0.9), middle, busy[2]], 4).kind is Kind.BUSY, "half of the runs"


def test_figures_that_contradict_each_other_are_noise() -> None:
    """A check that takes less than a pass over one token, and a gain above what a round yields."""
    shrunk = sides(plain(1.0), drafting(4, (3,), 0.05, 0.78), loop(1.0))  # v 0.87
    fast = sides(plain(1.0), drafting(4, (0,), 0.01, 0.9, -0.11), loop(1.0))  # 1.2x with one token a round
    for run, doubt in ((shrunk, Doubt.CHECKING_SHRINKS), (fast, Doubt.TOO_FAST)):
        found = judge([run] * 4, 4)
        assert found.kind is Kind.NOISY and found.doubts[0] is doubt
        assert judge([run] * 5, 4).kind is Kind.FASTER, "so many runs that agree are believed"
        assert judge([*[run] * 4, *runs(0.5, 0.9)], 4).kind is Kind.NOISY, "these do not agree"
    assert judge([with_shares(shrunk, 0.5, 0.5)], 4).doubts == (Doubt.BUSY, Doubt.CHECKING_SHRINKS)


@pytest.mark.parametrize(
    ("gains", "count", "kind"),
    [
        ({3: 1.2, 5: 2.3, 7: 1.3}, 1, Kind.NOISY), ({3: 1.2, 5: 2.3, 7: 1.3}, 2, Kind.FASTER),
        ({3: 1.9, 5: 2.3, 7: 1.3}, 1, Kind.FASTER), ({3: 1.2, 5: 1.3, 7: 2.3}, 1, Kind.NOISY),
        ({3: 1.2, 5: 2.3, 7: 1.9}, 1, Kind.FASTER), ({3: 1.2, 5: 2.3, 7: 1.3, "auto": 2.2}, 1, Kind.NOISY),
        ({5: 2.3}, 1, Kind.FASTER),
    ],
)  # fmt: skip
def test_the_luckiest_of_many_lengths(gains: dict[int | str, float], count: int, kind: Kind) -> None:
    """After one run a length far ahead of its neighbours is not believed."""
    summaries = [
        Summary(LOOP.lane, gamma, runs(1 / gain, 0.9, count=count), list(range(count)), [gain], 1, 1)
        for gamma, gain in gains.items()
    ]
    found = judge_lengths(summaries, Share(1, 1, whole=True))
    assert found.kind is kind and (Doubt.LUCK in found.doubts) == (kind is Kind.NOISY)
    for part, above in ((1.04, False), (1.1, True)):
        limited = judge_lengths(summaries, Share(1, 1, whole=True), {s.lane_config: part for s in summaries})
        assert (Doubt.ABOVE_LIMIT in limited.doubts) == above
        assert limited == found if not above else limited.kind is Kind.NOISY


def losing(*lengths: int | str) -> list[Summary]:
    """Lanes that lose at these draft lengths, the first the least; a shorter draft would pay by the closed form."""
    runs = [
        [sides(plain(1.0), drafting(4, (1,), 0.05, 1.4, 1.0 + 0.1 * later), loop(0.7))] for later in range(len(lengths))
    ]
    return [
        Summary(LOOP.lane, length, made, [0], [made[0].gain], 1, 1) for length, made in zip(lengths, runs, strict=True)
    ]


@pytest.mark.parametrize(
    ("lengths", "advice"),
    [((4,), Advice.SHORTER), ((4, 7), Advice.SHORTER), ((4, 2), Advice.CLOSER), (("auto", 2), Advice.CLOSER)],
)
def test_a_shorter_draft_is_advised_unless_the_sweep_measured_it(lengths: tuple, advice: Advice) -> None:
    found = judge_lengths(losing(*lengths), Share(1, 1, whole=True))
    assert found.gamma == lengths[0] and found.kind in LOSING and found.advice is advice


def test_a_sweep_without_a_figure() -> None:
    nothing = Share(1, 1, whole=True)
    assert judge_lengths([], nothing).kind is Kind.NOT_MEASURED
    assert judge_lengths([Summary(LOOP.lane, 4, [], [], [], 0, 0)], nothing).kind is Kind.TOO_FEW_TOKENS
    assert judge_lengths([], Share(1, 2, whole=False)).kind is Kind.TOO_EARLY


def test_a_judgement_without_figures_claims_none() -> None:
    found = Judgement(Kind.NO_TOKEN)
    assert (found.runs, found.stalled, found.busy, found.gain, found.steps) == (0, 0, 0, None, ())
    with pytest.raises(FrozenInstanceError):
        found.kind = Kind.FASTER
    assert [kind for kind in Kind if Judgement(kind).is_about] == [Kind.BUSY, Kind.NOISY]
    sure = Judgement(Kind.FASTER, runs=3, gain=2.0, spread=(1.9, 2.1), stalled=1)
    assert not sure.is_about
    for change in ({"doubts": (Doubt.WIDE_SPREAD,)}, {"stalled": 2}, {"partial": True}):
        assert replace(sure, **change).is_about, change


@pytest.mark.parametrize(
    ("c", "tokens", "v", "reason"),
    [
        (0.9, 2.0, 1.2, Reason.GUESSES_COST), (0.1, 2.0, 2.0, Reason.FEW_KEPT), (0.1, 4.0, 5.0, Reason.CHECKING_GROWS),
        (0.1, 3.0, 3.5, Reason.CHECKING_GROWS),
    ],
)  # fmt: skip
def test_the_reason_is_the_largest_loss_against_an_ideal_round(c: float, tokens: float, v: float, reason) -> None:
    """Of four guesses and one token: 4 c lost by drafting, v - 1 by checking, and 5 - tokens by what was not kept."""
    found = Judgement(
        Kind.SLOWER, 4, engine=1.0, alpha=0.4, needed_alpha=0.99, c=c, v=v, guesses=4.0, cost=4 * c + v, tokens=tokens,
        tokens_of_all=tokens,
    )  # fmt: skip
    assert _reason(found) is reason


def test_noise_still_says_that_speculation_lost_in_every_run() -> None:
    """At 0.84 s a token against 0.7 s of the loop; in the other runs it gains."""
    losing, gaining = runs(0.84, 0.7, count=2), runs(0.5, 0.9)
    for found, lost in ((losing, True), (losing + gaining, False), (runs(0.84, None), False)):
        busy = judge([with_shares(run, 0.5, 0.5) for run in found], 4)
        assert (busy.kind, busy.lost) == (Kind.BUSY, lost)
