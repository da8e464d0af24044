"""The result of many calls: summaries, the fastest draft length, the reason, and the tables of sweep and benchmark."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from fakes import byte_tokenizer, noisy_copy, shared_tiny, tiny
from judged import texts
from transformers import Cache

import specdec
from specdec.closed_forms import expected_speedup, expected_tokens
from specdec.forward.engine import EagerEngine
from specdec.forward.lean import LeanForward
from specdec.forward.lean_check import lean_model
from specdec.lanes.table import BASELINE, LOOP, LaneConfig, lane_configs
from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import Metrics, compute_metrics, no_clear_difference, pool
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import PromptItem
from specdec.measure.summary import auto_share, fastest, find, share_of, summarise, summary_rows
from specdec.measure.sweep import CONFIGS
from specdec.measure.trials import trials
from specdec.report import sentences
from specdec.report.benchmark import against_assisted, summary_cells
from specdec.report.judge import LOSING, Advice, Doubt, Kind, Reason, judge
from specdec.report.sentences import lengths, percent
from specdec.report.sweep import (
    Overall,
    _against,
    marked,
    overall,
    prediction_error,
    sweep_cells,
    sweep_rows,
    theory_note,
)
from specdec.report.why import why_figures, why_paragraph
from specdec.ui.charts.benchmark import benchmark_figure


def lane(tokens: int, passes: int, draft: float, verify: float, seconds: float, counts: tuple = (0, 0, 0)) -> Metrics:
    """Figures made by hand: tokens and passes, and seconds of drafting, of checking and in total."""
    accepted, rejected, discarded = counts
    tested = accepted + rejected
    return Metrics(
        new_tokens=tokens + 1, target_passes=passes, accepted=accepted, rejected=rejected, discarded=discarded,
        alpha=accepted / tested if tested else None, draft_acceptance_rate=None, mean_acceptance_length=tokens / passes,
        whole_passes=passes, stall_seconds=0.0,
        prefill_seconds=0.1, decode_tokens=tokens, decode_seconds=seconds, tokens_per_second=tokens / seconds,
        draft_seconds=draft, verify_seconds=verify, overhead_share=0.05,
    )  # fmt: skip


def trial(run: int, prompt: str, name: str, gamma, metrics: Metrics, ids=(1, 2, 3)) -> Trial:
    return Trial(run, prompt, "c", name, gamma, ids, "length", True, metrics)


def judged(found: list[Trial], runs: int = 0) -> Overall:
    """The outcome of a plan with only these trials."""
    configs = tuple(dict.fromkeys(t.lane_config for t in found))
    prompts = tuple(PromptItem(name, "c", name) for name in dict.fromkeys(t.prompt for t in found))
    return overall(found, Plan(prompts, configs, specdec.SamplingParams(64), runs or 1 + max(t.run for t in found)))


GENERATE = lane(100, 100, 0.0, 0.0, 1.1)
ALONE = lane(100, 100, 0.0, 0.9, 1.0)
# 30 rounds of 4: of 120 guesses 70 kept, 20 rejected; a draft pass 2 ms, a target pass over five tokens 12 ms.
DRAFTED = lane(100, 30, 0.24, 0.36, 0.63, (70, 20, 30))


def test_the_terms_add_up_to_the_last_microsecond() -> None:
    """Five steps lead from plain generate to speculative.

    Each is computed by hand, and their sum is the lane's time.
    """
    found = judge([RunMetrics(GENERATE, DRAFTED, ALONE)], 4)
    assert (found.c, found.v) == (pytest.approx(0.002 / 0.009), pytest.approx(0.012 / 0.009))
    assert (found.speculation, found.engine) == (pytest.approx(1 / 0.63), pytest.approx(1.1))
    steps = dict(found.steps)
    assert steps["Plain generate"] == pytest.approx(0.011)
    assert steps["Our loop"] == pytest.approx(-0.001)
    assert steps["Fewer target passes"] == pytest.approx(0.010 * 0.3 - 0.010)
    assert steps["Drafting"] == pytest.approx(0.0024)
    assert steps["Checking more tokens per pass"] == pytest.approx((0.012 - 0.009) * 0.3)
    assert sum(steps.values()) == pytest.approx(0.0063, abs=1e-12)
    assert found.predicted == pytest.approx(expected_speedup(7 / 9, 4, 2 / 9, 4 / 3))


def test_rolling_back_recurrent_state_has_a_step_of_its_own() -> None:
    """The roll-back is taken out of checking, and the steps still add up."""
    hybrid = replace(DRAFTED, state_seconds=0.02, reread_seconds=0.06)
    steps = dict(judge([RunMetrics(GENERATE, hybrid, ALONE)], 4).steps)
    assert steps["Rolling back recurrent state"] == pytest.approx(0.0008)
    assert steps["Checking more tokens per pass"] == pytest.approx((0.012 - 0.009) * 0.3 - 0.0006)
    assert sum(steps.values()) == pytest.approx(0.0063, abs=1e-12)
    assert "Rolling back recurrent state" not in dict(judge([RunMetrics(GENERATE, DRAFTED, ALONE)], 4).steps)


def test_the_paragraph_names_the_figures_and_the_engine() -> None:
    found = judge([RunMetrics(GENERATE, DRAFTED, ALONE)], 4)
    text = why_paragraph(found)
    for said in (
        "yields 3.3 tokens",
        "guess costs 22\u00a0% of a target pass",
        "a round takes 1.33",
        "78\u00a0% of",
        "1.59x",
        "1.10x the speed of plain",
    ):
        assert said in text
    assert len(why_figures(found)) == 8


def test_our_loop_without_pass_times_tells_no_terms() -> None:
    found = judge([RunMetrics(GENERATE, DRAFTED, replace(ALONE, verify_seconds=None))], 4)
    assert found.kind is Kind.FASTER_UNSPLIT and found.v is None and not found.steps


def test_pooled_calls_are_one_call() -> None:
    """Counts and seconds are added and rates come from the sums.

    A figure unknown in one call is unknown in the pool.
    """
    both = pool([DRAFTED, DRAFTED])
    assert (both.decode_tokens, both.accepted, both.decode_seconds) == (200, 140, pytest.approx(1.26))
    assert (both.alpha, both.tokens_per_second) == (pytest.approx(7 / 9), pytest.approx(DRAFTED.tokens_per_second))
    assert pool([DRAFTED, replace(DRAFTED, draft_seconds=None)]).draft_seconds is None


def test_a_summary_compares_within_a_run_and_survives_a_hiccup() -> None:
    """Speed-ups compare the same run and prompts, and the medians ignore a slow run."""
    slow = replace(ALONE, decode_seconds=9.0, tokens_per_second=100 / 9)
    found = [
        *(trial(run, p, "generate", None, GENERATE) for run in (0, 1, 2) for p in "ab"),
        *(trial(run, p, "speculative", 0, slow if (run, p) == (1, "a") else ALONE) for run in (0, 1, 2) for p in "ab"),
        trial(0, "a", "speculative", 4, DRAFTED), trial(1, "b", "speculative", 4, DRAFTED, ids=(1, 2, 9)),
        trial(7, "a", "speculative", 4, DRAFTED),
    ]  # fmt: skip
    summaries = summarise(found)
    assert [s.lane_config for s in summaries] == [BASELINE, LOOP, ("speculative", 4)]
    loop, drafted = summaries[1:]
    assert loop.gains == pytest.approx([1.1, 1.1]), "only what all configs have run is compared"
    assert drafted.gains == pytest.approx([1.1 / 0.63] * 2)
    whole = find(summarise([t for t in found if t.gamma != 4]), LOOP)
    assert [round(gain, 3) for gain in whole.gains] == [1.1, round(2.2 / 10, 3), 1.1]
    assert whole.figure("decode_seconds") == pytest.approx(2.0)
    assert (drafted.same, drafted.compared) == (1, 2)
    assert fastest(summaries) is drafted


def test_a_length_that_does_not_pay_is_said_with_what_the_loop_does() -> None:
    losing = lane(100, 80, 1.0, 0.9, 2.0, (20, 60, 240))
    ran = [trial(0, "a", *BASELINE, GENERATE), trial(0, "a", *LOOP, ALONE)]
    found = judged([*ran, trial(0, "a", "speculative", 4, losing)])
    assert (found.judgement.kind, found.judgement.reason) == (Kind.SLOWER, Reason.FEW_KEPT)
    assert found.factor == "0.55x" and "0.55x the speed of plain generate" in found.headline
    assert "Our loop alone runs at 1.10x" in " ".join(texts(found.notes))
    pays = judged([*ran, trial(0, "a", "speculative", 4, DRAFTED)])
    assert pays.judgement.kind is Kind.FASTER and pays.factor == "1.75x" and "astest" not in pays.headline


def test_an_early_stop_names_no_winner() -> None:
    """Until every length has run on every prompt, no winner is named, only the number of calls."""
    configs = (BASELINE, LOOP, LaneConfig("speculative", 4), LaneConfig("speculative", "auto"))
    plan = Plan((PromptItem("a", "c", "a"), PromptItem("b", "c", "b")), configs, specdec.SamplingParams(64), 2)
    every = [trial(run, item.name, *config, DRAFTED) for run, item, config in plan.steps()]
    for made in range(len(every) + 1):
        found, share = overall(every[:made], plan), share_of(every[:made], plan)
        early = made < 8
        assert (found.judgement.kind is Kind.TOO_EARLY) == early and share.whole != early
        assert (found.judgement.gain is None) == early
        assert (marked(sweep_rows(summarise(every[:made]), one_pass=False), every[:made], plan) is None) == early
        if made < 16:
            assert f"{made} of 16 calls" in " ".join([found.headline, *texts(found.notes)])


def test_auto_that_wins_is_the_headline_and_its_figure() -> None:
    faster = replace(DRAFTED, decode_seconds=0.4, tokens_per_second=250.0)
    ran = [trial(0, "a", *BASELINE, GENERATE), trial(0, "a", *LOOP, ALONE), trial(0, "a", "speculative", 4, DRAFTED)]
    found = judged([*ran, trial(0, "a", "speculative", "auto", faster)])
    assert found.judgement.gamma == "auto" and found.factor == "2.8x"
    assert found.headline.startswith("Our loop with the fastest draft length, γ auto, is 2.8 times as fast")


def test_the_shares_of_the_headline_are_of_one_run_and_make_its_figure() -> None:
    """The loop's own row shows the same run, though it is not the median of the loop."""

    def runs_of(name: str, gamma: int | None, *seconds: float) -> list[Trial]:
        lanes = [replace(DRAFTED if gamma else ALONE, decode_seconds=s, tokens_per_second=100 / s) for s in seconds]
        return [trial(run, "a", name, gamma, metrics) for run, metrics in enumerate(lanes)]

    base = runs_of(*BASELINE, 3.0, 3.0, 3.0)
    drafted = runs_of("speculative", 4, 1.0, 1.05, 0.97)  # the first run is the median one
    shown = [*base, *runs_of(*LOOP, 1.5, 1.8, 1.7), *drafted]
    unlike = judged(shown)
    engine, speculation = (float(share["value"].removesuffix("x")) for share in unlike.shares)
    assert (engine, speculation) == (2.0, 1.5) and unlike.factor == "3.0x"
    assert unlike.headline.endswith(
        "(median of 3 runs, 2.9\u20133.1x): 2.00x from our loop, times 1.50x from speculation."
    )
    loop = find(summarise(shown), LOOP)
    assert loop is not None and loop.gain == max(loop.gains) == 2.0 and loop.shown_run == 0
    (row,) = (each for each in sweep_rows(summarise(shown), False) if each.gamma == 0)
    assert "2.0x (1.7\u20132.0)" in sweep_cells(row, False)
    (mark,) = (each for each in benchmark_figure(shown).data if each.name == LOOP.label)
    assert list(mark.x) == [2.0], "and so does the chart"
    alike = judged([*base, *runs_of(*LOOP, 1.5, 1.5, 1.5), *runs_of("speculative", 4, 1.0, 1.01, 0.99)])
    assert "(median of 3 runs, 3.0x each): " in alike.headline
    assert not judged([*base, *drafted]).shares, "our loop did not run"
    shrunk = [replace(t, metrics=replace(t.metrics, verify_seconds=0.1)) for t in drafted]  # checking cannot cost less
    noise = judged([*base, *runs_of(*LOOP, 1.5, 1.8, 1.7), *shrunk])
    assert noise.judgement.kind is Kind.NOISY and noise.factor and not noise.shares
    assert noise.headline.endswith("Our loop without a draft: 2.0x.") and "from speculation" not in noise.headline


