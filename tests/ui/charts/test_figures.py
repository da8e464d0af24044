"""Finished charts made from given numbers."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from judged import drafting, loop, plain, trial
from plotly.colors import hex_to_rgb

from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.losslessness import Common
from specdec.measure.plan import Trial
from specdec.measure.summary import summarise, summary_rows
from specdec.report.benchmark import gains_table
from specdec.report.cost_map import FREE, Point
from specdec.report.sweep import sweep_rows
from specdec.ui.assets import ASSETS
from specdec.ui.charts.benchmark import MOST_DOTS, benchmark_figure
from specdec.ui.charts.cost_map import LOSES, MOST_LABELS, PLOT, map_figure
from specdec.ui.charts.figures import COLOURS, LINE
from specdec.ui.charts.labels import apart, shown
from specdec.ui.charts.samples import chance_band, samples_figure
from specdec.ui.charts.sweep import ALONG, FIRST, sweep_figure
from specdec.ui.charts.temperature import temperature_figure


def test_a_lane_has_one_mark_with_its_spread_and_one_label_in_a_benchmark() -> None:
    """A lane keeps its mark whatever lanes are beside it. A lane without its own mark has a star."""
    lookup, configs = LaneConfig("prompt-lookup", 4), (LOOP, *(LaneConfig("speculative", gamma) for gamma in (3, 5)))
    trials = [trial(run, BASELINE, plain(2.0)) for run in range(3)]
    trials += [trial(run, config, loop(1.0 + run / 10)) for config in (lookup, *configs) for run in range(3)]
    figure = benchmark_figure(trials)
    marks = [dots for dots in figure.data if dots.name]
    assert {dots.name: (dots.marker.symbol, dots.marker.color) for dots in marks} == {
        "Prompt lookup, γ 4": ("triangle-up", COLOURS["teal"]),
        "Our loop, no draft": ("square", COLOURS["grey"]),
        "Speculative, γ 3": ("star", COLOURS["blue"]),
        "Speculative, γ 5": ("star", COLOURS["blue"]),
    }
    heights = [mark.y[0] for mark in marks]
    assert heights == sorted(set(heights)) and len(heights) == 4
    names = [note.text for note in figure.layout.annotations if "\u03b3" in note.text or "loop" in note.text]
    assert names == [f"<b>{mark.name}</b>" for mark in marks]
    assert all(2 / 1.1 == pytest.approx(mark.x[0]) for mark in marks)
    spread = marks[0].error_x
    assert marks[0].x[0] - spread.arrayminus[0] == pytest.approx(2 / 1.2)
    assert marks[0].x[0] + spread.array[0] == pytest.approx(2.0)
    labels = [text for dots in figure.data if dots.mode == "text" for text in dots.text]
    assert [re.sub("[^0-9.x]", "", label) for label in labels] == ["1.82x"] * 4 and not figure.layout.showlegend


def test_the_samples_of_the_test_of_losslessness_stand_side_by_side() -> None:
    """Samples can be told apart without colours, and a model's text never becomes markup."""
    common = (Common("<b>one", 3, 4, 1), Common("two", 2, 2, 9))
    figure = samples_figure(common, 10, "speculative")
    groups = [each for each in figure.data if each.type == "bar"]
    assert [tuple(bars.x) for bars in groups] == [(3, 2), (4, 2), (1, 9)]
    looks = [(bars.marker.color, bars.marker.pattern.shape) for bars in groups]
    assert len(set(looks)) == 3 and figure.layout.yaxis.ticktext[0].startswith("&lt;b&gt;one")
    assert "of 10 continuations" in figure.layout.xaxis.title.text
    numbers = [tuple(map(str.strip, each.text)) for each in figure.data if each.text]
    assert numbers == [("3", "2"), ("4", "2"), ("1", "9")]


