"""Fifty visitors at once, each with its own runs."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.load.runs import Alone, Wanted, distinct
from tests.load.served import Served, settled
from tests.load.table import Report
from tests.load.tiny import save_pair

VISITORS, RUNS, OF_ADDRESS = 50, 3, 5
PATIENCE = 600  # seconds
FULL = re.compile(
    r"^(The queue is full|You already have \d+ jobs|Your network address already has \d+ jobs)[^\n]*Nothing ran\.$"
)


def visitors(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = save_pair(Path(folder))
        alone = Alone(*pair)
        for public in (False, True):
            with Served(*pair, public=public) as page:
                _burst(page, alone, 0, public)  # the first visitors create threads and buffers that stay
                before, began = settled(page), time.monotonic()
                found = _burst(page, alone, 1, public)
                took, after = time.monotonic() - began, settled(page, at_most=before)
            name = f"{VISITORS} visitors at once, {RUNS} runs each, {'public' if public else 'local'} page"
            asked = "each right, or told that there is no place" if public else "each right"
            told = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
            whole = found["right"] > 0 and set(found) <= ({"right", "full"} if public else {"right"})
            report.note(name, asked, f"{told} of {VISITORS * RUNS}, {took:.0f} s", whole)
            same = (
                after.memory < 1.05 * before.memory
                and after.threads <= before.threads
                and after.files <= before.files
                and after.children <= before.children
            )
            report.note(
                "the page afterwards", "memory within 5 %, no more threads or files", f"{before}; {after}", same
            )


def _burst(page: Served, alone: Alone, burst: int, public: bool) -> Counter[str]:
    with ThreadPoolExecutor(VISITORS) as pool:
        kinds = pool.map(lambda number: _visit(page, alone, burst, number, public), range(VISITORS))
        return Counter(kind for visit in kinds for kind in visit)


def _visit(page: Served, alone: Alone, burst: int, number: int, public: bool) -> list[str]:
    headers = {"X-Forwarded-For": f"81.{burst}.7.{number // OF_ADDRESS}"} if public else {}
    # ssl_verify=False: reading certificates for each stream takes 50 visitors in one process many seconds.
    client = Client(page.address, headers=headers, verbose=False, ssl_verify=False, httpx_kwargs={"timeout": PATIENCE})
    try:
        return [_run(client, alone, distinct((burst * VISITORS + number) * RUNS + at, 16)) for at in range(RUNS)]
    finally:
        client.close()


def _run(client: Client, alone: Alone, wanted: Wanted) -> str:
    """right, full, wrong (another text, or another visitor's), or an error that is not about places."""
    try:
        if wanted.seed is None and hash(wanted.prompt) % 2:
            found = client.predict(wanted.prompt, 5, wanted.tokens, api_name="/race")
            return "right" if found["same"] and found["runs"] == 1 else "wrong"
        job = client.submit(*wanted.inputs, api_name="/decode")
        job.result(PATIENCE)  # raises if the job failed; job.outputs() would wait without end
        return "right" if alone.is_right(wanted, "".join(job.outputs())) else "wrong"
    except AppError as error:
        return "full" if FULL.match(str(error)) else f"told {str(error)!r}"
    except Exception as error:
        return f"{type(error).__name__} {error}"
