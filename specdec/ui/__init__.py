"""The web page: ``build`` a Gradio app for a pair, ``serve`` it."""

from specdec.ui.page import build
from specdec.ui.server.launch import serve, serve_until_stopped

__all__ = ["build", "serve", "serve_until_stopped"]
