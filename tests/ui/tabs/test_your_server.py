"""The tab that races servers, and what keeps a visitor from having an address opened, over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest
from pairwise import few
from programs import specdec_command
from server_pages import context_of, pressed, race_of, served
from server_standins import PROMPT, Dying, StandIn

import specdec
from specdec.cli.parsers import parser_of
from specdec.errors import InvalidInput, ServerFailed
from specdec.events import SamplingParams
from specdec.report import recording
from specdec.servers.address import Address, connected, named_address, named_addresses, require_names
from specdec.servers.client import Client
from specdec.ui.jobs import server_race
from specdec.ui.jobs.limits import LOCAL, PUBLIC
from specdec.ui.jobs.log import LOG as JOBS
from specdec.ui.jobs.server_checks import load_steps, text_steps
from specdec.ui.jobs.server_race import ServerRace, look_at, server_stream
from specdec.ui.page import build
from specdec.ui.tabs.server_checks import ServerChecks
from specdec.ui.tabs.your_server import ServerTab
from tests.load.web import Heard, Web, an_address

KEY = "sk-very-secret"


@pytest.fixture
def log(monkeypatch) -> Iterator[list[str]]:
    """Every line that the log of a page has, with prompts and reasons (``log_to_terminal``)."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.getMessage()} {record.exc_text or ''} {record.exc_info or ''}")

    handler, root = Handler(0), logging.getLogger()
    monkeypatch.setattr(root, "level", logging.WARNING)
    monkeypatch.setattr(JOBS, "level", logging.INFO)
    for logger in (root, JOBS):
        logger.addHandler(handler)
    yield lines
    for logger in (root, JOBS):
        logger.removeHandler(handler)


@pytest.fixture
def canary() -> Iterator[StandIn]:
    """A server that nobody may reach."""
    with StandIn("plain") as server:
        yield server


def lines_of(heard: Heard) -> list[dict]:
    """The lines of a race, which reached the live view."""
    found = [value for value in heard.last if isinstance(value, str) and value.startswith('{"event":"begin"')]
    return [json.loads(line) for line in found[-1].splitlines()]


def test_a_visitor_of_a_public_page_races_the_servers_that_were_named(log, monkeypatch) -> None:
    """Neither an address nor a key is in what the page sends, in its recordings, or in the log."""
    monkeypatch.setenv("SPECDEC_KEY_BIG_ONE", KEY)
    with StandIn("plain") as plain, StandIn("vllm") as other:
        named = [named_address(f"big.one={plain.url}"), named_address(f"fast={other.url}")]
        page, address = served(PUBLIC, *named)

        async def visit() -> tuple[Heard, Heard, str]:
            async with Web(address) as web:
                config = (await web.http.get("/config")).text
                seen = await pressed(web, "sd-server-check", an_address())
                return seen, await pressed(web, "sd-server-start", an_address(), sd_server_tokens=24), config

        seen, ran, config = asyncio.run(visit())
        page.close()
        assert "<dt>Speculation</dt><dd>off</dd>" in seen.text
        assert "<dd>on, up to 4 guesses a step</dd>" in seen.text
        begin, *_, verdict = lines_of(ran)
        assert begin["origin"] == "servers" and "plain server" in verdict["sentence"]
        assert {path for path, *_ in plain.asked} >= {"/v1/models", "/v1/completions"}
        assert all(headers["Authorization"] == f"Bearer {KEY}" for _, headers, _ in plain.asked)
        assert any('"job": "servers"' in line for line in log), "the log is looked at"
        assert not any("Authorization" in headers for _, headers, _ in other.asked)
        everything = "\n".join([seen.text, ran.text, config, *log])
        for secret in (KEY, f":{plain.port}", f":{other.port}"):
            assert secret not in everything, secret


def test_a_public_page_without_named_servers_has_no_such_tab(canary) -> None:
    page, address = served(PUBLIC)

    async def visit() -> set:
        async with Web(address) as web:
            return web.functions.elements

    elements = asyncio.run(visit())
    page.close()
    assert not any(str(name).startswith("sd-server") for name in elements)
    with pytest.raises(ValueError, match="named at the start"):
        ServerTab(page.jobs, PUBLIC, (), '"live.js"', {})


