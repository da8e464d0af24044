"""Faults of a machine, ten times each. The visitor must read one sentence, and the next run must be right."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.load.runs import Alone, Wanted, decoded, text_of
from tests.load.served import FORKS, ROOT, Served
from tests.load.table import Report
from tests.load.tiny import save_pair
from tests.load.web import Heard, Web, new_session, take
from tests.programs import specdec_command

TIMES = 10
END = 7.0  # seconds from a signal until the process has ended
LONG, NEXT = Wanted("Once upon a time", 1024), Wanted("Once upon a time", 8)
SECRETS = re.compile(r"Traceback|File \"|site-packages|" + re.escape(str(ROOT)))


def faults(report: Report) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pair = save_pair(folder)
        alone = Alone(*pair)
        _pass_faults(report, folder, pair, alone)
        _device_lost(report, folder, pair)
        _damaged(report, folder, pair, alone)
        _disk_full(report, folder, pair)
        for number in (signal.SIGTERM, signal.SIGINT):
            _signals(report, pair, number)


def is_sentence(text: str) -> bool:
    """Whether a visitor can read it: one line, without a traceback or a path."""
    return bool(text) and "\n" not in text and text.rstrip()[-1] in ".!?" and not SECRETS.search(text)


def said(heard: Heard) -> str:
    """The error shown to a visitor of the page or to a program, or ""."""
    if heard.error or not heard.last:
        return heard.error
    for line in (line for part in heard.last if isinstance(part, str) for line in part.splitlines()):
        if line.startswith("{") and (record := json.loads(line))["event"] == "error":
            return str(record["message"])
    return ""


async def _struck(web: Web, order: Path, fault: str, number: int) -> Heard:
    """Runs that meet the fault in a pass after their first tokens, on the page and from a program in turn."""
    if number % 2:
        function, values = web.functions.named("decode"), LONG.inputs
    else:
        function = web.functions.pressed("sd-run")
        values = web.functions.values(function, sd_tokens=LONG.tokens, sd_ignore=True)
    session, heard = new_session(), Heard()
    await web.join(session, function, values)
    async with asyncio.timeout(120):
        async for message in web.messages(session):
            heard.raw.append(json.dumps(message))
            if take(heard, message):
                break
            if len(heard.outputs) == 3:
                order.write_text(fault)
    return heard


def _pass_faults(report: Report, folder: Path, pair: list[str], alone: Alone) -> None:
    for fault, name, wanted in (("memory", "out of memory in a pass", "memory"), ("nan", "logits of NaN", "NaN")):
        order = folder / f"{fault}.order"

        async def all_times(page: Served, order: Path = order, fault: str = fault, wanted: str = wanted) -> Any:
            told, right = [], 0
            async with Web(page.address) as web:
                for number in range(TIMES):
                    told.append(said(await _struck(web, order, fault, number)))
                    right += alone.is_right(NEXT, text_of(await decoded(web, NEXT)))
            good = sum(is_sentence(text) and wanted in text for text in told)
            return f"{good} sentences, {right} right runs; {' / '.join(sorted(set(told)))}", good == right == TIMES

        with Served(*pair, fault=order) as page:
            measured, ok = asyncio.run(all_times(page))
        asked = f"a sentence about {wanted}, the next run right"
        report.note(f"{name}, {TIMES} times", asked, measured, ok)


def _device_lost(report: Report, folder: Path, pair: list[str]) -> None:
    told, statuses = [], []
    for number in range(TIMES):
        order = folder / "device.order"
        with Served(*pair, fault=order) as page:

            async def strike(page: Served = page, order: Path = order, number: int = number) -> str:
                async with Web(page.address) as web:
                    return said(await _struck(web, order, "device", number))

            told.append(asyncio.run(strike()))
            statuses.append(page.ended(END))
    good = sum(is_sentence(text) and "device" in text.lower() for text in told)
    measured = f"{good} sentences; statuses {sorted(set(statuses), key=str)}; {' / '.join(sorted(set(told)))}"
    ok = good == TIMES and statuses == [1] * TIMES
    report.note(f"a CUDA error in a pass, {TIMES} times", "a sentence, then the process ends with 1", measured, ok)


def _damage(path: Path, number: int) -> None:
    """Cut the weights short, or damage their header or the config."""
    weights = path / "model.safetensors"
    found = weights.read_bytes()
    if number % 5 == 4:
        weights.write_bytes(b"\xff" * 64 + found[64:])
    elif number % 5 == 3:
        (path / "config.json").write_text('{"model_type": "llama", "hidden_si')
    else:
        weights.write_bytes(found[: len(found) * number // TIMES])


def _damaged(report: Report, folder: Path, pair: list[str], alone: Alone) -> None:
    async def all_times(page: Served) -> tuple[str, bool]:
        told, right = [], 0
        async with Web(page.address) as web:
            load = web.functions.pressed("sd-load")
            for number in range(TIMES):
                damaged = folder / f"damaged{number}"
                shutil.copytree(folder / "target", damaged)
                _damage(damaged, number)
                values = web.functions.values(
                    load, sd_preset="Another pair", sd_target=str(damaged), sd_draft=str(damaged)
                )
                heard = await web.call(load, values)
                html = str(heard.last[0]) if heard.last else heard.error
                told.append(re.sub(r"<[^>]*>", "", html).strip())
                right += alone.is_right(NEXT, text_of(await decoded(web, NEXT)))
        good = sum(is_sentence(text) and "Still loaded" in text for text in told)
        return f"{good} sentences, {right} right runs; e.g. {told[1]}", good == right == TIMES

    with Served(*pair) as page:
        measured, ok = asyncio.run(all_times(page))
    asked = "a sentence, the old pair stays, the next run right"
    report.note(f"a damaged model file while the pair is changed, {TIMES} times", asked, measured, ok)


def _limited(connection: Any, arguments: list[str], bytes_: int) -> None:
    """Run the command where no file may grow beyond ``bytes_`` bytes, which stands in for a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))
    ended = specdec_command(*arguments)
    connection.send((ended.returncode, ended.stdout, ended.stderr))