def test_one_page_names_one_fastest_length() -> None:
    """If our loop is faster than all drafting lanes, the headline says so and the table marks the loop."""
    slower = {gamma: lane(100, 40, 0.1, 0.7, seconds, (60, 30, 70)) for gamma, seconds in ((2, 0.85), (4, 0.95))}
    ran = [trial(0, "a", *BASELINE, lane(100, 100, 0.0, 0.0, 1.0)), trial(0, "a", *LOOP, lane(100, 100, 0.0, 0.6, 0.7))]
    ran += [trial(0, "a", "speculative", gamma, figures) for gamma, figures in slower.items()]
    found, table = judged(ran), sweep_rows(summarise(ran), one_pass=False)
    assert found.judgement.gamma == 2 and found.judgement.kind is Kind.FASTER_BY_ENGINE
    assert "the fastest draft length, γ 2," in found.headline
    assert "(γ 0) was faster: 1.43x" in found.headline
    plan = Plan((PromptItem("a", "c", "a"),), tuple(t.lane_config for t in ran), specdec.SamplingParams(64), 1)
    assert table[marked(table, ran, plan)].gamma == 0
    pays = judged([*ran[:2], trial(0, "a", "speculative", 2, lane(100, 40, 0.1, 0.4, 0.5, (60, 30, 70)))])
    assert "was faster" not in pays.headline
    lookup = trial(0, "a", "prompt-lookup", 5, replace(DRAFTED, decode_seconds=0.4, tokens_per_second=250.0))
    assert judged([*ran, lookup]).headline.endswith("Prompt lookup, γ 5 is even faster: 2.5x.")


