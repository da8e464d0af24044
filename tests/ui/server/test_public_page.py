"""A public page and its strangers, over HTTP; ``python -m tests.load`` does the same at length."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import gradio as gr
import httpx
import pytest
import torch
from comparison import FULL
from fastapi.routing import iter_route_contexts
from pairwise import few

from specdec.models.loading import plan_pair
from specdec.models.pair_slot import Slot
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.jobs.log import JobLog
from specdec.ui.page import Page, build
from specdec.ui.server.launch import serve
from specdec.ui.server.log_lines import OneLine
from specdec.ui.server.request_checks import ROUTES
from tests.load import inputs, probes
from tests.load.runs import Alone, Wanted, decoded, distinct, text_of
from tests.load.tiny import save_pair
from tests.load.web import API, Heard, Web, an_address, new_session

pytestmark = pytest.mark.xdist_group("public page")  # one server
RUN = "/gradio_api/run/predict"
WAIT = 60.0  # seconds: a busy machine is no reason to fail
NOTHING = "This session has asked for nothing. Load the page again."
LONG = Wanted("Once upon a time", 256)


class Noted(JobLog):
    """Keeps the kind of each job and what became of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []

    def wrote(self, place, outcome, *rest, **more) -> None:
        self.lines.append((place.job.kind, outcome))


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[str]:
    return save_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def alone(pair) -> Alone:
    return Alone(*pair)


