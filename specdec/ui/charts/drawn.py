"""The place of a finished chart on the page, and the data that is sent there."""

from __future__ import annotations

import json

import gradio as gr
import plotly.graph_objects as go
from gradio.components.plot import PlotData

from specdec.ui import html


def figure_place(elem_id: str) -> gr.Plot:
    """A place for a chart, hidden until there is one, with buttons that save it; ``lib/save_as.js`` answers them."""
    place = gr.Plot(None, show_label=False, visible=False, elem_id=elem_id, elem_classes="sd-figure")
    gr.HTML(html.save_chart(), elem_classes="sd-saveChart", apply_default_css=False)
    return place


def drawn(figure: go.Figure) -> PlotData:
    """A chart in the form that ``gr.Plot`` sends, without Plotly's toolbar.

    The caller makes it, so that the server's loop does not do so while the next call is measured.
    """
    whole = json.loads(figure.to_json()) | {"config": {"displayModeBar": False}}
    return PlotData(type="plotly", plot=json.dumps(whole))