def test_speeds_are_compared_within_a_run() -> None:
    """Speeds are compared within a run, as two lengths differ in every run and one has no speed in the first."""

    def runs_of(config: LaneConfig, *rates: float | None) -> list[Trial]:
        at = [replace(DRAFTED, tokens_per_second=rate, decode_seconds=100 / (rate or 1e9)) for rate in rates]
        return [trial(run, "a", *config, metrics) for run, metrics in enumerate(at)]

    found = [*runs_of(BASELINE, 100, 100, 100, 100), *runs_of(LaneConfig("speculative", 4), 150, 200, 300, 400)]
    found += runs_of(LaneConfig("speculative", 5), None, 180, 270, 360)
    first, second = summarise(found)[1:]
    assert _against(second, first) == pytest.approx([0.9, 0.9, 0.9])


def test_lengths_without_a_clear_difference_are_named() -> None:
    """A length that was as fast as the best in some run is named as not clearly slower; one that always lost is not."""

    def runs_of(lane: str, gamma: int | str | None, *rates: float) -> list[Trial]:
        at = [replace(DRAFTED if gamma else ALONE, tokens_per_second=rate, decode_seconds=100 / rate) for rate in rates]
        return [trial(run, "a", lane, gamma, metrics) for run, metrics in enumerate(at)]

    found = [*runs_of(*BASELINE, 100, 100, 100), *runs_of(*LOOP, 100, 100, 100)]
    found += [*runs_of("speculative", 3, 130, 140, 150), *runs_of("speculative", 4, 190, 215, 199)]
    found += [*runs_of("speculative", 5, 200, 210, 220), *runs_of("speculative", 6, 180, 190, 221)]
    found += [*runs_of("speculative", 7, 150, 211, 190), *runs_of("speculative", "auto", 201, 180, 180)]
    assert judged(found).headline.startswith("Our loop with the fastest draft length, γ 5, is 2.1 times as fast")
    assert "γ 4, 6–7 and auto may be as fast as γ 5: the runs show no clear difference." in judged(found).headline
    alone = [t for t in found if t.gamma in (None, 3, 5)]
    assert "may be as fast" not in judged(alone).headline
    once = [replace(t, run=0) for t in found if t.run == 1 and t.gamma in (None, 4, 5, 6)]
    assert judged(once).judgement.gamma == 4
    assert "γ 5 may be as fast as γ 4" in judged(once).headline, "in one run, what is within 5 %"
    even = [*runs_of(*BASELINE, 100, 100, 100), *runs_of(*LOOP, 92, 92, 92), *runs_of("speculative", 5, 99, 104, 110)]
    assert judged(even).judgement.kind is Kind.UNCLEAR_GAINS and judged(even).factor is None
    close = [*runs_of(*BASELINE, 100, 100, 100), *runs_of(*LOOP, 100, 130, 110)]
    close += runs_of("speculative", 5, 105, 125, 112)
    assert "γ 0 may be as fast as γ 5" in judged(close).headline
    assert lengths([3]) == "3" and lengths(["auto", 5, 4, 2]) == "2, 4–5 and auto"


