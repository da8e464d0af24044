"""Writes recorded races as a page that needs no server: it opens from a disk, from any host, and in a frame.

The page has the scripts and styles of the served one, each as one file or inside the HTML. It makes no request, and its
content security policy allows nothing but its own scripts and styles.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec.errors import InvalidInput
from specdec.facts import on_servers
from specdec.lanes.table import LANES, key_of
from specdec.measure.metrics import compute_metrics
from specdec.measure.result import started_of
from specdec.report.provenance import synthetic
from specdec.report.recording import lanes, shown_alone
from specdec.report.sentences import capital, plain
from specdec.report.trace import race_of
from specdec.ui.bundle import script
from specdec.ui.script_tables import definitions, lane_list

ASSETS = Path(__file__).parent / "assets"
SHIPPED = ASSETS / "recordings"
ENTRY = ASSETS / "static" / "static.js"
# The last one replaces what needs a wide screen.
STYLES = (
    "colours", "page", "pair_panel", "verdict", "texts", "replay", "rounds", "tabs", "how", "share", "narrow", "wide",
)  # fmt: skip
TITLE = "Speculative decoding, recorded"
# The recorded races that ship, by the file's name: a short name for a button, and what it shows, for a card.
RECORDED = {
    "vllm-cpu": ("vLLM servers", "A story from two vLLM servers"),
    "smollm2-letter": ("SmolLM2", "A letter corrected, with guesses copied from it"),
    "h200-embedded": ("H200 GPU", "A story on an H200 GPU"),
    "h200-synthetic-7b": ("7B timing", "The speed of a 7B model"),
}
SHARES = ("engine", "measured")  # what of a gain our loop makes, and what speculation; a card shows them


@dataclass(frozen=True)
class Recording:
    """A race for the page. ``name`` stands in its address, and ``text`` are the lines of a recording."""

    name: str
    text: str

    @property
    def verdict(self) -> dict[str, Any]:
        """Its last line."""
        found: dict[str, Any] = json.loads(self.text.splitlines()[-1])
        return found

    @property
    def begin(self) -> dict[str, Any]:
        """Its first line: the pair in words, the settings, and when it was recorded."""
        found: dict[str, Any] = json.loads(self.text.splitlines()[0])
        return found

    @property
    def started(self) -> dict[str, Any]:
        """The line that its first lane starts with: the machine, and the facts of the pair."""
        records = (json.loads(line) for line in self.text.splitlines())
        return next(record for record in records if record["event"] == "started")

    @property
    def machine(self) -> str:
        """Its GPU, else its processor."""
        machine = self.started["machine"]
        return str(machine.get("gpu") or machine.get("cpu") or "machine not recorded")

    @property
    def speeds(self) -> dict[str, float]:
        """Tokens per second of each lane of the run that is shown, by the lane's key."""
        found = [(started_of(events), compute_metrics(events)) for events in lanes(shown_alone(self.text).splitlines())]
        keys = [row.key for row in LANES]
        return {
            key_of(started.lane, started.gamma, keys): measured.tokens_per_second
            for started, measured in found
            if measured and measured.tokens_per_second
        }

    @property
    def card(self) -> dict[str, object]:
        """What the page shows of it before it is opened, and its lines, packed."""
        begin, verdict, pair = self.begin, self.verdict, self.started["pair"]
        label = synthetic(pair)
        return {
            "name": self.name,
            "title": RECORDED.get(self.name, ("", ""))[1],
            "sentence": verdict["sentence"],
            "factor": verdict["factor"],
            "baseline": plain(on_servers(pair)),
            "synthetic": label and capital(label),
            "about": verdict["about"],
            "runs": verdict["runs"],
            "doubts": [note["text"] for note in verdict["notes"] if note["kind"] in verdict["doubts"]],
            "gain": verdict["gain"],
            "engine": verdict["engine"],
            "speeds": self.speeds if verdict["rates"] else None,
            "figures": [figure for figure in verdict["figures"] or () if figure.get("name") in SHARES],
            "pair": begin["pair"].removesuffix(f" \u00b7 {label}"),
            "machine": self.machine,
            "at": begin["at"],
            "packed": base64.b64encode(gzip.compress(self.text.encode(), mtime=0)).decode("ascii"),
        }


