"""The page's own files: where they lie and under which addresses the page serves them.

A page asks for many small files, one after another where one imports the next. So what every visit needs comes in one
script and one style. A module of that script is served as two lines that take its exports from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from specdec.ui.bundle import Bundle
from specdec.ui.static_page import ASSETS, page_styles, single_page

__all__ = ["ROUTE", "SCRIPT", "STYLE", "routes"]
ROUTE = "specdec-assets"
SCRIPT, STYLE = f"{ROUTE}/first-view.js", f"{ROUTE}/first-view.css"
# What Gradio imports while it builds the page; ``live.js`` imports most others.
_FIRST = (
    "live.js", "lib/server.js", "share/results.js", "examples.js", "lib/errors.js", "lib/tabs.js", "lib/files.js",
    "lib/address.js", "share/session_state.js", "share/link.js",
)  # fmt: skip


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


def _script(bundle: Bundle) -> str:
    return f"{bundle.text}export {{ {', '.join(bundle.constants.values())} }};\n"


def _module(bundle: Bundle, path: Path) -> str:
    up = "../" * (len(path.relative_to(ASSETS).parts) - 1) or "./"
    constant = bundle.constants[path]
    taken = f"export const {{ {', '.join(bundle.exports[path])} }} = {constant};\n"
    return f'import {{ {constant} }} from "{up}{Path(SCRIPT).name}";\n{taken}'


def _made(text: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Answers with a text that stays the same while the page runs."""
    headers = {"Cache-Control": "no-cache", "ETag": f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(text, media_type=kind, headers=headers)

    return answer


def routes() -> list[BaseRoute]:
    """The routes of the own files."""
    bundle, script = Bundle([ASSETS / name for name in _FIRST]), "text/javascript"
    modules = [
        Route(f"/{ROUTE}/{path.relative_to(ASSETS).as_posix()}", _made(_module(bundle, path), script))
        for path, names in bundle.exports.items()
        if names
    ]
    return [
        Route(f"/{SCRIPT}", _made(_script(bundle), script)),
        Route(f"/{STYLE}", _made(page_styles(), "text/css")),
        *modules,
        Route(f"/{ROUTE}/static/page.html", _page_without_server),
        Mount(f"/{ROUTE}", _Fresh(directory=ASSETS)),
    ]
