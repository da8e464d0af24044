"""The page's own files as they are served."""

from __future__ import annotations

import re

from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdec.ui.assets import ASSETS, ROUTE, SCRIPT, STYLE, routes
from specdec.ui.static_page import STYLES

IMPORTED = re.compile(r'^import \{[^}]*\} from "([^"]+)";', re.MULTILINE)
DECLARED = re.compile(r"^export (?:async function|function|class|const) (\w+)", re.MULTILINE)


def test_what_every_visit_needs_comes_in_one_script_and_one_style() -> None:
    """A module that it holds is two lines that take its exports from there, so that each exists once in the page."""
    client = TestClient(Starlette(routes=routes()))
    script, style = (client.get(f"/{path}") for path in (SCRIPT, STYLE))
    assert not IMPORTED.search(script.text) and script.headers["content-type"].startswith("text/javascript")
    for answer in (script, style):
        again = client.get(answer.url, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304 and not again.content
    for name in STYLES:
        assert (ASSETS / "styles" / f"{name}.css").read_text() in style.text
    waiting, seen = [ASSETS / "live.js"], set()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        source = path.read_text()
        served = client.get(f"/{ROUTE}/{path.relative_to(ASSETS).as_posix()}").text
        taken = re.fullmatch(
            r'import \{ (m\d+) \} from "([./]+first-view\.js)";\nexport const \{ (.*) \} = \1;\n', served
        )
        assert taken, path.name
        assert (path.parent / taken[2]).resolve() == (ASSETS / "first-view.js").resolve()
        assert set(DECLARED.findall(source)) <= set(taken[3].split(", ")), path.name
        assert re.search(rf"^export \{{.*\b{taken[1]}\b.*\}};$", script.text, re.MULTILINE)
        waiting += {(path.parent / name).resolve() for name in IMPORTED.findall(source)} - seen
    assert len(seen) > 40


def test_what_one_visit_in_many_needs_comes_when_it_is_asked_for() -> None:
    client = TestClient(Starlette(routes=routes()))
    assert client.get(f"/{ROUTE}/explain/how.js").text == (ASSETS / "explain" / "how.js").read_text()