def test_a_share_that_rounds_to_none_has_no_sign() -> None:
    assert [percent(share) for share in (-0.003, 0.004, -0.02, None)] == ["0\u00a0%", "0\u00a0%", "-2\u00a0%", "\u2013"]


def test_ratios_without_a_clear_difference() -> None:
    """Runs disagree, the median rounds to 1.00, or one of fewer than five runs differs from 1 by at most 5 % or less
    than the runs differ from each other."""
    apart = [[1.1, 1.3], [0.5, 0.8], [1.1, 1.2, 1.4], [0.6, 0.8, 0.9], [1.1, 1.2, 1.3, 1.5]]
    equal = [[], [0.97], [1.05], [0.9, 1.2], [1.02, 1.03], [0.95, 0.9, 0.99], [1.04, 1.15, 1.16], *apart]
    equal.append([1.001] * 4 + [1.004])
    for ratios in equal:
        assert no_clear_difference(ratios), ratios
    for ratios in ([0.94], [1.06], [1.06, 1.08], [1.3, 1.6], [0.8, 0.7], [0.9, 0.94, 0.92], [1.2, 1.7, 1.4]):
        assert not no_clear_difference(ratios), ratios
    for enough in ([1.02] * 4 + [1.01], [1.1, 1.2, 1.3, 1.6, 1.8]):
        assert not no_clear_difference(enough), enough


