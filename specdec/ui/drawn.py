"""A finished chart: its place on the page, and what is sent there."""

from __future__ import annotations

import json

import gradio as gr
import plotly.graph_objects as go
from gradio.components.plot import PlotData


def figure_place(elem_id: str) -> gr.Plot:
    """Hidden until there is a chart."""
    return gr.Plot(None, show_label=False, visible=False, elem_id=elem_id, elem_classes="sd-figure")


def drawn(figure: go.Figure) -> PlotData:
    """A chart as ``gr.Plot`` sends it, without Plotly's toolbar. Made by who asks, so that the server's loop need not
    make it while the next call is measured."""
    whole = json.loads(figure.to_json()) | {"config": {"displayModeBar": False}}
    return PlotData(type="plotly", plot=json.dumps(whole))
