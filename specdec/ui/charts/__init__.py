"""Plotly figures and the maps of costs."""
