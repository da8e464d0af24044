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
from specdec.ui.charts.benchmark import LEVEL, MOST_ROWS, PHONE, benchmark_figure
from specdec.ui.charts.cost_map import LOSES, MOST_LABELS, PAYS, PLOT, map_figure
from specdec.ui.charts.figures import COLOURS, LINE
from specdec.ui.charts.labels import apart, shown
from specdec.ui.charts.samples import chance_band, samples_figure
from specdec.ui.charts.sweep import ALONG, FIRST, small_figures, sweep_figure
from specdec.ui.charts.temperature import temperature_figure


def test_a_lane_has_one_mark_with_its_spread_and_one_label_in_a_benchmark() -> None:
    """A lane keeps its mark whatever lanes are beside it. The draft lengths of a lane differ by shape."""
    lookup, configs = LaneConfig("prompt-lookup", 4), (LOOP, *(LaneConfig("speculative", gamma) for gamma in (3, 5)))
    trials = [trial(run, BASELINE, plain(2.0)) for run in range(3)]
    trials += [trial(run, config, loop(1.0 + run / 10)) for config in (lookup, *configs) for run in range(3)]
    figure = benchmark_figure(trials)
    marks = [dots for dots in figure.data if dots.name]
    assert {dots.name: (dots.marker.symbol, dots.marker.color) for dots in marks} == {
        "Prompt lookup, γ 4": ("triangle-up", COLOURS["teal"]),
        "Our loop, no draft": ("square", COLOURS["grey"]),
        "Speculative, γ 3": ("star", COLOURS["blue"]),
        "Speculative, γ 5": ("diamond", COLOURS["blue"]),
    }
    heights = [mark.y[0] for mark in marks]
    assert heights == sorted(set(heights)) and len(heights) == 4
    names = [re.sub("<br>|<.?b>|\u00a0+$", " ", name) for name in figure.layout.yaxis.ticktext]
    assert [" ".join(name.split()) for name in names] == [mark.name for mark in marks], "left of the axis"
    assert list(figure.layout.yaxis.tickvals) == heights
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
    numbers = [(words(note), note.y) for note in figure.layout.annotations]
    bars_of = [
        (str(x), y + bars.offset + bars.width / 2) for bars in groups for x, y in zip(bars.x, bars.y, strict=True)
    ]
    assert numbers == bars_of, "each count is beside its own bar"
    assert [note.x for note in figure.layout.annotations] == [3, 2, 4, 2, 1, 9], "at its end"


def test_a_quote_that_a_continuation_leaves_open_is_closed() -> None:
    figure = samples_figure((Common('"I have a', 3, 4, 1), Common('"Oh," she', 2, 2, 9)), 10, "speculative")
    names = [" ".join(name.replace("<br>", " ").split()) for name in figure.layout.yaxis.ticktext]
    assert names == ['"I have a \u2026"', '"Oh," she']


def test_the_band_of_chance_is_below_the_second_bar_with_a_line_from_the_end_of_the_bar() -> None:
    """Nothing is drawn over a count, which is at the end of the bar."""
    figure = samples_figure((Common("one", 3, 4, 1), Common("two", 2, 2, 9)), 10, "speculative")
    bands, ends = figure.layout.shapes[:2], figure.layout.shapes[2:]
    assert [(band.x0, band.x1) for band in bands] == [chance_band(3, 4, 10), chance_band(2, 2, 10)]
    assert all(band.fillcolor and band.line.width for band in bands)
    plain, lossless, lossy = (
        (bars.offset, bars.offset + bars.width) for bars in figure.data if bars.type == "bar"
    )  # from the middle of a group
    for place, band in enumerate(bands):
        low, high = band.y0 - place, band.y1 - place
        assert -0.5 < plain[0] < plain[1] < lossless[0] < lossless[1] < low < high < lossy[0] < lossy[1] < 0.5
    assert [(end.x0, end.x1, end.y0, end.y1) for end in ends] == [
        (count, count, place + lossless[1], bands[place].y1) for place, count in enumerate((4, 2))
    ]


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


