"""Visitors leave at random moments of every kind of work; the machine must be free within a second."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import median

from tests.load.runs import Alone, Wanted, decoded, text_of
from tests.load.served import Served
from tests.load.table import Report
from tests.load.web import Web, new_session

LEAVERS = 200
SECOND = 1.0
NEXT = Wanted("Once upon a time", 4)
LONG = "Once upon a time there was a little girl named Lily who went to the park with her mother. " * 40


def leavers(report: Report) -> None:
    """Run this part with the embedded pair, whose passes take longer than those of the tiny pair."""
    with Served() as page:
        asyncio.run(_on(page, report))


async def _on(page: Served, report: Report) -> None:
    chance, alone = random.Random(11), Alone()
    times: dict[str, list[float]] = {}
    wrong = 0
    async with Web(page.address) as web:
        kinds = _kinds(web)
        for number in range(LEAVERS):
            kind = list(kinds)[number % len(kinds)]
            function, values = kinds[kind]
            times.setdefault(kind, []).append(await _left(web, kind, function, values, chance.random()))
            heard = await decoded(web, NEXT)
            wrong += not alone.is_right(NEXT, text_of(heard))
            if number % 12 == 11:
                print(f"  {number + 1} left, worst {max(map(max, times.values())):.3f} s, {wrong} wrong", flush=True)
    for kind, found in times.items():
        measured = f"median {median(found):.3f} s, worst {max(found):.3f} s"
        report.note(f"{len(found)} visitors leave {kind}", "machine free within 1 s", measured, max(found) <= SECOND)
    report.note(f"the run after each of {LEAVERS}", "right", f"{wrong} wrong", not wrong)


def _kinds(web: Web) -> dict[str, tuple[int, list]]:
    run, sweep, record, test = map(
        web.functions.pressed, ("sd-run", "sd-gamma-start", "sd-whatif-start", "sd-lossless-start")
    )
    of = web.functions.values
    return {
        "while they wait": (run, of(run, sd_tokens=64)),
        "in a prefill": (run, of(run, sd_prompt=LONG, sd_tokens=8)),
        "in a race": (run, of(run, sd_tokens=512, sd_ignore=True)),
        "in a sweep": (sweep, of(sweep)),
        "in what-if": (record, of(record)),
        "in the losslessness test": (test, of(test)),
    }


async def _left(web: Web, kind: str, function: int, values: list, chance: float) -> float:
    """Seconds from a visitor's leaving until the machine is free, or until the queue is empty if the visitor waited."""
    waits = kind == "while they wait"
    before = asyncio.create_task(_hold(web, chance + 1)) if waits else None
    if before is not None:
        await _until(web, lambda health: health["running"] is not None)
    session = new_session()
    assert (await web.join(session, function, values)).status_code == 200
    stream = web.messages(session)
    if waits:
        await anext(stream)
        await asyncio.sleep(chance / 2)
    else:
        async for message in stream:
            if message["msg"] == "process_generating":
                break
        await asyncio.sleep(chance * (0.3 if kind == "in a prefill" else 1))
    left = time.monotonic()
    await stream.aclose()
    await _until(web, lambda health: not health["waiting"] if waits else health["running"] is None)
    took = time.monotonic() - left
    if before is not None:
        await before
        await _until(web, lambda health: health["running"] is None)
    return took


async def _hold(web: Web, seconds: float) -> None:
    """Another visitor, who holds the machine for ``seconds``."""
    function = web.functions.pressed("sd-run")
    session = new_session()
    await web.join(session, function, web.functions.values(function, sd_tokens=2048, sd_ignore=True))
    try:
        async with asyncio.timeout(seconds):
            async for _ in web.messages(session):
                pass
    except TimeoutError:
        pass


async def _until(web: Web, so) -> None:
    end = time.monotonic() + 120
    while not so(await web.health()):
        if time.monotonic() > end:
            raise TimeoutError("The machine did not become free.")
        await asyncio.sleep(0.01)
