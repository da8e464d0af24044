"""The web page: ``build`` a Gradio app for a pair, ``serve`` it."""

from specdec.ui.page import build
from specdec.ui.serving import serve

__all__ = ["build", "serve"]