def in_categories(gains: dict[str, dict[LaneConfig, float]]) -> list[Trial]:
    """Trials in which each lane has this speed-up in each category."""
    return [
        trial(0, config, plain(2.0) if config == BASELINE else loop(2.0 / gain), name, name)
        for name, lanes in gains.items()
        for config, gain in ({BASELINE: 1.0} | lanes).items()
    ]


def marks_of(figure: Any) -> dict[str, tuple[str, float, float]]:
    """The figure beside each mark of a category and its place, by what a pointer on it shows."""
    return {
        told: (re.sub("<.?b>", "", text).strip(), x, y)
        for dots in figure.data
        if dots.customdata is not None
        for told, text, x, y in zip(dots.customdata, dots.text, dots.x, dots.y, strict=True)
    }


def test_each_category_of_a_benchmark_has_a_named_row_with_a_mark_for_each_lane() -> None:
    """The fastest mark has its figure, and the table gives the same figures with the same digits."""
    found = {"<b>all": {LOOP: 2.0, SPECULATIVE: 4.04}, "x" * 25: {LOOP: 1.0, SPECULATIVE: 0.5}}
    figure, rows = benchmark_figure(in_categories(found)), by_category(in_categories(found))
    marks = marks_of(figure)
    assert [number for number, *_ in marks.values()] == ["", "1.00x", "4.0x", ""], "the figure of the fastest"
    assert marks["&lt;b&gt;all, Speculative, γ 5: 4.0x"][1] == pytest.approx(4.04)
    heights = sorted(y for *_, y in marks.values())
    assert heights[1] - heights[0] == heights[3] - heights[2] == LEVEL, "a line for each lane, as in the other row"
    names = [re.sub("<br>|<b>|</b>|\u00a0", "", name) for name in figure.layout.yaxis.ticktext]
    assert names[2:] == ["&lt;b&gt;all", "x" * 15 + "x" * 10], "left of the axis"
    assert [line.name for line in figure.data if line.customdata is not None] == ["no draft", "γ\u00a05"]
    assert figure.layout.showlegend
    table = gains_table(rows)
    assert table is not None and table.columns == ["Category", "no draft", "γ\u00a05"]
    assert table.rows == [["<b>all", "2.0x", "4.0x"], ["x" * 25, "1.00x", "0.50x"]]
    alone = in_categories({"all": found["<b>all"]})
    assert gains_table(by_category(alone)) is None and not marks_of(benchmark_figure(alone))


def test_the_line_of_plain_generate_goes_through_all_rows_of_a_benchmark() -> None:
    """It has its name at the top of each part, and goes through no word of the legend."""
    figure = benchmark_figure(in_categories({"a": {LOOP: 2.0, SPECULATIVE: 6.0}, "b": {LOOP: 3.0, SPECULATIVE: 7.0}}))
    lines = [(shape.y0, shape.y1) for shape in figure.layout.shapes if shape.x0 == shape.x1 == 1]
    grid = [(shape.y0, shape.y1) for shape in figure.layout.shapes if shape.x0 == shape.x1 == 2]
    assert grid == lines and not figure.layout.xaxis.showgrid, "as the grid does"
    whole, rows = figure.layout.yaxis.range[0], figure.layout.yaxis.tickvals
    assert all(any(start < row < end for start, end in lines) for row in rows) and len(rows) == 4
    legend = (1 - figure.layout.legend.y) * whole
    assert not any(start < legend < end for start, end in lines)
    names = [note for note in figure.layout.annotations if words(note) == "plain generate, 1x"]
    assert all(name.x == 1 and name.xanchor == "left" and name.xshift > 0 for name in names)
    for name, (start, end) in zip(names, lines, strict=True):
        assert start < name.y < min(row for row in rows if start < row < end)


def test_a_benchmark_of_very_many_categories_is_drawn_with_the_first_of_them() -> None:
    trials = in_categories({str(n): {LOOP: 2.0} for n in range(MOST_ROWS + 5)})
    figure, table = benchmark_figure(trials), gains_table(by_category(trials))
    assert len(marks_of(figure)) == MOST_ROWS and table is not None and len(table.rows) == MOST_ROWS + 5
    assert any(f"the first {MOST_ROWS} of {MOST_ROWS + 5}" in note.text for note in figure.layout.annotations)


