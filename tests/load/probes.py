"""What a stranger may try on a public page. All of it must be refused, and nothing may run."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.load.faults import NEXT, SECRETS, said
from tests.load.runs import Alone, Wanted, decoded, text_of
from tests.load.served import Served
from tests.load.table import Report
from tests.load.tiny import save_pair
from tests.load.web import API, Heard, Web, an_address, new_session

PATIENCE = 60  # seconds until jobs that nobody listens to have ended
ME = str(Path(__file__).parents[2])
FILES = [
    *(f"{way}{file}" for way in (f"{API}/file=", f"{API}/file/", "/file=", "/file/", "/static/", "/assets/",
                                 "/specdec-assets/", "/svelte/", f"{API}/deep_link=", f"{API}/stream/")
      for file in ("/etc/passwd", "../../../../../../etc/passwd", "..%2f..%2f..%2fetc/passwd", "%2e%2e/%2e%2e/app.py",
                   "app.py", "specdec/ui/page.py", "../page.py", f"{ME}/app.py", "/proc/self/environ",
                   "/tmp/gradio/", "http://127.0.0.1/", "http://169.254.169.254/latest/meta-data/")),
    f"{API}/proxy=http://169.254.169.254/latest/meta-data/", f"{API}/proxy=https://x.hf.space/", "/monitoring/summary",
    f"{API}/openapi.json", f"{API}/mcp/sse", "/docs", f"{API}/dev/reload", f"{API}/token", f"{API}/component_server",
]  # fmt: skip
PAST_THE_QUEUE = (
    "run/predict", "run/predict/", "api/predict", "api/predict/", "run/decode", "api/decode", "call/decode",
    "call/v2/decode", "run/race", "api/race", "call/race",
)  # fmt: skip
UPLOADS = ("upload", "upload?upload_id=x", "upload_progress?upload_id=x")
FORGED = ["", "a b", "../x", "a/b", "x" * 65, "\u00e9", 7, True, ["a"], {"a": 1}, 1e300]


def probes(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = save_pair(Path(folder))
        with Served(*pair, public=True) as page, snare() as (trap, caught):
            files(page.address, report.note)
            asyncio.run(on_functions(page.address, trap, caught, report.note))
            asyncio.run(_jobs(page, Alone(*pair), report))


@contextmanager
def snare() -> Iterator[tuple[str, list[str]]]:
    """A server on a private address, and the paths that anybody fetched from it."""
    caught: list[str] = []

    class Noted(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            caught.append(self.path)
            self.send_error(404)

        do_HEAD = do_GET

    server = HTTPServer(("127.0.0.1", 0), Noted)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", caught
    finally:
        server.shutdown()
        server.server_close()


def fetched(address: str, path: str) -> tuple[int, str]:
    """The status and text of a GET of a path as it is written: usual clients normalize the path first."""
    connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=30)
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.putheader("X-Forwarded-For", an_address())
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(errors="replace")
    connection.close()
    return found


def files(address: str, note: Any) -> None:
    open_ = [path for path in FILES if (found := fetched(address, path))[0] not in (400, 404) or _tells(found[1])]
    note(f"{len(FILES)} addresses of files and inner pages", "all 404", f"{len(open_)} open {open_[:3]}", not open_)


def _tells(text: str) -> bool:
    return "root:" in text or "import " in text or bool(SECRETS.search(text))


async def on_functions(address: str, trap: str, caught: list[str], note: Any, every: int = 1) -> None:
    """Run the probes of the page's functions; ``note(done, asked, measured, ok)`` receives each result.

    Of many similar requests only every ``every``-th one is sent.
    """
    async with Web(address) as web:
        await _urls_as_files(web, trap, caught, every, note)
        await _uploads(web, 1000 // every, note)
        await _past_the_queue(web, every, note)
        for probe in (_large, _forged, _pair):
            await probe(web, note)
        await _rest(web)  # what a probe started by chance would fill the line, whose sentence is another one
        await _limits(web, note)


async def _rest(web: Web) -> None:
    """Wait until no job waits or runs: each ends soon, because nobody listens to it."""
    end = time.monotonic() + PATIENCE
    while (found := await web.health(an_address()))["running"] is not None or found["waiting"]:
        assert time.monotonic() < end, found
        await asyncio.sleep(0.2)


async def _urls_as_files(web: Web, trap: str, caught: list[str], every: int, note: Any) -> None:
    """A file's record in every input of every function, with the meta that Gradio looks for and without."""
    marks = ({"meta": {"_type": "gradio.FileData"}}, {}, {"orig_name": "x", "is_stream": True})
    places = ({"path": f"{trap}/a", "url": f"{trap}/b"}, {"path": "/etc/passwd"}, {"path": ME})
    functions = web.functions.rows.items()
    cells = [(number, at) for number, row in functions for at in range(len(row["inputs"]))]
    asked = [*itertools.product(cells, marks, places)][::every]
    bad = 0
    for count, ((number, at), mark, place) in enumerate(asked):
        values = web.functions.values(number)
        values[at] = [place | mark] if count % 2 else place | mark
        answer = await web.join(new_session(), number, values, an_address())
        bad += answer.status_code >= 500 or ("meta" in mark and answer.status_code != 400) or _tells(answer.text)
    await asyncio.sleep(1)
    measured = f"{bad} taken or failed, {len(caught)} fetched"
    note(
        f"{len(asked)} files as URLs and paths in every input",
        "refused, nothing fetched",
        measured,
        not (bad or caught),
    )