@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.full)])
def test_no_request_to_a_page_of_strangers_opens_an_address_that_it_names(canary, named) -> None:
    """Every function of the page is called with an address in all its fields, in one of them, and in the event's data.

    Functions of other tabs are called in two of these ways, with ``--full`` in all. Each call is followed to its end,
    because a job that nobody listens to does not run.
    """
    with StandIn("plain") as plain, StandIn("vllm") as other:
        servers = [Address("plain", plain.url), Address("spec", other.url)] if named else []
        page, address = served(replace(PUBLIC, runs=1, seconds=1.0), *servers)
        url = canary.url
        recorded = {"settings": {"prompt": url, "server": url}, "servers": [url, url], "url": url, "repeat": False}
        event = {"url": url, "value": url, "run": json.dumps(recorded), "number": url}

        async def forge(web: Web, places: asyncio.Semaphore, function: int, data: list) -> None:
            async with places:
                with contextlib.suppress(TimeoutError):
                    await web.call(function, data, forwarded=an_address(), event=event, seconds=10)

        async def ask() -> None:
            places = asyncio.Semaphore(6)
            async with Web(address) as web:
                calls = []
                for function, row in web.functions.rows.items():
                    if not row["backend_fn"]:
                        continue
                    usual, count = web.functions.values(function), len(row["inputs"])
                    tried = [[url] * count, [json.dumps(recorded)] * count, [[url, url]] * count, [*usual, url, url]]
                    if not any(str(target[0]) in own_parts(web) for target in row["targets"]):
                        tried = few(tried, 2)
                    else:
                        tried += [[*usual[:at], url, *usual[at + 1 :]] for at in range(count)]
                        tried += [[*usual[:-1], {"name": "spec", "url": url}], [*usual[:-1], f"spec={url}"]]
                    calls += [forge(web, places, function, data) for data in tried]
                await asyncio.gather(*calls)
                for path in (f"/gradio_api/file={url}", f"/gradio_api/proxy={url}", f"/proxy={url}/v1/models"):
                    await web.http.get(path)

        asyncio.run(ask())
        page.close()
        assert canary.asked == []
        assert bool(plain.asked) == named, "the calls reached the listeners"


def own_parts(web: Web) -> set[str]:
    """The components of the tab Your server."""
    return {str(number) for name, number in web.functions.ids.items() if str(name).startswith("sd-server")}


def test_the_owner_may_type_addresses_and_no_key_is_sent_to_them(log, monkeypatch) -> None:
    monkeypatch.setenv("SPECDEC_KEY_PLAIN", KEY)
    with StandIn("plain") as plain, StandIn("vllm") as other:
        page, address = served(LOCAL)

        async def visit() -> list[Heard]:
            async with Web(address) as web:

                def of(one: str, two: str, **more) -> dict:
                    return {"sd_server_plain": one, "sd_server_spec": two} | more

                return [
                    await pressed(web, "sd-server-start", **of(plain.url, other.url, sd_server_tokens=24)),
                    await pressed(web, "sd-server-check", **of(other.url, plain.url)),
                    await pressed(web, "sd-server-start", **of(other.url, plain.url)),
                    await pressed(web, "sd-server-start", **of("file:///etc/passwd", other.url)),
                    await pressed(web, "sd-server-start", **of(plain.url, other.url, sd_server_prompt="  ")),
                    await pressed(web, "sd-server-check", **of("http://127.0.0.1:1", other.url)),
                    await pressed(web, "sd-server-text-start", **of(plain.url, f"{plain.url}/v1")),
                ]

        ran, looked, refused, wrong, empty, missing, same = asyncio.run(visit())
        page.close()
        assert lines_of(ran)[-1]["event"] == "verdict"
        assert not any("Authorization" in headers for _, headers, _ in plain.asked)
        assert "it speculates" in looked.text and "it speculates" in refused.text
        assert "cannot be used" in wrong.text and "passwd" not in wrong.text
        assert "prompt is empty" in empty.text
        assert "cannot be reached" in missing.text
        assert "The servers plain and spec have the same address" in same.text
        for secret in (KEY, f":{plain.port}", f":{other.port}"):
            assert secret not in "\n".join([ran.text, looked.text, *log]), secret


def test_a_recording_or_link_with_a_servers_facts_opens_nothing(canary) -> None:
    """Whatever its facts say: the page's own pair would run what a recording asks for, and refuses a server's rule."""
    page, address = served(LOCAL)
    settings = {"prompt": PROMPT, "acceptance": "engine", "gamma": 4, "server": canary.url}
    pair = {"server": {"engine": "vLLM", "url": canary.url}}

    async def visit() -> Heard:
        async with Web(address) as web:
            again = next(
                number for number, row in web.functions.rows.items()
                if row["backend_fn"] and any(target[1] == "again" for target in row["targets"])
            )  # fmt: skip
            shown = json.dumps({"settings": settings, "repeat": True, "started": {"pair": pair}})
            return await web.call(again, [shown])

    heard = asyncio.run(visit())
    page.close()
    assert "cannot be used here" in heard.text and canary.asked == []


