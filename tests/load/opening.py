"""Visitors open results while one address sends what takes long, and nobody may wait for it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from specdec.ui.tabs.results_io import RECORDED
from tests.load.runs import Alone, decoded, distinct, text_of
from tests.load.served import Served, settled
from tests.load.table import Report
from tests.load.tiny import save_pair
from tests.load.web import Web, an_address, new_session

VISITORS, EACH, POSTS, AT_ONCE = 10, 5, 399, 20
ATTACK = 30  # requests at once, and then four a second
MOST = 10.0  # seconds for which a visitor waits for results


def opening(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = save_pair(Path(folder))
        with Served(*pair, public=True) as page:
            asyncio.run(_on(page, Alone(*pair), report))


async def _on(page: Served, alone: Alone, report: Report) -> None:
    record = (RECORDED / "recorded_bench.jsonl").read_text(encoding="utf-8")
    link = {"text": record}
    async with Web(page.address) as web:
        by_link, by_file = linked(web, "bench"), web.functions.pressed("sd-bench-open")
        heavy = [(by_link, [{"text": "x" * 63_000}]), (by_file, [_file(_large(record))])]

        async def attack(seconds: float) -> int:
            sent, end, home = [], time.monotonic() + seconds, an_address()
            while time.monotonic() < end:
                function, values = heavy[len(sent) % 2]
                sent.append(asyncio.create_task(web.call(function, values, forwarded=home, seconds=120)))
                await asyncio.sleep(0.25 if len(sent) > ATTACK else 0)
            await asyncio.gather(*sent)
            return len(sent)

        async def visit() -> list[float]:
            home, took = an_address(), []
            for _ in range(EACH):
                began = time.monotonic()
                heard = await web.call(by_link, [link], forwarded=home, seconds=120)
                took.append(time.monotonic() - began)
                await asyncio.sleep(1)
                assert heard.success and ("sd-verdict" in heard.text or "Nothing ran." in heard.text), heard.text[-300:]
            return took

        attacked = asyncio.create_task(attack(30))
        waits = sorted(
            seconds for visit in await asyncio.gather(*(visit() for _ in range(VISITORS))) for seconds in visit
        )
        sent = await attacked
        measured = f"median {waits[len(waits) // 2]:.2f} s, worst {waits[-1]:.2f} s"
        asked = f"none waits over {MOST:.0f} s"
        name = f"{len(waits)} links opened while one address sends {sent} that take long"
        report.note(name, asked, measured, waits[-1] <= MOST)

        early = await _posts(page, web, by_file, record)
        late = await _posts(page, web, by_file, record)
        growth = late[0].memory / early[0].memory - 1
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(late[1].items()))
        report.note(
            f"{POSTS} files of 1 MB, an address each, twice",
            "memory within 5 %",
            f"{told}; {growth:+.1%}",
            growth <= 0.05,
        )
        heard = await decoded(web, distinct(1), an_address())
        right = alone.is_right(distinct(1), text_of(heard))
        report.note("a run afterwards", "right", "right" if right else "WRONG", right)


def linked(web: Web, key: str) -> int:
    """The function that opens the results of a link."""
    return next(n for n, row in web.functions.rows.items() if key in [event for _, event in row["targets"]])


def _file(text: str) -> dict[str, str]:
    return {"name": "a.results.jsonl", "text": text}


def _large(record: str) -> str:
    """A file of nearly 1 MB whose lines are no calls."""
    return record.splitlines()[0] + "\n{}" * 330_000


async def _posts(page: Served, web: Web, function: int, record: str) -> tuple[Any, Counter[str]]:
    found: Counter[str] = Counter()
    places, value = asyncio.Semaphore(AT_ONCE), [_file(_large(record))]

    async def one(number: int) -> None:
        async with places:
            if number % 2:
                heard = await web.call(function, value, forwarded=an_address(), seconds=120)
                found["answered" if heard.success else f"failed {heard.error[:60]}"] += 1
            else:  # nobody listens
                found[str((await web.join(new_session(), function, value, an_address())).status_code)] += 1

    await asyncio.gather(*(one(number) for number in range(POSTS)))
    return await asyncio.to_thread(settled, page), found
