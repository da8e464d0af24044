"""The page's own files: where they lie and under which addresses the page serves them.

A page asks for many small files, one after another where one imports the next. So what every visit needs comes in one
script and one style. A module of that script is served as two lines that take its exports from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from specdec.ui.bundle import Bundle
from specdec.ui.static_page import ASSETS, STYLES, single_page

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


@cache
def _bundle() -> Bundle:
    return Bundle([ASSETS / name for name in _FIRST])


@cache
def _script() -> str:
    names = ", ".join(_bundle().constants.values())
    return f"{_bundle().text}export {{ {names} }};\n"


@cache
def _style() -> str:
    return "\n".join((ASSETS / "styles" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)


@cache
def _module(path: Path) -> str:
    up = "../" * (len(path.relative_to(ASSETS).parts) - 1) or "./"
    constant = _bundle().constants[path]
    taken = f"export const {{ {', '.join(_bundle().exports[path])} }} = {constant};\n"
    return f'import {{ {constant} }} from "{up}{Path(SCRIPT).name}";\n{taken}'


def _made(make: Callable[[], str], kind: str) -> Callable[[Request], Awaitable[Response]]:
    """Answers with what ``make`` gives, which stays as it was at the first request."""

    async def answer(request: Request) -> Response:
        text = make()
        headers = {"Cache-Control": "no-cache", "ETag": f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(text, media_type=kind, headers=headers)

    return answer


def routes() -> list[BaseRoute]:
    """The routes of the own files."""
    script = "text/javascript"
    modules = [
        Route(f"/{ROUTE}/{path.relative_to(ASSETS).as_posix()}", _made(partial(_module, path), script))
        for path in _bundle().constants
        if _bundle().exports[path]
    ]
    return [
        Route(f"/{SCRIPT}", _made(_script, script)),
        Route(f"/{STYLE}", _made(_style, "text/css")),
        *modules,
        Route(f"/{ROUTE}/static/page.html", _page_without_server),
        Mount(f"/{ROUTE}", _Fresh(directory=ASSETS)),
    ]