def test_the_whole_band_of_chance_is_seen_behind_the_second_bar() -> None:
    """The bar in front of it is thinner, and no other bar, number or grid line is over its ends."""
    figure = samples_figure((Common("one", 3, 4, 1), Common("two", 2, 2, 9)), 10, "speculative")
    bands = figure.layout.shapes
    assert [(band.x0, band.x1) for band in bands] == [chance_band(3, 4, 10), chance_band(2, 2, 10)]
    assert all(band.layer == "between" and band.fillcolor and band.line.width for band in bands)
    plain, lossless, lossy = (
        (bars.offset, bars.offset + bars.width) for bars in figure.data if bars.type == "bar"
    )  # from the middle of a group
    for place, band in enumerate(bands):
        low, high = band.y0 - place, band.y1 - place
        assert plain[1] < low < lossless[0] < 0 < lossless[1] < high < lossy[0]
        assert lossless[1] - lossless[0] < 0.6 * (high - low)
    counts = [each for each in figure.data if each.text]
    assert [x >= band.x1 for x, band in zip(counts[1].x, bands, strict=True)] == [True, True]


@pytest.mark.parametrize(("draws", "share"), [(200, 0.1), (500, 0.03), (500, 0.4)])
def test_the_band_holds_the_second_count_in_19_of_20_cases(draws: int, share: float) -> None:
    """By enumeration of both counts of two samples of one distribution."""
    mass = [math.comb(draws, k) * share**k * (1 - share) ** (draws - k) for k in range(draws + 1)]
    likely = [k for k in range(draws + 1) if mass[k] > 1e-7]
    inside = 0.0
    for one in likely:
        for other in likely:
            low, high = chance_band(one, other, draws)
            inside += mass[one] * mass[other] * (low <= other <= high)
    assert 0.94 < inside < 0.965
    assert chance_band(0, 0, draws) == (0, 0) and chance_band(draws, draws, draws) == (draws, draws)


def by_category(trials: list[Trial]) -> list[dict]:
    """The rows of all categories, without those over all of them."""
    return summary_rows(trials)[: -len(summarise(trials))]


def test_a_category_of_a_benchmark_is_a_dot_and_a_row_of_the_table() -> None:
    names = ("<b>all", "x" * 40, "x" * 41)
    trials = [
        trial(0, lane, run, name, name)
        for at, name in enumerate(names)
        for lane, run in ((BASELINE, plain(2.0)), (LOOP, loop(1.0 + at)))
    ]
    (dots,) = [each for each in benchmark_figure(trials).data if each.customdata is not None]
    assert list(dots.x) == pytest.approx([2.0, 1.0, 2 / 3]) and dots.customdata[0] == "&lt;b&gt;all: 2.00x"
    notes = {note.text: note.x for note in benchmark_figure(trials).layout.annotations}
    assert notes["&lt;b&gt;all"] == 2.0 and notes["x" * 14 + "\u2026"] == pytest.approx(2 / 3), "the ends have names"
    table = gains_table(by_category(trials))
    assert table is not None and table.columns == ["Category", "no draft"]
    assert table.rows == [[names[0], "2.00x"], [names[1], "1.00x"], [names[2], "0.67x"]]
    assert gains_table(summary_rows([one for one in trials if one.category == names[0]])) is None


def test_a_benchmark_of_very_many_categories_is_drawn_with_some_of_them() -> None:
    trials = [
        trial(0, lane, run, str(n), str(n))
        for n in range(MOST_DOTS + 5)
        for lane, run in ((BASELINE, plain(2.0)), (LOOP, loop(1.0)))
    ]
    (dots,) = [each for each in benchmark_figure(trials).data if each.customdata is not None]
    table = gains_table(by_category(trials))
    assert len(dots.x) == MOST_DOTS and table is not None and len(table.rows) == MOST_DOTS + 5


def words(note: Any) -> str:
    """What a label says, without its colour and the mark of its line."""
    return re.sub("<.*?>|[^ -~\u03b3]", "", note.text).strip()


def test_dots_close_to_each_other_have_their_names_beside_each_other() -> None:
    """Below the dots they would overlap."""
    trials = [
        trial(0, lane, run, name, name)
        for name, seconds in (("low", 1.1), ("high", 1.0))
        for lane, run in ((BASELINE, plain(2.0)), (LOOP, loop(seconds)))
    ]
    notes = [note.text for note in benchmark_figure(trials).layout.annotations]
    assert "low \u2026 high" in notes and not {"low", "high"} & {*notes}


