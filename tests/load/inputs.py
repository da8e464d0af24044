"""Thousands of bad inputs for every function of the page, by name and by number, and for all readers of files."""

from __future__ import annotations

import asyncio
import gzip
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr
from hypothesis import strategies as st

from specdec.errors import SpecdecError
from specdec.events import SamplingParams
from specdec.lanes.table import lane_configs
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem, read_prompts
from specdec.measure.results.file import ResultsFile
from specdec.report import recording
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.jobs.race_settings import from_recording
from specdec.ui.tabs.race_form import FORM_FIELDS, RaceForm
from tests.load.faults import NEXT, SECRETS
from tests.load.runs import Alone, decoded, text_of
from tests.load.served import Served
from tests.load.strange import ANYTHING, LEAVES, drawn, inputs_like
from tests.load.table import Report
from tests.load.tiny import save_pair
from tests.load.web import API, Heard, Web, an_address, new_session, take

ALL = 2000
AT_ONCE = 4
HANG = 5.0  # seconds
GRACE = 60.0  # seconds to wait for the answer to one input
OUTPUTS = 3  # of a running job, after which the visitor leaves


@dataclass
class Found:
    """What many bad requests led to."""

    hang: float
    count: int = 0
    slowest: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, what: str, heard: Heard, seconds: float) -> None:
        self.count, self.slowest = self.count + 1, max(self.slowest, seconds)
        outcome = (
            str(heard.status) if heard.status != 200 else {True: "ran", False: "error", None: "left"}[heard.success]
        )
        self.outcomes[outcome] += 1
        if heard.success is False and heard.status == 200 and not heard.error:
            self.outcomes["of them without a sentence"] += 1
        problem = (
            f"status {heard.status}" if heard.status >= 500
            else "a secret" if SECRETS.search(heard.text)
            else f"{seconds:.1f} s" if seconds > self.hang
            else ""
        )  # fmt: skip
        if problem:
            self.bad.append(f"{problem}: {what[:300]} -> {heard.text[-300:]}")