def test_the_headline_matches_the_measurement() -> None:
    """The headline is right where auto, plain or another method is fastest, and where nothing was measured."""
    plain, loop, drafted = trial(0, "a", *BASELINE, GENERATE), trial(0, "a", *LOOP, ALONE), DRAFTED
    slow = lane(100, 40, 0.9, 0.7, 1.8, (60, 30, 70))
    assert judged([plain, loop]).judgement.kind is Kind.NO_GUESSES
    assert judged([plain]).judgement.kind is Kind.NOT_MEASURED
    losing = trial(0, "a", "speculative", 5, slow)
    assert judged([plain, losing]).judgement.kind is Kind.SLOWER_UNSPLIT
    lookup = trial(0, "a", "prompt-lookup", 5, replace(drafted, decode_seconds=0.4, tokens_per_second=250.0))
    paying = trial(0, "a", "speculative", 4, drafted)
    assert judged([plain, paying, lookup]).headline.endswith("Prompt lookup, γ 5 is even faster: 2.8x.")
    worse = trial(0, "a", "speculative", 8, replace(slow, decode_seconds=2.4))
    assert judged([plain, losing, worse]).headline.startswith("No draft length pays.")
    assert judged([plain, losing, lookup]).headline.endswith("Prompt lookup, γ 5 is faster: 2.8x.")
    assert judged([plain, lookup]).headline == "Prompt lookup, γ 5 runs at 2.8x the speed of plain generate."
    loop_alone = trial(0, "a", *LOOP, replace(ALONE, decode_seconds=0.3, tokens_per_second=1000 / 3))
    assert "is faster" not in judged([plain, loop_alone, losing, lookup]).headline, (
        "not faster than the loop just named"
    )
    alike = trial(0, "a", "prompt-lookup", 5, replace(drafted, decode_seconds=0.62, tokens_per_second=100 / 0.62))
    assert judged([plain, paying, alike]).headline.endswith("Prompt lookup, γ 5 may be as fast: 1.77x.")