@pytest.mark.parametrize("slow", [0.95, 0.7, 0.4, 0.1])
@pytest.mark.parametrize("names", [("a" * 15, "b" * 15), ("a", "b" * 15), ("a", "b")])
def test_names_of_dots_neither_overlap_nor_leave_the_chart(names: tuple[str, str], slow: float) -> None:
    """Also on a phone, where the axis has about 330 pixels and a letter about 7."""
    trials = [
        trial(0, lane, run, name, name)
        for name, gain in zip(names, (2 * slow, 2.0), strict=True)
        for lane, run in ((BASELINE, plain(2.0)), (LOOP, loop(2.0 / gain)))
    ]
    figure = benchmark_figure(trials)
    shift, spans = {"left": 0.0, "center": 0.5, "right": 1.0}, []
    for note in figure.layout.annotations:
        if {*note.text} <= {*"ab \u2026"}:
            wide = 7 * len(note.text)
            start = 330 * note.x / figure.layout.xaxis.range[1] - shift[note.xanchor] * wide
            spans.append((start, start + wide))
    assert 1 <= len(spans) <= 2 and all(start > -24 and end < 344 for start, end in spans)
    assert all(one[1] < other[0] for one, other in pairwise(sorted(spans)))


def test_the_lines_of_a_sweep_have_names_and_no_legend_is_needed() -> None:
    gammas = (3, 5, "auto")
    ran = [trial(0, BASELINE, plain(2.0)), trial(0, LOOP, loop(1.0))]
    ran += [trial(0, LaneConfig("speculative", g), drafting(g, (3, 1), 0.01, 1.0, made=3)) for g in gammas]
    rows = sweep_rows(summarise(ran), one_pass=False)
    figure = sweep_figure(rows, rows[1], 16, one_pass=False)
    notes = {words(note): note for note in figure.layout.annotations}
    (key,) = (text for name, text in titles(figure).items() if "Speed-up" in name)
    assert {"plain", "auto", "fastest: \u03b3 3"} < notes.keys() and not figure.layout.showlegend
    assert re.findall("--sd-([a-z]+)", key) == ["blue", "muted"] and "median run" in key and "predicted" in key
    measured, predicted, *_ = (line for line in figure.data if line.yaxis == "y")
    assert measured.line.dash != predicted.line.dash and measured.marker.symbol != predicted.marker.symbol
    assert measured.cliponaxis is predicted.cliponaxis is False, "the last mark is whole"
    low, top = figure.layout.yaxis.range
    assert abs(notes["plain"].y - notes["auto"].y) >= 0.99 * LINE * (top - low) / FIRST


def titles(figure: Any) -> dict[str, str]:
    """The title above each chart of a column, with its key."""
    notes = [note for note in figure.layout.annotations if note.yref == "paper" and note.text.startswith("<b")]
    return {words(note): note.text.partition("<br>")[2] for note in notes}


@pytest.mark.parametrize("with_costs", [False, True])
def test_each_chart_of_a_sweep_names_its_axes(with_costs: bool) -> None:
    """Above it stands what it shows, with its unit, and below it that the axis is the draft length."""
    ran = [trial(0, BASELINE, plain(1.0)), *([trial(0, LOOP, loop(1.0))] if with_costs else [])]
    ran.append(trial(0, LaneConfig("speculative", 4), drafting(4, (3,), 0.1, 1.0)))
    figure = sweep_figure(sweep_rows(summarise(ran), one_pass=False), None, 16, one_pass=False)
    axes = [figure.layout[name] for name in figure.layout if name.startswith("xaxis")]
    assert len(axes) == len(titles(figure)) == (4 if with_costs else 3)
    assert all(axis.title.text == ALONG and axis.showticklabels for axis in axes)
    # No chart reaches into the title of the next one.
    heights = sorted(axis.domain for name in figure.layout if name.startswith("yaxis") if (axis := figure.layout[name]))
    assert all((above[0] - below[1]) * figure.layout.height >= 3 * LINE for below, above in pairwise(heights))


