"""The place of a finished chart on the page, and the data that is sent there."""

from __future__ import annotations

import json

import gradio as gr
import plotly.graph_objects as go
from gradio.components.plot import PlotData


def figure_place(elem_id: str) -> gr.Plot:
    """A place for a chart, hidden until there is one."""
    return gr.Plot(None, show_label=False, visible=False, elem_id=elem_id, elem_classes="sd-figure")


def drawn(figure: go.Figure) -> PlotData:
    """A chart in the form that ``gr.Plot`` sends, without Plotly's toolbar.

    The caller makes it, so that the server's loop does not do so while the next call is measured.
    """
    whole = json.loads(figure.to_json()) | {"config": {"displayModeBar": False}}
    return PlotData(type="plotly", plot=json.dumps(whole))
