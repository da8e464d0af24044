"""A page of one chart: everything is inside, and texts stay texts."""

from __future__ import annotations

import re

import plotly.graph_objects as go

from specdec.report.figure_table import FigureTable
from specdec.ui.charts.chart_page import chart_page

HOSTILE = "</script><img src=x onerror=alert(1)>"


def test_a_page_has_all_in_one_file() -> None:
    table = FigureTable("Gains", ("At once", "gain"), [("1", "1.50x")], range(1, 2))
    page = chart_page("Under load", go.Figure(go.Scatter(y=[1.5])), "Computed.", ["It pays."], table)
    assert "<h1>Under load</h1>" in page and ">Computed.</p>" in page and ">It pays.</p>" in page and "1.50x" in page
    assert "Plotly.newPlot" in page and not re.search(r"<(script|link|img)[^>]+(src|href)=", page)


def test_texts_stay_texts() -> None:
    table = FigureTable(HOSTILE, (HOSTILE,), [(HOSTILE,)], range(0))
    page = chart_page(HOSTILE, go.Figure(go.Scatter(y=[1], name=HOSTILE)), HOSTILE, [HOSTILE], table)
    assert HOSTILE not in page and "<img src=x" not in page