@pytest.mark.parametrize("one_pass", [False, True])
def test_a_sweep_shows_what_a_round_costs_at_each_length(one_pass: bool) -> None:
    """v is that of each length. The draft of a block drafter costs the same at all of them; its lengths end at 7."""
    lanes = [(BASELINE, plain(1.0)), (LOOP, loop(1.0))]
    for gamma in (1, 4, 7):
        guess = 0.36 / gamma if one_pass else 0.18  # seconds; a pass over one token takes 0.9
        lane = drafting(gamma, (gamma,), guess, 0.9 + 0.09 * gamma, text=tuple(range(1 + 40 * (gamma + 1))))
        lanes.append((LaneConfig("speculative", gamma), lane))
    rows = sweep_rows(summarise([trial(0, config, events) for config, events in lanes]), one_pass)
    figure = sweep_figure(rows, None, 7, one_pass)
    check, draft = (line for line in figure.data if line.yaxis == "y4")
    assert check.x == draft.x == (1, 4, 7)
    assert check.y == pytest.approx([1.1, 1.4, 1.7], rel=0.02)
    assert draft.y == pytest.approx([0.4] * 3 if one_pass else [0.2, 0.8, 1.4], rel=0.03)
    assert check.marker.symbol != draft.marker.symbol
    (key,) = (text for name, text in titles(figure).items() if "Cost" in name)
    assert ("draft, 1 pass<" if one_pass else "draft<") in key
    assert figure.layout.xaxis.range[1] == 7.5
    for row, passes in zip(rows[1:], (1, 1, 1) if one_pass else (1, 4, 7), strict=True):
        j = row.judgement
        assert j.predicted == pytest.approx((row.gamma + 1) / (passes * j.c + j.v)), "every guess is kept"


def test_without_our_loop_a_sweep_shows_no_cost_of_a_round() -> None:
    ran = [trial(0, BASELINE, plain(1.0)), trial(0, LaneConfig("speculative", 4), drafting(4, (3,), 0.1, 1.0))]
    figure = sweep_figure(sweep_rows(summarise(ran), one_pass=False), None, 16, one_pass=False)
    assert not [line for line in figure.data if line.yaxis == "y4"]


@pytest.mark.parametrize("places", [[], [5], [5, 5, 5], [1, 2, 90, 91], [99, 0, 100], list(range(40))])
def test_labels_lie_apart_in_their_order_and_within_the_chart(places: list[float]) -> None:
    found = apart(places, 4, 0, 100)
    gap = min(4, 100 / max(1, len(places) - 1))
    for (one, at), (other, to) in pairwise(sorted(zip(places, found, strict=True))):
        assert to - at >= gap - 1e-6
    assert all(-1e-6 <= at <= 100 + 1e-6 for at in found)


def test_a_label_with_room_stays_where_it_is() -> None:
    assert apart([10, 50, 52], 4, 0, 100) == pytest.approx([10, 49, 53])


def test_a_name_is_cut_and_is_no_markup() -> None:
    assert shown('<b>"a"</b>') == '&lt;b&gt;"a"&lt;/b&gt;'
    assert all(len(line) <= 15 for line in shown("a very long name of a category " * 9).split("<br>"))
    assert shown("") == ""


def test_the_temperature_chart_has_gain_acceptance_and_expected_acceptance() -> None:
    ran = [trial(0, BASELINE, plain(2.0)), trial(0, SPECULATIVE, drafting(5, (3, 1), 0.01, 1.0, made=3))]
    (greedy,) = [summary for summary in summarise(ran) if summary.lane_config == SPECULATIVE]
    lane = greedy.sides[0].lane
    expected = replace(lane, overlap_at=tuple(tested / 4 for tested in lane.tested_at))
    sampled = replace(greedy, sides=[replace(greedy.sides[0], lane=expected)])
    gains, kept, line = temperature_figure([(0.0, greedy), (0.8, sampled)]).data
    assert gains.x == kept.x == (0.0, 0.8) and gains.y[0] == greedy.gain
    assert kept.y[0] == 100 * lane.alpha
    assert line.x == (0.8,) and line.y == (25.0,), "a greedy run expects nothing"


SPECULATIVE = LaneConfig("speculative", 5)


