"""The page's own files, and Plotly: where they lie and under which addresses the page serves them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import plotly
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
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


def plotly_address() -> str:
    """The address of Plotly from the page's root. The version in it replaces a cached copy after an update."""
    return f"{ROUTE}/plotly.min.js?{plotly.__version__}"


def routes() -> list[Route | Mount]:
    """The routes of the own files and of Plotly."""
    script = files("plotly") / "package_data" / "plotly.min.js"

    async def plotly_script(request: Request) -> FileResponse:
        return FileResponse(
            str(script), media_type="text/javascript", headers={"Cache-Control": "public, max-age=31536000, immutable"}
        )

    return [Route(f"/{ROUTE}/plotly.min.js", plotly_script), Mount(f"/{ROUTE}", _Fresh(directory=ASSETS))]
