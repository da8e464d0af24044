"""The page's own files: where they lie and under which addresses the page serves them."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from specdec.ui.static_page import ASSETS, STYLES, single_page

__all__ = ["ROUTE", "STYLES", "routes"]
ROUTE = "specdec-assets"


class _Fresh(StaticFiles):
    """Own files. Their names stay the same, so the browser asks each time whether they changed."""

    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200) -> Any:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "no-cache"
        return response


@cache
def _empty_page() -> str:
    return single_page([])


def _page_without_server(_: Request) -> HTMLResponse:
    """The page without a server and without a recording: the browser puts the shown race into it and saves it."""
    return HTMLResponse(_empty_page(), headers={"Cache-Control": "no-cache"})


def routes() -> list[BaseRoute]:
    """The routes of the own files."""
    return [Route(f"/{ROUTE}/static/page.html", _page_without_server), Mount(f"/{ROUTE}", _Fresh(directory=ASSETS))]