def test_no_mark_of_a_category_is_over_another_one_nor_over_the_next_row() -> None:
    """Also on a phone, whose axis is short."""
    close = {LaneConfig("speculative", gamma): 2.0 + 0.01 * at for at, gamma in enumerate((3, 12, "auto"))}
    figure = benchmark_figure(in_categories({"a": close, "b": close | {LOOP: 1.0}}))
    pixels = PHONE / figure.layout.xaxis.range[1]
    boxes = [(x * pixels - 6, x * pixels + 6 + 8 * len(number), y) for number, x, y in marks_of(figure).values()]
    assert len(boxes) == 7
    for number, (left, right, y) in enumerate(boxes):
        for start, end, other in boxes[number + 1 :]:
            assert abs(y - other) >= LEVEL or right <= start or end <= left
    (edge,) = {
        shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1 and shape.y0 > min(y for *_, y in boxes)
    }
    assert all(abs(edge - y) > 10 for *_, y in boxes)


def words(note: Any) -> str:
    """What a label says, without its colour and the mark of its line."""
    return re.sub("<.*?>|[^ -~\u03b3]", "", note.text).strip()


def test_the_lines_of_a_sweep_have_names_and_no_legend_is_needed() -> None:
    gammas = (3, 5, "auto")
    ran = [trial(0, BASELINE, plain(2.0)), trial(0, LOOP, loop(1.0))]
    ran += [trial(0, LaneConfig("speculative", g), drafting(g, (3, 1), 0.01, 1.0, made=3)) for g in gammas]
    rows = sweep_rows(summarise(ran), one_pass=False)
    figure = sweep_figure(rows, rows[1], 16)
    notes = {words(note): note for note in figure.layout.annotations}
    (key,) = (text for name, text in titles(figure).items() if "Speed-up" in name)
    assert {"plain", "auto", "fixed \u03b3", "fastest: \u03b3 3"} < notes.keys() and not figure.layout.showlegend
    assert re.findall("--sd-([a-z-]+)", key) == ["blue", "muted", "correction-mark"]
    assert "median run" in key and "predicted" in key and "auto: chooses" in key
    predicted, measured, *_ = figure.data
    assert predicted.marker.symbol == "diamond-open" and predicted.marker.size >= measured.marker.size + 3, "around it"
    assert measured.cliponaxis is predicted.cliponaxis is False, "the last mark is whole"
    low, top = figure.layout.yaxis.range
    assert abs(notes["plain"].y - notes["auto"].y) >= 0.99 * LINE * (top - low) / FIRST


@pytest.mark.parametrize("auto", [1.02, 2.0, 2.01, 9.7])
def test_no_grid_line_of_a_sweep_is_beside_a_level_line(auto: float) -> None:
    """A dotted line on a grid line is hard to see. Nor is the line of auto beside a number of the axis."""
    ran = [trial(0, BASELINE, plain(2.0)), trial(0, LOOP, loop(2.0 / 3))]
    ran.append(trial(0, LaneConfig("speculative", "auto"), loop(2.0 / auto)))
    figure = sweep_figure(sweep_rows(summarise(ran), one_pass=False), None, 16)
    axis, lines = figure.layout.yaxis, [shape.y0 for shape in figure.layout.shapes]
    assert lines[-2:] == [1.0, pytest.approx(auto)], "plain and auto"
    pixels = FIRST / (axis.range[1] - axis.range[0])
    assert all(abs(grid - level) * pixels > 7 for grid in lines[:-2] for level in lines[-2:])
    assert all(abs(tick - auto) * pixels > 7 for tick in axis.tickvals)
    assert 3 <= len(axis.tickvals) <= 7 and not axis.showgrid and {*lines[:-2]} <= {*axis.tickvals}


def titles(figure: Any) -> dict[str, str]:
    """The title above a chart, with its key."""
    notes = [note for note in figure.layout.annotations if note.yref == "paper" and note.text.startswith("<b")]
    return {words(note): note.text.partition("<br>")[2] for note in notes}