async def _uploads(web: Web, count: int, note: Any) -> None:
    one = an_address()
    visitors = [*(an_address() for _ in range(10)), *(one for _ in range(count))]
    statuses = Counter([await _uploaded(web, UPLOADS[at % 3], 1000, who) for at, who in enumerate(visitors)])
    taken = statuses.keys() - {"404", "429", "hung up"}
    note(f"{len(visitors)} uploads", "none is taken", _counted(statuses), not taken)


async def _uploaded(web: Web, path: str, size: int, visitor: str) -> str:
    headers = {"X-Forwarded-For": visitor}
    try:
        answer = await web.http.post(f"{API}/{path}", files={"files": ("x.jsonl", b"x" * size)}, headers=headers)
        return str(answer.status_code)
    except httpx.TransportError:
        return "hung up"  # the page answers before it has read all of it, and closes


async def _large(web: Web, note: Any) -> None:
    function, statuses = web.functions.named("decode"), Counter[str]()
    for size in (3_000_001, 10_000_000, 50_000_000):
        try:
            answer = await web.join(new_session(), function, ["x" * size], an_address())
            statuses[str(answer.status_code)] += 1
        except httpx.TransportError:
            statuses["hung up"] += 1
    note("requests of 3, 10 and 50 MB", "none is taken", _counted(statuses), not statuses.keys() - {"413", "hung up"})


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))


async def _forged(web: Web, note: Any) -> None:
    function, statuses = web.functions.named("decode"), []
    for name in FORGED:
        statuses.append((await web.join(name, function, NEXT.inputs, an_address())).status_code)
        query = {"session_hash": str(name)}
        if str(name) not in ("7", "True", "1e+300"):
            answer = await web.http.get(f"{API}/queue/data", params=query, headers={"X-Forwarded-For": an_address()})
            statuses.append(answer.status_code)
    note(f"{len(FORGED)} forged sessions", "400", str(sorted(set(statuses))), set(statuses) == {400})


async def _past_the_queue(web: Web, every: int, note: Any) -> None:
    """Try to call each function that does work for a visitor without going through the queue, in every possible way."""
    taken, ran = [], 0
    queued = [number for number, row in web.functions.rows.items() if row["backend_fn"] and row["queue"]]
    extras = ({}, {"batched": True}, {"event_id": "x"}, {"simple_format": True})
    asked = [*itertools.product(PAST_THE_QUEUE, queued, extras)][::every]
    for path, number, extra in asked:
        is_decode = web.functions.rows[number]["api_name"] == "decode"
        values = NEXT.inputs if is_decode else web.functions.values(number)
        body = {"data": values, "fn_index": number, "session_hash": new_session()}
        answer = await web.post(f"{API}/{path}", body | extra, an_address())
        if answer.status_code == 200 or answer.status_code >= 500 or _tells(answer.text):
            taken.append((path, number, extra, answer.status_code, answer.text[:100]))
        ran += (await web.health(an_address()))["running"] is not None
    measured = f"{len(taken)} taken {taken[:2]}, {ran} ran"
    note(f"{len(asked)} requests past the queue", "refused, nothing runs", measured, not taken and not ran)


async def _pair(web: Web, note: Any) -> None:
    found = [name for name in ("sd-load", "sd-check") if name in web.functions.elements]
    calls = [row["api_name"] for row in web.functions.rows.values() if row["api_name"] in ("load", "look", "change")]
    note(
        "a change of the pair",
        "no such function or button",
        f"{found or 'no'} buttons, {calls or 'no'} functions",
        not (found or calls),
    )