def inputs(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = save_pair(folder)
        alone = Alone(*pair)
        for public in (False, True):
            with Served(*pair, public=public) as page:
                asyncio.run(_on(page, public, alone, report))
        _loaders(report, folder, alone)


async def _on(page: Served, public: bool, alone: Alone, report: Report) -> None:
    which = "public" if public else "local"
    async with Web(page.address) as web:
        found = await attack(web, ALL // 2, public)
        heard = await decoded(web, NEXT, an_address() if public else None)
        well, health = alone.is_right(NEXT, text_of(heard)), await web.health()
    print(*found.bad[:10], sep="\n")
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(found.outcomes.items()))
    measured = (
        f"{told}; slowest {found.slowest:.1f} s; {len(found.bad)} bad; then a run is {'right' if well else 'WRONG'}"
    )
    asked = f"no 5xx, no traceback or path, no hang over {HANG:.0f} s, a right run afterwards"
    report.note(
        f"{found.count} bad inputs to every function, {which} page",
        asked,
        measured,
        well and not found.bad and health["ok"],
    )


async def attack(web: Web, count: int, public: bool, hang: float = HANG) -> Found:
    """Send ``count`` bad inputs, spread over all functions of the page. ``hang``: seconds until a first answer."""
    found, places = Found(hang), asyncio.Semaphore(AT_ONCE)
    functions = web.functions.rows
    each = max(1, count // (len(functions) + 1))

    async def one(work: Callable[[], Any], what: str) -> None:
        async with places:
            began = time.monotonic()
            try:
                async with asyncio.timeout(GRACE):
                    heard = await work()
            except TimeoutError:
                heard = Heard(error="nothing came")
            found.add(what, heard, (heard.first or time.monotonic()) - began)

    jobs = []
    for number in functions:
        for data in drawn(inputs_like(_good(web, number)), each):
            what = f"{functions[number]['api_name']} ({number}): {json.dumps(data)}"
            jobs.append(one(lambda n=number, d=data: _ask(web, n, d, an_address() if public else None), what))
    for body in drawn(_bodies(), each):
        jobs.append(one(lambda b=body: _send(web, b, an_address() if public else None), json.dumps(body)))
    await asyncio.gather(*jobs)
    return found


def _good(web: Web, function: int) -> list[Any]:
    """Inputs that the function accepts. A load names a missing pair, because a new pair would change later runs."""
    load = "sd-load" in web.functions.elements and function == web.functions.pressed("sd-load")
    other = {"sd_preset": "Another pair", "sd_target": "/nowhere", "sd_draft": "/nowhere"}
    return web.functions.values(function, **(other if load else {}))


@st.composite
def _bodies(draw: Any) -> Any:
    """Requests that are malformed as a whole: a path and a body."""
    names = ("data", "fn_index", "session_hash", "event_id", "api_name", "event_data", "trigger_id", "batched")
    odd = st.integers(0, 9).flatmap(lambda kind: LEAVES if kind else ANYTHING)
    body = {name: draw(odd) for name in names if draw(st.booleans())}
    path = draw(st.sampled_from([f"{API}/queue/join", f"{API}/run/predict", f"{API}/cancel", f"{API}/reset"]))
    return [path, draw(ANYTHING) if draw(st.integers(0, 5)) == 0 else body]


async def _send(web: Web, body: list[Any], forwarded: str | None) -> Heard:
    answer = await web.post(*body, forwarded)
    return Heard(status=answer.status_code, success=answer.status_code == 200, raw=[answer.text])


async def _ask(web: Web, function: int, data: Any, forwarded: str | None) -> Heard:
    """Call a function through the queue, or directly if it has none. A running job is left after some outputs."""
    session, heard = new_session(), Heard()
    if not web.functions.rows[function]["queue"]:
        body = {"data": data, "fn_index": function, "session_hash": session}
        return await _send(web, [f"{API}/run/predict", body], forwarded)
    answer = await web.join(session, function, data, forwarded)
    heard.raw.append(answer.text)
    if answer.status_code != 200:
        heard.status = answer.status_code
        return heard
    async with aclosing(web.messages(session, forwarded)) as messages:
        async for message in messages:
            heard.raw.append(json.dumps(message))
            if take(heard, message) or len(heard.outputs) == OUTPUTS:
                break
    return heard


def _loaders(report: Report, folder: Path, alone: Alone) -> None:
    """Read files and links of a stranger in this process: each is accepted, or refused in a sentence."""
    plan = Plan((PromptItem("a", "a", "Once"),), lane_configs(["generate"], [2]), SamplingParams(32, seed=0), 1)
    with gr.Blocks():
        panel = RaceForm(PUBLIC)
    results = folder / "x.results.jsonl"
    results_file = ResultsFile(results, alone.pair, plan)
    results_file.begin([])
    head = results.read_text().splitlines()[0]
    recorded = [json.loads(line) for line in _recorded(alone)]

    def of_file(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
        def from_bytes(content: bytes) -> Any:
            (folder / "x").write_bytes(content)
            return read(folder / "x")

        return from_bytes

    def of_results(content: bytes) -> Any:
        results.write_bytes(head.encode() + b"\n" + content)
        return results_file.read()

    readers: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "recording.lanes": (recording.lanes, st.one_of(_changed(recorded), _texts())),
        "recording.token_bytes": (recording.token_bytes, st.one_of(_changed(recorded), _texts())),
        "prompts.read_prompts": (of_file(read_prompts), _contents()),
        "results_file.read": (of_results, _contents()),
        "results_file.read, head": (of_file(lambda path: ResultsFile(path, alone.pair, plan).read()), _contents()),
        "RaceForm.restore": (lambda link: panel.restore(link, False), _links()),
        "from_recording": (lambda settings: from_recording(settings, PUBLIC), _links()),
        "RaceForm.read": (lambda values: panel.read(*values), st.tuples(*[ANYTHING] * len(FORM_FIELDS))),
    }
    for name, (read, strategy) in readers.items():
        outcomes, bad, slowest = Counter[str](), [], 0.0
        for value in drawn(strategy, ALL // 10):
            began = time.monotonic()
            try:
                read(value)
                outcomes["read"] += 1
            except SpecdecError:
                outcomes["refused"] += 1
            except Exception as error:
                bad.append(f"{type(error).__name__}: {str(error)[:100]} for {value!r:.200}")
            slowest = max(slowest, time.monotonic() - began)
        print(*bad[:5], sep="\n")
        raised = f"{len(bad)} raised {bad[:1]}" if bad else "none raised"
        measured = f"{outcomes['read']} read, {outcomes['refused']} refused, {raised}"
        ok = not bad and slowest <= HANG
        report.note(
            f"{ALL // 10} bad inputs to {name}",
            "read or refused in a sentence",
            f"{measured}; slowest {slowest:.1f} s",
            ok,
        )


def _recorded(alone: Alone) -> Iterator[str]:
    import specdec

    recorder = recording.Recorder(alone.pair.tokenizer)
    params = specdec.SamplingParams(8)
    return (recorder.line(event) for event in specdec.speculative(alone.pair, NEXT.prompt, gamma=5, params=params))


@st.composite
def _changed(draw: Any, records: list[dict[str, Any]]) -> list[str]:
    """A recording with some values replaced and some lines left out."""
    lines = []
    for record in records:
        new = {name: draw(ANYTHING) if draw(st.integers(0, 9)) == 0 else value for name, value in record.items()}
        if draw(st.integers(0, 9)):
            lines.append(json.dumps(new))
    return lines


def _texts() -> Any:
    lines = st.one_of(ANYTHING.map(json.dumps), st.text(st.characters(), max_size=50))
    return st.lists(lines, max_size=5)


@st.composite
def _contents(draw: Any) -> bytes:
    """Contents of files that should hold JSON lines: bad ones and some good ones."""
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(st.binary(max_size=200))
    names = ("name", "prompt", "task_id", "turns", "question_id", "category", "token_ids", "metrics", "run", "lane")
    some = st.dictionaries(st.sampled_from(names), st.one_of(LEAVES, ANYTHING), max_size=6)
    lines = draw(st.lists(st.one_of(some, ANYTHING), max_size=5))
    content = "\n".join(map(json.dumps, lines)).encode()
    if kind == 1:
        packed = gzip.compress(content)
        return packed[: draw(st.integers(2, len(packed)))]
    return content


def _links() -> Any:
    names = st.one_of(
        st.sampled_from(["prompt", "gamma", "tokens", "temperature", "seed", "top_k", "top_p", "min_p", "penalty",
                         "accept_top_k", "block", "ignore_eos", "chat", "lanes"]),
        st.text(max_size=8),
    )  # fmt: skip
    return st.dictionaries(names, ANYTHING, max_size=8)