@pytest.fixture(scope="module")
def served(pair) -> Iterator[tuple[Page, str]]:
    torch.set_num_threads(1)
    page = build(Slot(plan_pair(*pair[1::2])), PUBLIC, journal=Noted(), proxies=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORWARDED_ALLOW_IPS", "*")  # many containers set it, for uvicorn
        yield page, serve(page, quiet=True)
    page.close()


@pytest.fixture
def page(served) -> Iterator[Page]:
    """The page while nobody uses it."""
    wait_until(served[0], lambda health: not health["waiting"] and health["running"] is None)
    served[0].jobs.journal.lines.clear()
    yield served[0]
    assert served[0].health()["ok"]


@pytest.fixture
def address(served, page) -> str:
    return served[1]


@pytest.fixture
def slow(monkeypatch) -> None:
    """Slow passes, so that requests during a run arrive during it."""
    from specdec.forward.runner import Runner

    forward = Runner.forward
    monkeypatch.setattr(Runner, "forward", lambda *args, **more: (time.sleep(0.05), forward(*args, **more))[1])


def wait_until(page: Page, so) -> None:
    end = time.monotonic() + WAIT
    while not so(page.health()):
        assert time.monotonic() < end, page.health()
        time.sleep(0.01)


def note(done: str, asked: str, measured: str, ok: bool) -> None:
    assert ok, f"{done}: {asked}; {measured}"


@pytest.mark.full
def test_visitors_at_once_each_get_their_own(address, alone) -> None:
    async def visit() -> list[str]:
        async with Web(address) as web:
            heard = await asyncio.gather(*(decoded(web, distinct(number), an_address()) for number in range(8)))
            return [text_of(one) for one in heard]

    assert [alone.is_right(distinct(number), text) for number, text in enumerate(asyncio.run(visit()))] == [True] * 8


@pytest.mark.parametrize("kind", few(["race", "decode", "whatif", "lossless"], 2))
def test_a_visitor_who_leaves_frees_the_machine(address, page, alone, slow, kind: str) -> None:
    async def leave() -> tuple[float, str]:
        async with Web(address) as web:
            f = web.functions
            function = {
                "race": lambda: f.pressed("sd-run"), "decode": lambda: f.named("decode"),
                "whatif": lambda: f.pressed("sd-whatif-start"), "lossless": lambda: f.pressed("sd-lossless-start"),
            }[kind]()  # fmt: skip
            session, visitor = new_session(), an_address()
            await web.join(session, function, LONG.inputs if kind == "decode" else f.values(function), visitor)
            stream, heard = web.messages(session, visitor), 0
            async for message in stream:
                heard += message["msg"] == "process_generating"
                if heard == 2:
                    break
            assert page.health()["running"] == kind
            left = time.monotonic()
            await stream.aclose()
            await asyncio.to_thread(wait_until, page, lambda health: health["running"] is None)
            return time.monotonic() - left, text_of(await decoded(web, distinct(1), an_address()))

    took, text = asyncio.run(leave())
    read = [("read settings", "done")] if kind in ("whatif", "lossless") else []
    assert took < 5 and alone.is_right(distinct(1), text)
    assert [line for line in page.jobs.journal.lines if line[1] == "done"] == read + [("decode", "done")]
    assert page.jobs.journal.lines[len(read)][0] == kind


def test_a_job_that_nobody_listens_to_never_runs(address, page, monkeypatch) -> None:
    monkeypatch.setattr("specdec.ui.jobs.queue.GRACE", 0.5)

    async def ask() -> None:
        async with Web(address) as web:
            for function, values in (
                (web.functions.named("decode"), LONG.inputs),
                (run := web.functions.pressed("sd-run"), web.functions.values(run)),
            ):
                assert (await web.join(new_session(), function, values, an_address())).status_code == 200

    asyncio.run(ask())
    wait_until(page, lambda health: len(page.jobs.journal.lines) == 2)
    assert Counter(page.jobs.journal.lines) == {("decode", "left"): 1, ("race", "left"): 1}


@pytest.mark.parametrize(("by", "places"), [("session", PUBLIC.places), ("address", PUBLIC.places_of_address)])
def test_a_visitor_has_few_places_in_the_queue(address, page, monkeypatch, by: str, places: int) -> None:
    """A program's calls and the page's own count alike. What a visitor puts into X-Forwarded-For changes nothing."""
    monkeypatch.setattr("specdec.ui.jobs.queue.GRACE", WAIT)  # the first ones wait for a listener all the time
    session = new_session()

    def home() -> str:
        return f"{an_address()}, 192.168.1.7"

    async def ask() -> list[str]:
        async with Web(address) as web:
            run, decode = web.functions.pressed("sd-run"), web.functions.named("decode")
            calls = [(decode, LONG.inputs), (run, web.functions.values(run))]
            for number in range(places):
                own = session if by == "session" else new_session()
                await web.join(own, *calls[number % 2], home())
                await asyncio.to_thread(wait_until, page, lambda health, n=number: health["waiting"] == n + 1)
            own = [session if by == "session" else new_session() for _ in calls]
            away = an_address() if by == "session" else home()
            for name, call in zip(own, calls, strict=True):
                assert (await web.join(name, *call, away)).status_code == 200
            return [text for name in dict.fromkeys(own) for text in await told_in(web, name, away, own.count(name))]

    async def told_in(web: Web, name: str, visitor: str, count: int) -> list[str]:
        """The first ends of jobs that a session hears of."""
        found: list[str] = []
        async for message in web.messages(name, visitor):
            if message["msg"] == "process_completed":
                found.append(str(message["output"]))
            if len(found) == count:
                break
        return found

    told = asyncio.run(ask())
    words = f"already have {places} jobs" if by == "session" else f"address already has {places} jobs"
    assert all(words in text for text in told), told


@pytest.mark.full
def test_reading_what_a_visitor_sends_waits_in_the_line(address, page, monkeypatch) -> None:
    """Links, files, prompt sets and the Share menu: a visitor has few places, and a race runs beside them."""
    monkeypatch.setattr("specdec.ui.jobs.queue.GRACE", WAIT)
    go = threading.Event()
    for name in (
        "tabs.results_io.text_of_link",  # of every tab
        "tabs.compare.read_results",
        "tabs.prompt_set.parse_prompts",
        "page.code_answer",
    ):
        monkeypatch.setattr(f"specdec.ui.{name}", lambda *values: go.wait(WAIT))
    home = an_address()

    async def ask() -> tuple[list[str], str]:
        async with Web(address) as web:
            f = web.functions
            names = {"_opening": [{"text": "x" * 63_000}], "_listen": [[{"name": "a", "text": "b"}]]}
            names["_categories_of"] = [{"name": "a", "text": "b"}]
            of = {
                n: number
                for number, fn in page.demo.fns.items()
                for n in names
                if n in getattr(fn.fn, "__qualname__", "")
            }
            calls = [(number, [*names[n], *f.values(number)[1:]]) for n, number in of.items()]
            shared = next(n for n, fn in page.demo.fns.items() if getattr(fn.fn, "__name__", "") == "_shared")
            asked = [asyncio.create_task(web.call(number, values, forwarded=home)) for number, values in calls]
            asked.append(asyncio.create_task(web.call(shared, f.values(shared), forwarded=home, event={"run": "{}"})))
            await asyncio.to_thread(wait_until, page, lambda health: health["waiting"] == PUBLIC.places_of_address - 1)
            refused = [await web.call(*calls[0], forwarded=home) for _ in range(30)]
            race = text_of(await decoded(web, distinct(1), an_address()))
            go.set()
            await asyncio.gather(*asked)
            return [heard.text for heard in refused], race

    refused, _ = asyncio.run(ask())
    assert all("network address already has 4 jobs" in text for text in refused)
    kinds = Counter(kind for kind, outcome in page.jobs.journal.lines if outcome != "refused")
    assert kinds == {"open": 1, "compare": 1, "read prompts": 1, "share": 1, "decode": 1}


def test_nothing_is_written_to_the_disk(address, page) -> None:
    """Whatever a visitor does or sends: no file is opened for writing, not even a temporary one."""
    written: list[str] = []
    watched = threading.Event()

    def watch(event: str, values: tuple) -> None:
        if watched.is_set() and event == "open" and (values[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            written.append(str(values[0]))

    sys.addaudithook(watch)  # it stays, and does nothing when the test has ended
    large = "x" * PUBLIC.file_bytes

    async def visit() -> None:
        async with Web(address) as web:
            f = web.functions
            run, opened = f.pressed("sd-run"), f.pressed("sd-bench-open")
            for function, values in (
                (run, f.values(run, sd_tokens=8)),
                (f.pressed("sd-compare-files"), [[{"name": "a", "text": large}]]),
                (opened, [{"name": "a", "text": large}]),
                (
                    f.pressed("sd-bench-start"),
                    f.values(f.pressed("sd-bench-start"), sd_bench_set={"name": "a", "text": large}),
                ),
            ):
                await web.call(function, values, forwarded=an_address(), seconds=WAIT)
            for path in ("/login", *(f"{API}/{path}" for path in ("upload", "run/predict", "queue/join"))):
                parts = {"files": ("a.jsonl", large.encode() * 2)}
                with contextlib.suppress(httpx.TransportError):  # the page may close before it has read all of it
                    await web.http.post(path, files=parts, headers={"X-Forwarded-For": an_address()})

    watched.set()
    try:
        asyncio.run(visit())
    finally:
        watched.clear()
    assert not written


def test_the_functions_of_the_page_are_known(page) -> None:
    """Only known functions can be called by number, and none changes the pair."""
    found = Counter(
        f"{block.fn.__module__}.{block.fn.__qualname__}".removeprefix("specdec.ui.")
        for block in page.demo.fns.values()
        if block.fn is not None and block.js is not True
    )
    assert found == {
        "tabs.race.RaceTab._racing.<locals>.run": 2,  # Run, and Again
        "tabs.race.RaceTab._stop": 1,
        "tabs.race.RaceTab.with_length": 1,  # the best of What if goes into the race's settings
        "page._Components._shared": 1,  # the content of the Share menu
        "page._Components._restore": 2,  # when the page opens, and for a pasted link
        "page._Components._renewed": 2,  # the page's texts about its pair
        "tabs.race_form.RaceForm.wire.<locals>.enable": 1,
        "jobs.startup.StartupRace.lines": 1,
        "tabs.results_io.Greeting._greet": 3,  # what a tab opens with
        "tabs.results_io.Opening._opening.<locals>.listen": 5,  # results from a file or a link
        "tabs.prompt_set.PromptSet._categories_of": 1,
        "tabs.compare.ComparePanel._listen": 1,  # reads files that a visitor gives
        "tabs.measurement.Buttons.estimate.<locals>.say": 4,
        "tabs.measurement.Buttons.wire.<locals>.run": 4,  # sweep, what-if, benchmark, losslessness
        "tabs.measurement.Buttons.wire.<locals>.stop": 4,
        "tabs.measurement.Buttons.wire.<locals>.<lambda>": 4,
        "api._decode_endpoint.<locals>.decode": 1,
        "api._race_endpoint.<locals>.race": 1,
    }


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY")
SAMPLES = {"{api_name}": "predict", "{session_hash}": "s1"}  # the only values for which such a route may answer


def test_no_route_answers_that_the_list_does_not_name(served, address) -> None:
    """Of the routes that the served Gradio has, only the listed ones answer, so a new one is closed.

    None is listed that does not exist. Two of the list are closed here: of the login, as there is no password, and of
    the startup events, as launch has returned.
    """
    paths = {route.path for route in iter_route_contexts(served[0].demo.app.routes)}
    paths = {path for path in paths if not path.startswith("/specdec-assets")}
    listed = {(method, path) for method, routes in ROUTES.items() for path in routes}
    assert {path for _, path in listed} - paths == {"/healthz", "/specdec-assets/{path:path}"}  # the page's own
    assert len(paths) > 60 and {"/logout", "/gradio_api/upload", "/gradio_api/file={path_or_url:path}"} < paths
    answered = set()
    for path in paths:
        for method in METHODS:
            sample = re.sub(r"\{.*?\}", lambda part: SAMPLES.get(part[0], "x"), path)
            status, text = asked(address, method, sample)
            if (status, text) != (404, "" if method == "HEAD" else CLOSED):
                answered.add((method, path))
    here = {(method, path) for method, path in listed if path not in ("/login", "/gradio_api/startup-events")}
    assert answered == {(method, path) for method, path in here if path in paths}


CLOSED = '{"detail":"This page has nothing at this address."}'


def asked(address: str, method: str, path: str) -> tuple[int, str]:
    """The status and the text of the page's answer; of a stream's answer no text."""
    connection = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=WAIT)
    headers = {"X-Forwarded-For": an_address(), "Content-Type": "application/json"}
    connection.request(method, path, "{}" if method == "POST" else None, headers)
    answer = connection.getresponse()
    text = "" if answer.headers["content-type"].startswith("text/event-stream") else answer.read().decode()
    connection.close()
    return answer.status, text


def test_an_open_page_is_told_about_another_pair_only(page) -> None:
    """The page's own pair changes nothing, so that nobody's switches are set back."""
    renewed = next(b.fn for b in page.demo.fns.values() if getattr(b.fn, "__name__", "") == "_renewed")
    *texts, name = renewed("a pair of yesterday")
    assert name in re.sub("</?small>", "", texts[0]) and len(texts) == 4
    assert [gr.skip()] * 5 == renewed(name)


def test_bad_inputs_are_refused(address, alone) -> None:
    """Bad inputs are refused: fifty for each endpoint, fifty malformed ones, some for each function."""

    async def attack() -> tuple[list[inputs.Found], str]:
        async with Web(address) as web:
            rows = web.functions.rows
            ends = {number: row for number, row in rows.items() if row["api_name"] in ("decode", "race")}
            found = []
            for web.functions.rows, count in ((ends, 300 if FULL else 150), (rows, (3 if FULL else 2) * len(rows))):
                found.append(await inputs.attack(web, count, public=True, hang=WAIT))
            return found, text_of(await decoded(web, inputs.NEXT, an_address()))

    (endpoints, others), text = asyncio.run(attack())
    assert endpoints.count > 120 and others.count > 50 and not endpoints.bad + others.bad
    assert alone.is_right(inputs.NEXT, text)


@pytest.mark.parametrize("name", ["decode", "race"])
def test_programs_have_the_limits_of_the_page(address, page, monkeypatch, name: str) -> None:
    """Stop strings and the prompt, with what a chat template adds to it, are within the public limits."""
    longest, most = PUBLIC.stop_characters, PUBLIC.stop_strings
    monkeypatch.setattr(page.jobs.slot.pair.tokenizer, "chat_template", "<user>{{ messages[0].content }}</user>")
    within = {"max_new_tokens": 4, "stop": ["x" * longest] * most, "chat": True}
    refused = {
        f"stop has {most + 1} strings; this page allows at most {most}": {"stop": ["x"] * (most + 1)},
        f"stop has a string of {longest + 1} characters": {"stop": ["a", "x" * (longest + 1)]},
        "stop has 4000 strings": {"stop": ["x"] * 4000},
        "half of a surrogate pair|has text in it that is not Unicode": {"stop": ["\ud800"]},
        "more values than this page takes": {"stop": ["x"] * 100_000},
        f"The prompt has 51[3-9] tokens; this public page takes at most {PUBLIC.prompt_tokens}": {
            "prompt": "x" * 500, "chat": True,
        },
        "The prompt has 100000 characters": {"prompt": "x" * 100_000, "chat": True},
    }  # fmt: skip

    async def ask() -> tuple[bool | None, dict[str, str]]:
        async with Web(address) as web:
            function = web.functions.named(name)
            names = [parameter["parameter_name"] for parameter in (await _info(web))[f"/{name}"]["parameters"]]
            first = dict(zip(names, web.functions.values(function), strict=True)) | {"prompt": "Once"}

            async def called(settings: dict[str, object]) -> Heard:
                return await web.call(function, [*(first | settings).values()], forwarded=an_address(), seconds=WAIT)

            taken = (await called(within)).success
            return taken, {wanted: (await called(settings)).text for wanted, settings in refused.items()}

    taken, told = asyncio.run(ask())
    assert taken and not [(wanted, text[-300:]) for wanted, text in told.items() if not re.search(wanted, text)]


async def _info(web: Web) -> dict[str, dict]:
    return (await web.http.get(f"{API}/info", headers={"X-Forwarded-For": an_address()})).json()["named_endpoints"]


def test_a_request_writes_one_short_line_at_most(address, page, alone, caplog, capfd) -> None:
    """Neither a choice that the page does not offer, nor an unknown function or session, is logged at length."""
    long = "x" * 100_000

    async def attack() -> str:
        async with Web(address) as web:
            run, value = web.functions.pressed("sd-run"), an_address()
            radio = next(part for part in web.functions._parts.values() if part["type"] == "radio")
            number = next(n for n, row in web.functions.rows.items() if radio["id"] in row["inputs"])
            values = [long if i == radio["id"] else None for i in web.functions.rows[number]["inputs"]]
            assert not (await web.call(number, values, forwarded=value)).success
            await web.call(run, web.functions.values(run, sd_gamma=long), forwarded=value)
            for body in ({"fn_index": number, "data": values}, {"fn_index": 999, "data": [long]}):
                assert (await web.post(RUN, body | {"session_hash": "s1"}, value)).status_code in (404, 400, 500)
            assert (await web.join("s1", 999, [long], value)).status_code == 500
            answer = await web.http.get("/gradio_api/queue/data?session_hash=nobody")
            assert answer.status_code == 404 and answer.json() == {"detail": NOTHING}
            return text_of(await decoded(web, distinct(1), an_address()))

    assert alone.is_right(distinct(1), asyncio.run(attack()))
    lines = [OneLine().format(record) for record in caplog.records]
    assert 0 < len(lines) <= 4 and max(map(len, lines)) < 3100 and not any("\n" in line for line in lines)
    assert capfd.readouterr() == ("", "")


@pytest.mark.full
def test_probes_are_refused(address) -> None:
    probes.files(address, note)
    with probes.snare() as (trap, caught):
        asyncio.run(probes.on_functions(address, trap, caught, note, every=15))
