"""A finished chart as ``gr.Plot`` sends it."""

from __future__ import annotations

import json

import plotly.graph_objects as go
from gradio.components.plot import PlotData


def drawn(figure: go.Figure) -> PlotData:
    """A chart as ``gr.Plot`` sends it, without Plotly's toolbar. Made by who asks, so that the server's loop need not
    make it while the next call is measured."""
    whole = json.loads(figure.to_json()) | {"config": {"displayModeBar": False}}
    return PlotData(type="plotly", plot=json.dumps(whole))
