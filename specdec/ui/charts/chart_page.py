"""Writes a chart with its table and sentences as a page in one file, which needs no server and makes no request."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from specdec.report.figure_table import FigureTable
from specdec.ui.bundle import script
from specdec.ui.html import paragraph, save_chart, table_html
from specdec.ui.static_page import ASSETS, styles


def chart_page(title: str, figure: go.Figure, caption: str, said: Sequence[str], table: FigureTable) -> str:
    """The page: its title, the chart with its caption and with buttons that save it, sentences, and the table."""
    return _HTML.format(
        title=escape(title),
        style=styles(),
        chart=figure.to_html(full_html=False, config={"displayModeBar": False}),
        save=save_chart(),
        caption=paragraph(caption),
        said="".join(map(paragraph, said)),
        table=table_html(table),
        code=script(ASSETS / "static" / "chart.js"),
    )


_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body class="sd-chartPage">
<h1>{title}</h1>
<section>
<div class="sd-figure" id="sd-chart">{chart}</div>
<div class="block sd-saveChart">{save}</div>
{caption}
</section>
{said}
{table}
<script>{code}</script>
</body>
</html>
"""