@pytest.mark.parametrize("with_costs", [False, True])
def test_each_chart_of_a_sweep_names_its_axes(with_costs: bool) -> None:
    """Above it stands what it shows, with its unit, and below it that the axis is the draft length."""
    ran = [trial(0, BASELINE, plain(1.0)), *([trial(0, LOOP, loop(1.0))] if with_costs else [])]
    ran.append(trial(0, LaneConfig("speculative", 4), drafting(4, (3,), 0.1, 1.0)))
    rows = sweep_rows(summarise(ran), one_pass=False)
    small = small_figures(rows, 16, one_pass=False)
    assert len(small) == (3 if with_costs else 2)
    for figure in (sweep_figure(rows, None, 16), *small):
        assert len(titles(figure)) == 1 and figure.layout.xaxis.title.text.startswith(ALONG)
        # Its title and its key are above the axes' rectangle, and the axis is below it.
        (key,) = titles(figure).values()
        assert figure.layout.margin.t >= LINE * (2 + key.count("<br>")) and figure.layout.margin.b >= 2 * LINE
    assert not small_figures(rows[:-1], 16, one_pass=False), "nothing was drafted"


@pytest.mark.parametrize("one_pass", [False, True])
def test_a_sweep_shows_what_a_round_costs_at_each_length(one_pass: bool) -> None:
    """v is that of each length. The draft of a block drafter costs the same at all of them; its lengths end at 7."""
    lanes = [(BASELINE, plain(1.0)), (LOOP, loop(1.0))]
    for gamma in (1, 4, 7):
        guess = 0.36 / gamma if one_pass else 0.18  # seconds; a pass over one token takes 0.9
        lane = drafting(gamma, (gamma,), guess, 0.9 + 0.09 * gamma, text=tuple(range(1 + 40 * (gamma + 1))))
        lanes.append((LaneConfig("speculative", gamma), lane))
    rows = sweep_rows(summarise([trial(0, config, events) for config, events in lanes]), one_pass)
    figure = small_figures(rows, 7, one_pass)[-1]
    check, draft = figure.data
    assert check.x == draft.x == (1, 4, 7)
    assert check.y == pytest.approx([1.1, 1.4, 1.7], rel=0.02)
    assert draft.y == pytest.approx([0.4] * 3 if one_pass else [0.2, 0.8, 1.4], rel=0.03)
    assert check.marker.symbol != draft.marker.symbol
    (key,) = (text for name, text in titles(figure).items() if "Cost" in name)
    assert "(v)" in key and ("a draft is one pass" in key) is one_pass
    assert [words(note) for note in figure.layout.annotations[:2]] == ["checking", "drafting"], (
        "at the ends of the lines"
    )
    assert figure.layout.xaxis.range[1] == 7.5
    for row, passes in zip(rows[1:], (1, 1, 1) if one_pass else (1, 4, 7), strict=True):
        j = row.judgement
        assert j.predicted == pytest.approx((row.gamma + 1) / (passes * j.c + j.v)), "every guess is kept"


def test_without_our_loop_a_sweep_shows_no_cost_of_a_round() -> None:
    ran = [trial(0, BASELINE, plain(1.0)), trial(0, LaneConfig("speculative", 4), drafting(4, (3,), 0.1, 1.0))]
    small = small_figures(sweep_rows(summarise(ran), one_pass=False), 16, one_pass=False)
    assert [name for figure in small for name in titles(figure) if "Cost" in name] == [] and len(small) == 2


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
    """Points are hollow where speculation was slower. The line takes the measured v."""
    points = [Point("a", SPECULATIVE, 0.1, 0.8, 2.0), Point("<b>", SPECULATIVE, 0.12, 0.2, 0.8, loses=True)]
    figure = map_figure(points, dict.fromkeys(FREE, 1.3))
    papers = map_figure(points, {}).data[0]
    line, region, dots, *_ = figure.data
    assert region.fill == "tonexty" and tuple(dots.marker.symbol) == ("star", "star-open")
    assert papers.x[-1] * 100 == pytest.approx(papers.y[-1]) and line.y[0] > papers.y[0]
    notes = [note.text for note in figure.layout.annotations]
    assert [shape.name for shape in figure.data if shape.showlegend is not False] == [SPECULATIVE.label, LOSES]
    assert "<i>speculation pays</i>" in notes
    assert [n for n in map(words, figure.layout.annotations) if "even" in n] == ["break-even"]
    loss = next(note for note in figure.layout.annotations if "not pay" in note.text)
    assert loss.y < line.y[-1], "below the line that bounds the region"
    assert "a" in notes and "&lt;b&gt;" in notes
    for title in (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text):
        assert "(" in title, "with its unit"