def test_a_race_on_servers_is_a_recording_with_their_facts() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        *_, last = server_stream(context_of(), race_of(plain, other, runs=2), limits=LOCAL)
    lanes = recording.lanes(last.text.splitlines())
    assert [lane[0].lane for lane in lanes] == ["generate", "speculative", "speculative", "generate"], "in turns"
    assert all(lane[0].pair["server"]["exact"] == "rounds" for lane in lanes)
    result = specdec.collect(lanes[1])
    assert result.token_ids == specdec.collect(lanes[0]).token_ids
    assert [len([t for t in r.draft or () if t.token_id is None]) for r in result.rounds[1:4]] == [2, 0, 4]
    assert last.verdict and last.verdict.runs == 2 and last.verdict.whatif is None
    assert "server tells no times" in (last.verdict.whatif_refused or "")
    for secret in (f":{plain.port}", f":{other.port}"):  # a port alone may be among the digits of a time
        assert secret not in last.text


def test_stop_ends_a_servers_answer_and_keeps_what_ended() -> None:
    stop = threading.Event()
    with StandIn("plain") as plain, StandIn("vllm") as other:
        steps = server_stream(context_of(stop), race_of(plain, other), limits=LOCAL)
        next(steps)  # the first line
        first = next(steps)  # the plain server has answered
        assert '"lane":"generate"' in first.text
        stop.set()
        *_, last = steps
    assert last.verdict is None or last.verdict.kind == "incomplete"
    assert "Stopped" in last.text


def test_a_page_with_a_limit_of_seconds_waits_no_longer_for_a_server(monkeypatch) -> None:
    monkeypatch.setattr(server_race, "SECONDS", 0.3)
    with StandIn("plain") as plain, StandIn("vllm") as other:
        plain.go_on.clear()  # it never sends its next piece
        *_, last = server_stream(context_of(), race_of(plain, other), limits=LOCAL)
    assert last.problem.startswith("The server plain did not") and f":{plain.port}" not in last.text


def test_a_look_at_a_server_says_what_it_tells() -> None:
    with StandIn("text") as told, StandIn("vllm") as other:
        never = threading.Event().is_set
        facts = look_at(Address("one", told.url), None, never)
        assert facts["exact"] == "speed" and not facts["ids"] and facts["speculation"] is None  # type: ignore[index]
        facts = look_at(Address("two", other.url), None, never)
        assert facts["exact"] == "rounds" and facts["guesses"] == 4  # type: ignore[index]
    assert "cannot be reached" in look_at(Address("gone", told.url), None, never)  # type: ignore[operator]


def test_an_address_shows_neither_itself_nor_its_key() -> None:
    address = Address("plain", "http://example.invalid:1234", KEY)
    assert str(address) == "Address(name='plain')" and "1234" not in repr(race_of_addresses(address))


def race_of_addresses(address: Address) -> ServerRace:
    return ServerRace((address, address), PROMPT)


@pytest.mark.parametrize("wrong", ["nameless", "plain=ftp://a", "=http://a", "a=http://u:p@b", "a=http://b?key=c"])
def test_a_server_that_cannot_be_named_is_refused_without_repeating_it(wrong, capsys) -> None:
    with pytest.raises(SystemExit):
        parser_of("page").parse_args(["--server", wrong])
    said = capsys.readouterr().err.splitlines()[-1]
    assert "argument --server" in said and wrong not in said


def test_two_servers_or_none_are_named() -> None:
    for servers in ([Address("a", "http://127.0.0.1:1")], [Address("a", "http://127.0.0.1:1")] * 2):
        with pytest.raises(InvalidInput, match="two or more servers|Two servers are called a"):
            build(SimpleNamespace(), PUBLIC, servers=servers)  # type: ignore[arg-type]


SECRET = "10.1.2.3:8000"


