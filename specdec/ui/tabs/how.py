"""The tab that explains speculative decoding with the shown race; ``assets/explain/how.js`` draws it."""

from __future__ import annotations

import gradio as gr


def how_tab(script: str) -> None:
    """Built inside a ``gr.Tab``. ``script`` is a JavaScript expression for the address of ``how.js``."""
    gr.HTML(
        "",
        html_template="",
        js_on_load=f"import({script}).then((how) => how.mount(element));",
        apply_default_css=False,
        elem_id="sd-how",
    )