def recording_in(path: Path) -> Recording:
    """The race in a file. Raises ``InvalidInput`` with the file's name and what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
        return Recording(path.stem, race_of(text, path.stat().st_mtime))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text. Give a recording: JSON lines.") from error
    except InvalidInput as error:
        raise InvalidInput(f"{path} cannot be shown. {error}") from error


def shipped_recordings() -> list[Recording]:
    """The races that ship with the package, recorded on machines that not everybody has."""
    found = [recording_in(path) for path in sorted(SHIPPED.glob("*.jsonl"))]
    return sorted(found, key=lambda one: bool(one.verdict["about"]))  # uncertain ones last


def write_page(folder: Path, recordings: Sequence[Recording]) -> Path:
    """Write the page as a folder: ``index.html`` with a script and a style beside it. Returns the path of the HTML."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page.js").write_text(script(ENTRY), encoding="utf-8")
    (folder / "page.css").write_text(styles(), encoding="utf-8")
    page = folder / "index.html"
    page.write_text(_page(recordings, '<link rel="stylesheet" href="page.css">', '<script src="page.js"></script>'))
    return page


def single_page(recordings: Sequence[Recording]) -> str:
    """The page as one HTML file."""
    return _page(recordings, f"<style>{styles()}</style>", f"<script>{script(ENTRY)}</script>")


def _page(recordings: Sequence[Recording], style: str, code: str) -> str:
    titles = [one.verdict["sentence"] for one in recordings]
    title = TITLE if len(titles) != 1 else "specdec: a recorded race"
    about = titles[0] if len(titles) == 1 else f"{len(titles)} recorded races of speculative decoding, round by round."
    allowed = " ".join([_allowed("script", code), _allowed("style", style)])
    return _HTML.format(
        title=html.escape(title),
        about=html.escape(about),
        policy=f"default-src 'none'; {allowed} img-src data: blob:; base-uri 'none'; form-action 'none'",
        icon=base64.b64encode((ASSETS / "icon.svg").read_bytes()).decode("ascii"),
        style=style,
        lanes=_data(lane_list()),
        definitions=_data(definitions()),
        recordings=_data(json.dumps([one.card for one in recordings])),
        code=code,
    )


def _allowed(kind: str, element: str) -> str:
    """The policy for the page's one script or style: the file beside it, or what stands in it, by its hash."""
    if not (inside := re.fullmatch(rf"<{kind}>(.*)</{kind}>", element, re.DOTALL)):
        return f"{kind}-src 'self' file:;"
    digest = base64.b64encode(hashlib.sha256(inside[1].encode()).digest()).decode("ascii")
    return f"{kind}-src 'sha256-{digest}';"


def _data(text: str) -> str:
    """JSON that can stand in a script element."""
    return text.replace("<", "\\u003c")


def page_styles() -> str:
    """The styles that the served page has too."""
    return "\n".join((ASSETS / "styles" / f"{name}.css").read_text(encoding="utf-8") for name in STYLES)


def styles() -> str:
    """All styles of the page."""
    before, after = ((ASSETS / "static" / f"{name}.css").read_text(encoding="utf-8") for name in ("base", "static"))
    return "\n".join([before, page_styles(), after])


_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<meta name="description" content="{about}">
<meta property="og:type" content="website">
<meta property="og:title" content="{title}">
<meta property="og:description" content="{about}">
<link rel="icon" href="data:image/svg+xml;base64,{icon}">
{style}
</head>
<body class="sd-alone">
<script type="application/json" id="sd-lanes">{lanes}</script>
<script type="application/json" id="sd-definitions">{definitions}</script>
<script type="application/json" id="sd-recordings">{recordings}</script>
<noscript>This page replays recorded races. It needs JavaScript, and it asks no server for anything.</noscript>
{code}
</body>
</html>
"""