async def _limits(web: Web, note: Any) -> None:
    """Exceed each limit with values that the page itself never sends."""
    f = web.functions
    decode, race, run = f.named("decode"), f.named("race"), f.pressed("sd-run")
    sweep, bench, record = map(f.pressed, ("sd-gamma-start", "sd-bench-start", "sd-whatif-start"))
    words, long = "word " * 600, "a" * 4001
    asked: dict[str, tuple[int, list[Any]]] = {
        "257 tokens, /decode": (decode, Wanted("Once", 257).inputs),
        "10^9 tokens, /decode": (decode, Wanted("Once", 10**9).inputs),
        "257 tokens, /race": (race, _race(max_new_tokens=257)),
        "257 tokens, page": (run, f.values(run, sd_tokens=257)),
        "a prompt of 600 words, /decode": (decode, Wanted(words).inputs),
        "a prompt of 600 words, page": (run, f.values(run, sd_prompt=words)),
        "a prompt of 1 MB, /race": (race, _race(prompt="x" * 10**6)),
        "6 runs, /race": (race, _race(runs=6)),
        "10^6 runs, /race": (race, _race(runs=10**6)),
        "5 stop strings, /race": (race, _race(stop=list("abcde"))),
        "a stop string of 41 characters, /race": (race, _race(stop=["x" * 41])),
        "a grammar of 4,001 characters, /decode": (decode, [*Wanted("Once").inputs[:-1], f"regex:{long}"]),
        "a grammar of 4,001 characters, /race": (race, _race(grammar=f"regex:{long}")),
        "a grammar of 4,001 characters, page": (run, f.values(run, sd_grammar="regex", sd_grammar_text=long)),
        "a grammar of 4,001 characters, sweep": (sweep, f.values(sweep, sd_grammar="regex", sd_grammar_text=long)),
        "a grammar of 4,001 characters, benchmark": (
            bench,
            f.values(bench, sd_bench_grammar="regex", sd_bench_grammar_text=long),
        ),
        "257 tokens, sweep": (sweep, f.values(sweep, sd_gamma_tokens=257)),
        "6 runs, sweep": (sweep, f.values(sweep, sd_gamma_runs=6)),
        "6 runs, benchmark": (bench, f.values(bench, sd_bench_runs=6)),
        "257 tokens, benchmark": (bench, f.values(bench, sd_bench_tokens=257)),
        "a prompt of 600 words, what-if": (record, f.values(record, sd_prompt=words)),
    }
    passed = []
    for name, (function, values) in asked.items():
        heard = await web.call(function, values, forwarded=an_address(), seconds=60)
        if "at most" not in (text := _refusal(heard)) and "takes" not in text and "characters" not in text:
            passed.append((name, text[:150]))
    note(f"{len(asked)} limits exceeded", "a sentence, nothing runs", f"{len(passed)} passed {passed[:2]}", not passed)


def _race(**values: Any) -> list[Any]:
    """The inputs of /race."""
    given = {
        "prompt": "Once", "gamma": 5, "max_new_tokens": 8, "temperature": 0.0, "seed": None, "runs": 1,
        "further_lanes": [], "chat": False, "stop": [], "grammar": "",
    }  # fmt: skip
    return [*(given | values).values()]


def _refusal(heard: Heard) -> str:
    return said(heard) or " ".join(map(str, heard.last))


async def _jobs(page: Served, alone: Alone, report: Report) -> None:
    async with Web(page.address) as web:
        function = web.functions.named("decode")
        long = Wanted("Once upon a time", 256)

        # Three hundred joins of one session that listens.
        session, address, most = new_session(), an_address(), 0
        statuses, refused = [], 0
        for _ in range(300):
            answer = await web.join(session, function, long.inputs, address)
            statuses.append(answer.status_code)
        async with asyncio.timeout(120), aclosing(web.messages(session, address)) as messages:
            ended, joined = 0, statuses.count(200)
            async for message in messages:
                health = await web.health(an_address())
                most = max(most, health["waiting"] + (health["running"] is not None))
                if message["msg"] == "process_completed":
                    ended += 1
                    refused += "jobs in the queue" in json.dumps(message)
                    if ended == joined:
                        break
        held = joined - refused
        measured = f"{statuses.count(429)} above the rate, {refused} refused, {held} ran; at most {most} held a place"
        report.note(
            "300 joins of one session",
            "2 places at most, the rest refused in a sentence",
            measured,
            most <= 2 and set(statuses) <= {200, 429} and refused > 0,
        )

        # Jobs without a listener.
        ran = 0
        for _ in range(20):
            await web.join(new_session(), function, long.inputs, an_address())
        for _ in range(80):
            health = await web.health(an_address())
            ran += health["running"] is not None
            await asyncio.sleep(0.1)
        health = await web.health(an_address())
        measured = f"one ran in {ran} of 80 checks, {health['waiting']} wait after 8 s"
        report.note(
            "20 jobs that nobody listens to",
            "none runs, all leave the line",
            measured,
            not ran and not health["waiting"],
        )
        heard = await decoded(web, NEXT, an_address())
        right = alone.is_right(NEXT, text_of(heard))
        report.note(
            "a run afterwards", "right", f"{'right' if right else 'WRONG'}, ok {health['ok']}", right and health["ok"]
        )