@pytest.mark.parametrize("growth", [{}, {4: 0.9}, {2: 0.9, 4: 1.004}, {1: 2.5}])
def test_without_a_v_above_1_the_map_has_the_line_of_the_papers(growth: dict[int, float]) -> None:
    """Also where the measured v says that no length pays."""
    line = map_figure([Point("a", SPECULATIVE, 0.1, 0.8, 2.0)], growth).data[0]
    assert line.x[-1] * 100 == pytest.approx(line.y[-1])


def test_the_map_shows_the_costs_of_its_points_and_the_line() -> None:
    """The axis is narrow where the points are, and begins at 0 where the line would be out of view."""
    points = [Point(name, SPECULATIVE, c, alpha, 2.0) for name, c, alpha in (("a", 0.06, 0.8), ("b", 0.075, 0.17))]
    figure = map_figure(points, {3: 1.1})
    low, most = figure.layout.xaxis.range
    assert 0.02 < low < 0.05 and 0.08 < most < 0.12
    assert max(figure.data[0].x) == pytest.approx(most) and any(low < c < most for c in figure.data[0].x)
    loss = next(note for note in figure.layout.annotations if "not pay" in note.text)
    assert "<br>" in loss.text, "on a phone one line would be over the point below the line"
    dear = map_figure([Point("a", SPECULATIVE, 2.0, 0.8, 0.5)], dict.fromkeys(FREE, 1.5))
    assert dear.layout.xaxis.range[0] <= 0


def test_a_map_without_a_loss_says_nothing_of_hollow_points() -> None:
    figure = map_figure([Point("a", SPECULATIVE, 0.1, 0.8, 2.0)], {})
    assert LOSES not in [line.name for line in figure.data]


def test_block_drafters_have_a_line_of_their_own() -> None:
    """Among others it is a further one; alone it is the line, which is lower, because a longer draft costs no more."""
    chain, block = (Point("a", SPECULATIVE, 0.3, 0.8, 2.0, one_pass) for one_pass in (False, True))
    alone, both, usual = (map_figure(points, {2: 1.1, 8: 1.6}) for points in ([block], [chain, block], [chain]))
    names = [name for name in map(words, both.layout.annotations) if "even" in name]
    assert names == ["break-even", "break-even,one pass"]
    assert names[1] not in map(words, alone.layout.annotations)
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


def test_a_saved_chart_and_the_style_have_the_colours_of_the_marks() -> None:
    """A chart is sent with the colours for light; the page puts those of the theme in their place, by their values."""
    saved = dict(re.findall(r'(\w+): "(#\w{6})"', (ASSETS / "lib" / "save_as.js").read_text()))
    light = dict(
        re.findall(r"--sd-chart-(\w+): (#\w{6})", (ASSETS / "styles" / "colours.css").read_text().split(".dark")[0])
    )
    assert saved == light == COLOURS
    rules = (ASSETS / "styles" / "tabs.css").read_text()
    for name, colour in COLOURS.items():
        red, green, blue = hex_to_rgb(colour)
        for kind in ("stroke", "fill"):
            rule = f'[style*="{kind}: rgb({red}, {green}, {blue})"] {{\n  {kind}: var(--sd-chart-{name}) !important;'
            assert rule in rules
    assert f'[style*="fill-opacity: {PAYS.split()[-1].rstrip(")")}"]' in rules


def test_marks_stand_out_from_the_dark_page() -> None:
    dark = dict(
        re.findall(r"--sd-chart-(\w+): (#\w{6})", (ASSETS / "styles" / "colours.css").read_text().split(".dark")[1])
    )
    assert dark.keys() == COLOURS.keys()
    assert all((luminance(colour) + 0.05) / (luminance(PAGES[1]) + 0.05) >= 4.5 for colour in dark.values())