def test_a_short_text_is_not_taken_for_guesses_kept_unevenly() -> None:
    """Drafts cut by the end of the text are named. Where most are cut, the closed form is not used."""
    perfect = lane(31, 4, 0.1, 0.05, 0.2, (27, 0, 0))
    found = judge([RunMetrics(GENERATE, replace(perfect, mean_acceptance_length=9.0), ALONE)], 8)
    assert found.guesses == pytest.approx(27 / 4) and sentences.WHY_OFF["short"] in why_paragraph(found)
    assert sentences.WHY_OFF["uneven"] not in why_paragraph(found)
    short = judge([RunMetrics(GENERATE, perfect, ALONE)], 16)
    assert short.predicted is None and short.needed_alpha is None


def test_what_costs_time_does_not_explain_a_gain_above_the_theory() -> None:
    perfect = lane(31, 4, 0.1, 0.05, 0.2, (27, 0, 0))
    found = replace(judge([RunMetrics(GENERATE, perfect, ALONE)], 4), tokens=None, overhead=0.1)
    found = replace(found, tokens=expected_tokens(found.alpha, 4), guesses=4.0, predicted=1.5)
    below = why_paragraph(replace(found, speculation=1.3))
    above = why_paragraph(replace(found, speculation=1.7))
    outside, unknown = "10\u00a0% of the time is spent outside", sentences.WHY_OFF["unknown"]
    assert outside in below and unknown not in below
    assert outside not in above and unknown in above
    alike = why_paragraph(replace(found, speculation=1.51))
    assert outside not in alike and unknown not in alike


def test_no_shorter_draft_is_promised_where_it_was_measured() -> None:
    losing = lane(100, 40, 0.2, 0.7, 1.8, (60, 30, 70))
    found = [trial(0, "a", *BASELINE, GENERATE), trial(0, "a", *LOOP, ALONE)]
    worse = replace(losing, decode_seconds=2.0, tokens_per_second=50.0)
    found += [trial(0, "a", "speculative", 4, losing), trial(0, "a", "speculative", 3, worse)]
    assert judged(found).judgement.advice is not Advice.SHORTER


def test_doubts_stand_below_the_headline() -> None:
    stalled = replace(DRAFTED, stall_seconds=0.3)
    ran = [trial(0, "a", *BASELINE, GENERATE), trial(0, "a", *LOOP, ALONE), trial(0, "a", "speculative", 4, stalled)]
    found = judged(ran)
    assert found.judgement.doubts == (Doubt.STALL,) and "with a stall" in found.headline
    assert any("Something else slowed 1 of 1 run" in note for note in texts(found.notes))


def test_sampled_texts_are_not_counted_as_the_same() -> None:
    sampled = replace(trial(0, "a", "generate", None, GENERATE), greedy=False)
    assert summary_rows([sampled])[0]["same_text"] is None and summary_cells(summary_rows([sampled])[0])[-1] == ""