def _disk_full(report: Report, folder: Path, pair: list[str]) -> None:
    (folder / "prompts.jsonl").write_text('{"name": "a", "prompt": "Once upon a time"}\n')
    sizes = ["--runs", "8", "--tokens", "32", "--gammas", "2", "--lanes", "generate", "speculative"]
    bench = ["bench", *pair, "--prompts", str(folder / "prompts.jsonl"), *sizes]
    told = []
    for number in range(TIMES):
        suffix = (".csv", ".md", ".json", ".jsonl", ".jsonl")[number % 5]
        option = "--results" if suffix == ".jsonl" else "--export"
        most = 4000 if number % 5 == 4 else 16  # either the first line of the results fits, or nothing does
        ours, theirs = FORKS.Pipe()
        arguments = [*bench, option, str(folder / f"out{number}{suffix}")]
        process = FORKS.Process(target=_limited, args=(theirs, arguments, most))
        process.start()
        status, out, err = ours.recv() if ours.poll(300) else (None, "", "no answer")
        process.join(10)
        shown = option == "--results" or "speculative" in out.lower()
        lines = err.strip().splitlines() or ["nothing"]
        good = status == 1 and len(lines) == 1 and is_sentence(lines[0]) and shown
        told.append((good, f"{status}: {lines[-1]}"))
    good = sum(ok for ok, _ in told)
    example = next((text for ok, text in told if not ok), told[0][1])
    asked = "a sentence, status 1, the table shown"
    report.note(f"disk full on export, {TIMES} times", asked, f"{good} sentences; e.g. {example}", good == TIMES)


def _signals(report: Report, pair: list[str], number: signal.Signals) -> None:
    """Send a signal to a page during a run: first to the command as a person starts it, then to forks."""
    problems, seconds = [], []
    for at in range(TIMES):
        with Served(*pair, whole=at == 0) as page:
            children = psutil.Process(page.pid).children(recursive=True)
            told, took, status = asyncio.run(stopped(page, number))
            seconds.append(took)
            alive = [child.pid for child in children if child.is_running()]
            found = {"status": status, "running": told[0], "waiting": told[1:], "children": alive, "port": page.port}
            free, gone = is_free(page.port), not psutil.pid_exists(page.pid)
            well = status == 0 and took <= END and free and gone and not alive
            if not (well and "Stopped" in told[0] and all("is being stopped" in text for text in told[1:])):
                problems.append(f"{found}, free {free}, gone {gone}, {took:.1f} s")
    measured = f"slowest {max(seconds):.1f} s; " + ("; ".join(problems[:2]) or "all told, status 0, port free")
    asked = f"all told in a sentence; ended within {END:.0f} s, status 0, no zombie, port free"
    report.note(f"{number.name} in mid-run, {TIMES} times", asked, measured, not problems)


async def stopped(page: Served, number: signal.Signals) -> tuple[list[str], float, int | None]:
    """What the running and the waiting visitors are told, the seconds until the end, and the exit status."""
    async with Web(page.address) as web:
        run, decode = web.functions.pressed("sd-run"), web.functions.named("decode")
        values = web.functions.values(run, sd_tokens=2048, sd_ignore=True)
        first, heard = new_session(), Heard()
        await web.join(first, run, values)
        stream = web.messages(first)
        async for message in stream:
            if take(heard, message) or len(heard.outputs) == 3:
                break
        waiting = [
            asyncio.create_task(web.call(run, values, seconds=60)),
            asyncio.create_task(web.call(decode, LONG.inputs, seconds=60)),
        ]
        while (await web.health())["waiting"] < 2:
            await asyncio.sleep(0.05)
        began = time.monotonic()
        page.send(number)
        try:
            async for message in stream:
                if take(heard, message):
                    break
        except httpx.HTTPError as error:
            heard.error = f"{type(error).__name__} in the stream"
        rest = await asyncio.gather(*waiting, return_exceptions=True)
    status = await asyncio.to_thread(page.ended, 60)
    took = time.monotonic() - began
    last = _sentence_of(heard)
    return [last, *(said(one) if isinstance(one, Heard) else repr(one) for one in rest)], took, status


def _sentence_of(heard: Heard) -> str:
    """What the visitor of the ended race reads: its verdict or an error."""
    lines = next((part for part in heard.last if isinstance(part, str) and part.startswith('{"')), "").splitlines()
    record = json.loads(lines[-1]) if lines else {}
    return str(record.get("sentence") or record.get("message") or heard.error or record.get("event"))


def is_free(port: int) -> bool:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: old connections linger
        try:
            taken.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
