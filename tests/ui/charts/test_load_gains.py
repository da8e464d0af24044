"""The chart of computed gains made from given numbers."""

from __future__ import annotations

import pytest

from specdec.report.load import LoadGain, best_gains
from specdec.ui.charts.load_gains import LIMIT, PAYS, gains_figure


def gain(context: int, at_once: int, gamma: int, *gains: float, limit: float | None = 2.0) -> LoadGain:
    return LoadGain(context, at_once, gamma, gains, limit)


GAINS = [
    gain(64, 1, 1, 1.4, 1.5, 1.6),
    gain(64, 1, 2, 1.2, 1.3, 1.9, limit=2.5),
    gain(64, 4, 1, 0.8, 0.9, 1.0),
    gain(256, 1, 1, 1.1, 1.2, 1.3),
    gain(256, 4, 1, 0.6, 0.7, 0.8),
]


def lines(figure, axis: str) -> list:
    return [each for each in figure.data if each.mode == "lines+markers" and each.xaxis == axis]


def names(figure, axis: str) -> list[str]:
    return [each.text[0].strip() for each in figure.data if each.mode == "markers+text" and each.xaxis == axis]


def test_a_line_has_the_median_and_the_spread_of_the_best_length() -> None:
    figure = gains_figure(best_gains(GAINS))
    by_context, by_load = lines(figure, "x"), lines(figure, "x2")
    assert [tuple(line.y) for line in by_context] == [(1.5, 1.2), (0.9, 0.7)]
    assert [tuple(line.y) for line in by_load] == [(1.5, 0.9), (1.2, 0.7)]
    assert names(figure, "x") == [PAYS, "1 at once", "4 at once"]
    assert names(figure, "x2") == [PAYS, "64 tokens", "256 tokens"]
    assert figure.layout.xaxis.ticktext == ("64", "256") and figure.layout.xaxis2.ticktext == ("1", "4")
    for line in (*by_context, *by_load):
        assert list(line.error_y.array) == pytest.approx([0.1, 0.1]) == list(line.error_y.arrayminus)
    assert by_load[0].text[0] == "64 tokens, 1 at once<br>\u03b3 1: 1.50x (1.40\u20131.60)<br>at the limit: 2.50x"


def test_the_limit_is_dashed_and_one_is_where_it_pays() -> None:
    figure = gains_figure(best_gains(GAINS))
    dashed = [each for each in figure.data if each.mode == "lines" and each.xaxis == "x2"]
    assert [tuple(each.y) for each in dashed] == [(2.5, 2.0), (2.0, 2.0)] and all(each.line.dash for each in dashed)
    assert [shape.y0 for shape in figure.layout.shapes] == [1, 1] == [shape.y1 for shape in figure.layout.shapes]
    assert LIMIT in figure.layout.xaxis2.title.text and "cached tokens" in figure.layout.xaxis.title.text
    unknown = gains_figure([gain(64, 1, 1, 1.5, limit=None), gain(64, 2, 1, 1.2, limit=None)])
    assert LIMIT not in unknown.layout.xaxis.title.text


def test_lines_at_one_value_stand_beside_each_other() -> None:
    first, second = lines(gains_figure(best_gains(GAINS)), "x")
    assert all(here < there for here, there in zip(first.x, second.x, strict=True))


def test_a_single_value_has_no_axis() -> None:
    one_context = gains_figure([each for each in best_gains(GAINS) if each.context == 64])
    assert one_context.layout.xaxis.title.text.startswith("Calls at once") and not lines(one_context, "x2")
    one_load = gains_figure([each for each in best_gains(GAINS) if each.at_once == 1])
    assert one_load.layout.xaxis.title.text.startswith("Context") and not lines(one_load, "x2")
    assert [tuple(line.y) for line in lines(gains_figure([GAINS[0]]), "x")] == [(1.5,)]