def test_a_category_may_be_called_all() -> None:
    one, other = (replace(trial(0, p, "generate", None, GENERATE), category=c) for p, c in (("a", "all"), ("b", "d")))
    assert [row["category"] for row in summary_rows([one, other])] == ["all", "d", "all"]


def test_rows_are_plain_numbers_by_category_and_over_all(tmp_path) -> None:
    other = replace(trial(0, "b", "generate", None, GENERATE), category="d")
    found = [trial(0, "a", "generate", None, GENERATE), trial(0, "a", "speculative", 4, DRAFTED), other]
    table = summary_rows(found)
    assert [(row["category"], row["lane"], row["gamma"]) for row in table] == [
        ("c", "generate", None), ("c", "speculative", 4), ("d", "generate", None), ("all", "generate", None),
        ("all", "speculative", 4),
    ]  # fmt: skip
    assert table[1]["speedup"] == pytest.approx(1.1 / 0.63) and table[1]["latency_reduction"] == pytest.approx(
        1 - 0.63 / 1.1
    )
    assert summary_cells(table[1])[1:5] == ["Speculative", "4", "159", "1.75x"]


def test_a_row_of_several_runs_can_be_checked() -> None:
    """Its speed over plain's beside it is its speed-up; plain has no run that is chosen, so both ends of its speed."""
    found = []
    for run, (base, ours) in enumerate([(100.0, 180.0), (400.0, 500.0), (200.0, 180.0), (100.0, 120.0)]):
        found += [trial(run, "a", "generate", None, replace(GENERATE, tokens_per_second=base))]
        found += [trial(run, "a", "speculative", 4, replace(DRAFTED, tokens_per_second=ours))]
    before, row = summary_rows(found)
    assert (row["plain_tokens_per_second"], row["tokens_per_second"], row["speedup"]) == (100.0, 120.0, 1.2)
    assert summary_cells(row)[3:5] == ["120 (120\u2013500)", "1.20x (0.90\u20131.80)"]
    assert before["tokens_per_second"] is None and summary_cells(before)[3:5] == ["100\u2013400", "1x"]
    shown_before, shown = summary_rows(found, shown=1)
    assert (shown_before["tokens_per_second"], shown["tokens_per_second"], shown["speedup"]) == (400.0, 500.0, 1.25)
    assert summary_cells(summary_rows(found[:2])[0])[3] == "100"


def test_auto_is_judged_on_other_runs_than_those_that_pick_the_best() -> None:
    found = []
    for run in (0, 1):
        found += [trial(run, "a", "generate", None, GENERATE), trial(run, "a", "speculative", 4, DRAFTED)]
        found += [trial(run, "a", "speculative", "auto", replace(DRAFTED, tokens_per_second=120.0))]
        lucky = 500.0 if run == 0 else 80.0
        found += [trial(run, "a", "speculative", 2, replace(DRAFTED, tokens_per_second=lucky))]
    assert auto_share(found) == {"a": pytest.approx(120 / 80)}
    assert auto_share(found[:4]) == {}


def deepened(model, layers: int):
    """Almost the same model, three times as slow: layers that add nothing follow its own."""
    deep = tiny("llama", 4, layers=layers)
    deep.load_state_dict(noisy_copy(model, 4, scale=0.004).state_dict(), strict=False)
    for layer in deep.model.layers[len(model.model.layers) :]:
        layer.self_attn.o_proj.weight.data.zero_()
        layer.mlp.down_proj.weight.data.zero_()
    return deep


@pytest.fixture
def layers_take_time(monkeypatch) -> None:
    """A clock on which a pass takes two milliseconds a layer, and nothing else takes any time."""
    now, update = 0.0, Cache.update

    def layer(count: int = 1) -> None:
        nonlocal now
        now += 0.002 * count

    def updated(*values, **named):
        layer()  # a layer of transformers' forward; ours keeps keys and values elsewhere
        return update(*values, **named)

    class Timed(LeanForward):
        def logits(self, ids, start, keep):
            layer(self.layers)
            return super().logits(ids, start, keep)

        def greedy(self, ids, start, count, stop):
            return None  # each pass is timed

    def passes(self, model, rounded=False):
        found = Timed(lean_model(model))
        found.layers = model.config.num_hidden_layers
        return found

    monkeypatch.setattr(EagerEngine, "passes", passes)
    monkeypatch.setattr(Cache, "update", updated)
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(time, name, lambda: now)