def test_the_map_shows_lines_region_and_points() -> None:
    """Points are hollow where speculation was slower. The dashed line is the papers', with v = 1."""
    points = [Point("a", SPECULATIVE, 0.1, 0.8, 2.0), Point("<b>", SPECULATIVE, 0.12, 0.2, 0.8, loses=True)]
    figure = map_figure(points, dict.fromkeys(FREE, 1.3))
    line, region, paper, dots, *_ = figure.data
    assert region.fill == "tonexty" and paper.line.dash and tuple(dots.marker.symbol) == ("star", "star-open")
    assert paper.x[-1] * 100 == pytest.approx(paper.y[-1]) and line.y[0] > paper.y[0]
    notes = [note.text for note in figure.layout.annotations]
    assert [shape.name for shape in figure.data if shape.showlegend is not False] == [
        "break-even, v = 1.30 (measured)", "break-even, v = 1", SPECULATIVE.label, LOSES,
    ]  # fmt: skip
    assert "<i>speculation pays</i>" in notes and "<i>speculation does not pay</i>" in notes
    assert "a" in notes and "&lt;b&gt;" in notes
    for title in (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text):
        assert "(" in title, "with its unit"


@pytest.mark.parametrize("growth", [{}, {4: 0.9}, {2: 0.9, 4: 1.004}, {1: 2.5}])
def test_without_a_v_above_1_the_map_has_one_line(growth: dict[int, float]) -> None:
    """Also where the measured v says that no length pays."""
    figure = map_figure([Point("a", SPECULATIVE, 0.1, 0.8, 2.0)], growth)
    assert len(figure.data) == 4 and figure.data[0].name == "break-even, v = 1"


def test_a_map_without_a_loss_says_nothing_of_hollow_points() -> None:
    figure = map_figure([Point("a", SPECULATIVE, 0.1, 0.8, 2.0)], {})
    assert LOSES not in [line.name for line in figure.data]


def test_block_drafters_have_a_line_of_their_own() -> None:
    """Among others it is a further one; alone it is the line, which is lower, because a longer draft costs no more."""
    chain, block = (Point("a", SPECULATIVE, 0.3, 0.8, 2.0, one_pass) for one_pass in (False, True))
    alone, both, usual = (map_figure(points, {2: 1.1, 8: 1.6}) for points in ([block], [chain, block], [chain]))
    names = [line.name for line in both.data if line.showlegend is not False]
    assert names[:2] == ["break-even, v = 1.10 to 1.60 (measured)", "break-even, v = 1"]
    assert names[2] == "break-even, v = 1, one pass a draft" and names[2] not in [line.name for line in alone.data]
    below = zip(alone.data[0].y, usual.data[0].y, strict=False)
    assert all(one < other or not at for at, (one, other) in enumerate(below))


def test_points_at_one_place_have_names_that_do_not_overlap() -> None:
    points = [Point(str(n), SPECULATIVE, 0.1, 0.8, 2.0) for n in range(MOST_LABELS)]
    notes = [note for note in map_figure(points, {}).layout.annotations if note.showarrow]
    heights = sorted(note.ay * PLOT / 100 for note in notes)
    assert len(notes) == MOST_LABELS and all(above - below >= LINE - 1e-6 for below, above in pairwise(heights))
    assert not [n for n in map_figure(points * 2, {}).layout.annotations if n.showarrow], "too many for names"


def test_a_draft_as_dear_as_its_target_is_on_the_map() -> None:
    """Above c = 1 there is no line, but the point is shown."""
    figure = map_figure([Point("a", SPECULATIVE, 2.0, 0.8, 0.5)], dict.fromkeys(FREE, 1.5))
    assert figure.layout.xaxis.range[1] > 2 and max(figure.data[0].x) < 1


PAGES = re.findall("--sd-page: (#......)", (ASSETS / "styles" / "colours.css").read_text())
assert len(PAGES) == 2, "light and dark"


def luminance(colour: str) -> float:
    """The relative luminance of a colour by WCAG 2.2, 0 to 1."""
    parts = [part / 255 for part in hex_to_rgb(colour)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("colour", COLOURS.values())
def test_marks_stand_out_from_the_page_in_both_themes(colour: str, page: str) -> None:
    """WCAG 2.2 asks for a contrast of 3:1 of what a chart is read by."""
    dark, light = sorted((luminance(colour), luminance(page)))
    assert (light + 0.05) / (dark + 0.05) >= 3
