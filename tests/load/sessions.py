"""Hundreds of sessions: what Gradio stores of them must not grow, and none may block the queue."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from tests.load.runs import Alone, decoded, distinct, text_of
from tests.load.served import Served, settled
from tests.load.table import Report
from tests.load.tiny import save_pair
from tests.load.web import Heard, Web, an_address, new_session, take

RUNS, EARLY, LEAVERS, AT_ONCE = 500, 50, 3000, 20
KEPT = 2000  # sessions whose messages the queue keeps: its memory grows until there are that many


def sessions(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = save_pair(Path(folder))
        alone = Alone(*pair)
        for public in (False, True):
            with Served(*pair, public=public) as page:
                asyncio.run(_on(page, public, alone, report))


async def _on(page: Served, public: bool, alone: Alone, report: Report) -> None:
    which = "public page, an address each" if public else "local page"

    def address() -> str | None:
        return an_address() if public else None

    async with Web(page.address) as web:
        right = 0
        for number in range(RUNS):
            wanted = distinct(number)
            heard = await decoded(web, wanted, address())
            right += alone.is_right(wanted, text_of(heard))
            if number + 1 == EARLY:
                early = await asyncio.to_thread(settled, page)
        late = await asyncio.to_thread(settled, page)
        growth = late.memory / early.memory - 1
        measured = f"{right} right; {early}; {late}: {growth:+.1%}"
        asked = f"each right; memory within 5 % of that after {EARLY}"
        report.note(f"{RUNS} runs, a session each, {which}", asked, measured, right == RUNS and growth <= 0.05)

        left = await _join_and_leave(web, range(KEPT), address)
        full = await asyncio.to_thread(settled, page)
        left += await _join_and_leave(web, range(KEPT, LEAVERS), address)
        after = await asyncio.to_thread(settled, page)
        wanted = distinct(RUNS)
        heard = await decoded(web, wanted, address())
        well = alone.is_right(wanted, text_of(heard))
        health = await asyncio.to_thread(page.health)
        growth = after.memory / full.memory - 1
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(left.items()))
        measured = (
            f"{told}; then a run is {'right' if well else 'WRONG'}, ok {health['ok']}; {full}; {after}: {growth:+.1%}"
        )
        whole = well and health["ok"] and not left["odd"] and growth <= 0.05
        asked = f"the queue works; memory within 5 % of that after {KEPT}"
        report.note(f"{LEAVERS} sessions that join and leave, {which}", asked, measured, whole)


async def _join_and_leave(web: Web, numbers: range, address: Callable[[], str | None]) -> Counter[str]:
    found: Counter[str] = Counter()
    chance, places = random.Random(numbers.start), asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        async with places:
            found[await _leaver(web, number, chance.random(), address())] += 1

    await asyncio.gather(*(one(number) for number in numbers))
    return found


async def _leaver(web: Web, number: int, chance: float, forwarded: str | None) -> str:
    """Ask for a run of some length. Leave without listening, after a moment in the queue, or at the first tokens."""
    session = new_session()
    joined = await web.join(session, web.functions.named("decode"), distinct(number, 64).inputs, forwarded)
    if joined.status_code != 200:
        return "refused" if joined.status_code in (429, 503) else "odd"
    if chance < 0.1:
        return "never listened"
    heard, kind = Heard(), "left waiting"
    try:
        seconds = 0.05 if chance < 0.55 else 60
        async with asyncio.timeout(seconds), aclosing(web.messages(session, forwarded)) as messages:
            async for message in messages:
                if take(heard, message):
                    ended = heard.success or "Nothing ran." in heard.error
                    return ("ran" if heard.success else "told of no place") if ended else "odd"
                if heard.outputs:
                    return "left running"
            kind = "odd"  # the stream ended without a message
    except TimeoutError:
        pass
    return kind if chance < 0.55 else "odd"