@pytest.mark.parametrize("kind", ["random draft", "draft deeper than its target"])
def test_a_pair_that_cannot_pay_is_told_so_in_the_right_terms(kind: str, layers_take_time) -> None:
    """A random draft does not pay because of its misses, and a deep draft because of its cost.

    At these lengths both take over twice the time of our loop without a draft.
    """
    target = tiny("llama", 4, layers=4)
    draft = tiny("llama", 5, layers=1) if kind == "random draft" else deepened(target, layers=12)
    pair = specdec.Pair(target=target, draft=draft, tokenizer=byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=32, ignore_eos=True)
    plan = Plan(
        (PromptItem("a", "a", "Once upon a time"),), lane_configs(("generate", "speculative"), (0, 6)), params, 2
    )
    found = list(filter(None, trials(pair, plan)))
    judgement = overall(found, plan).judgement
    assert judgement.kind in LOSING and judgement.speculation < 0.5, judgement
    assert judgement.c == pytest.approx(1 / 4 if kind == "random draft" else 3) and judgement.v == pytest.approx(1)
    assert judgement.reason is (Reason.FEW_KEPT if kind == "random draft" else Reason.GUESSES_COST)


def test_a_sweep_has_a_row_a_length_and_judges_the_closed_form() -> None:
    """The table has all lengths 0 to 16 and auto, with predicted beside measured wherever something was drafted."""
    target = shared_tiny("llama", 4, layers=3)
    pair = specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())
    params = specdec.SamplingParams(max_new_tokens=48, ignore_eos=True)
    found = list(filter(None, trials(pair, Plan((PromptItem("a", "a", "Once"),), CONFIGS, params, 1))))
    table = sweep_rows(summarise(found), one_pass=False)
    assert [row.gamma for row in table] == [*range(17), "auto"]
    assert table[0].predicted is None and table[-1].predicted is None
    for row in table[1:-1]:
        assert row.predicted == pytest.approx(row.judgement.predicted * row.judgement.engine)
    assert prediction_error(table) >= 0
    assert "theory is off by" in theory_note(table)
    assert find(summarise(found), LOOP).figure("alpha") is None
    assert compute_metrics([]) is None


def test_assisted_generation_is_compared_at_every_length_both_ran_at() -> None:
    """Assisted generation is compared run by run at the same length, not with its best and not with plain generate."""
    seconds = {("generate", None): 9.0, ("speculative", 3): 2.0, ("assisted", 3): 3.0, ("speculative", 5): 4.0,
               ("assisted", 5): 5.0, ("speculative", 7): 1.0}  # fmt: skip
    ran = [
        trial(run, "a", name, gamma, lane(100, 40, 0.1, 0.8, second * (1 + (run == 2) * (name == "assisted"))))
        for run in range(3)
        for (name, gamma), second in seconds.items()
    ]
    assert against_assisted(ran) == "\u03b3 3: 1.50x (1.50\u20133.00), \u03b3 5: 1.25x (1.25\u20132.50)"
    assert against_assisted([t for t in ran if t.lane != "assisted"]) == ""


def test_one_slow_call_does_not_set_the_share_of_time_outside_the_passes() -> None:
    """One pass that waited for another program does not change the share, which is from each prompt's median run."""
    usual = lane(100, 40, 0.1, 0.8, 1.0)
    slow = replace(lane(100, 40, 0.1, 98.0, 100.0), overhead_share=0.0003)
    ran = [trial(run, "a", "speculative", 5, slow if run == 0 else usual) for run in range(3)]
    ran += [trial(run, "a", *BASELINE, GENERATE) for run in range(3)]
    assert summary_rows(ran)[1]["outside_forward"] == pytest.approx(0.05)
