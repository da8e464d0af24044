"""The page's own files: where they lie and under which addresses the page serves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

ASSETS = Path(__file__).parent / "assets"
ROUTE = "specdec-assets"
# The last one replaces what needs a wide screen.
STYLES = ("colours", "page", "verdict", "texts", "replay", "rounds", "tabs", "how", "share", "narrow")


class _Fresh(StaticFiles):
    """Own files. Their names stay the same, so the browser asks each time whether they changed."""

    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Any:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache"
        return response


def routes() -> list[Mount]:
    """The routes of the own files."""
    return [Mount(f"/{ROUTE}", _Fresh(directory=ASSETS))]