@pytest.mark.parametrize(
    "word",
    [
        f"plain={SECRET}", f"plain={SECRET}/v1", f"plain=ftp://{SECRET}", f"my server=http://{SECRET}",
        f"{'n' * 41}=http://{SECRET}", f"plain= http://{SECRET}", "plain=localhost:8000", "plain=localhost",
        "plain=[::1]:8000", f"=http://{SECRET}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["servers", "load", "lossless", "why"])
def test_a_word_that_is_meant_for_a_server_is_not_taken_for_a_prompt(command, word) -> None:
    ended = specdec_command(command, word, "spec=http://127.0.0.1:9", "Once upon a time")
    assert ended.returncode == 1 and "The first word looks like a server" in ended.stderr
    assert SECRET not in ended.stderr
    ended = specdec_command(command, word)
    assert ended.returncode == 1 and "The first word looks like a server" in ended.stderr


@pytest.mark.parametrize(
    "prompt", ["def f(x=1):", "a=b", "Solve x=2: what is y?", "See https://a.b/c?d=e", "x = {1:2}"]
)
def test_a_prompt_with_an_equals_sign_stays_one(prompt) -> None:
    assert named_addresses([prompt]) == [None]


@pytest.mark.parametrize("command", ["servers", "load", "lossless", "why"])
def test_one_server_under_two_names_is_refused(command) -> None:
    """It would be found to write what it writes, and to be as fast as it is."""
    words = ["plain=http://localhost:9/v1", "spec=http://LOCALHOST:9/", "Once upon a time"]
    ended = specdec_command(command, *words)
    assert ended.returncode == 1 and "The servers plain and spec have the same address" in ended.stderr


def test_a_client_is_closed_when_a_later_server_does_not_answer(monkeypatch) -> None:
    closed: list[str] = []
    close = Client.close
    monkeypatch.setattr(Client, "close", lambda self: (closed.append(self.name), close(self))[1])
    with StandIn("plain") as plain, pytest.raises(specdec.SpecdecError, match="cannot be reached"):
        with connected([Address("plain", plain.url), Address("spec", "http://127.0.0.1:1")]):
            pass
    assert set(closed) == {"plain", "spec"}


def test_load_and_texts_are_asked_of_the_same_two_servers() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        page, address = served(LOCAL)

        async def visit() -> list[Heard]:
            async with Web(address) as web:
                servers = {"sd_server_plain": plain.url, "sd_server_spec": other.url, "sd_server_tokens": 12}
                load = servers | {"sd_server_load_at": 2, "sd_server_load_runs": 1}
                sampled = servers | {"sd_server_temperature": 0.8}
                return [
                    await pressed(web, "sd-server-load-start", **load),
                    await pressed(web, "sd-server-load-start", **load | {"sd_server_load_at": 65}),
                    await pressed(web, "sd-server-text-start", **servers),
                    await pressed(web, "sd-server-text-start", **sampled | {"sd_server_text_draws": 50}),
                    await pressed(web, "sd-server-text-start", **sampled | {"sd_server_text_draws": 10}),
                ]

        load, too_many, texts, samples, too_few = asyncio.run(visit())
        page.close()
        assert "At once" in load.text and "Calls at once" in load.text
        assert "at most 64" in too_many.text and "At once" not in too_many.text
        assert "Same text: spec writes what plain writes on all 6 prompts." in texts.text
        assert "Of 50 continuations of 4 tokens from each" in samples.text
        assert "Draws must be 50 or more" in too_few.text


def test_a_stopped_load_keeps_what_was_measured() -> None:
    stop = threading.Event()
    with StandIn("plain") as plain, StandIn("vllm") as other:
        ask, found = race_of(plain, other, params=SamplingParams(max_new_tokens=12)), None
        for found in load_steps(context_of(stop), ask, [1, 2], 2, LOCAL):
            other.go_on.clear()
            stop.set()
        assert found is not None and (found.planned, len(found.runs)) == (8, 1)
        assert not list(text_steps(context_of(stop), ask, 50, LOCAL))


@pytest.mark.parametrize("other", [StandIn("vllm"), Dying(4)], ids=["it lives", "it dies"])
def test_the_chart_and_the_table_of_a_load_come_together(other) -> None:
    """Also of what was measured before a server died."""
    with StandIn("plain") as plain, other:
        ask = race_of(plain, other, params=SamplingParams(max_new_tokens=12))
        with gr.Blocks():
            checks = ServerChecks(LOCAL, lambda *_: ask, [])
        parts, updates = {checks._load_verdict, checks._load_plot, checks._load_table}, []
        with pytest.raises(ServerFailed) if isinstance(other, Dying) else contextlib.nullcontext():
            updates.extend(checks._measure(context_of(), ask, [1, 2], 1))
    shown = [parts & set(update) for update in updates]
    assert all(each in (set(), parts) for each in shown) and shown[-1] == parts


def test_strangers_make_few_calls_at_once() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        page, address = served(PUBLIC, Address("plain", plain.url), Address("fast", other.url))

        async def visit() -> Heard:
            async with Web(address) as web:
                return await pressed(web, "sd-server-load-start", an_address(), sd_server_load_at=16)

        heard = asyncio.run(visit())
        page.close()
        assert "this page makes at most 8" in heard.text and not plain.asked


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[::1]:9/v1", "http://localhost:9"])
def test_each_name_of_this_machine_is_the_same_server(url) -> None:
    with pytest.raises(InvalidInput, match="have the same address"):
        require_names([Address("plain", "http://localhost:9/"), Address("spec", url)])
    require_names([Address("plain", "http://localhost.example:9"), Address("spec", url)])
