"""What the README shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)
ADDRESS = "http://127.0.0.1:7860"


def test_python_snippets_run() -> None:
    """Every Python block, in order, in one namespace; their assertions hold."""
    blocks = [block for block in BLOCKS if ADDRESS not in block]  # those need the page: test_api.py
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(block, namespace)
