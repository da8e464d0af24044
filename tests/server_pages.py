"""A page whose tab Your server asks stand-ins, and what a visitor presses there, over HTTP."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from fakes import random_table, table_pair
from server_standins import PROMPT, StandIn

from specdec.events import SamplingParams
from specdec.servers.address import Address
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.log import JobLog
from specdec.ui.jobs.server_race import ServerRace
from specdec.ui.page import Page, build
from specdec.ui.server.launch import serve
from tests.load.web import Heard, Web


class Kept(JobLog):
    """Keeps what is written about jobs, prompts and reasons included."""

    def __init__(self) -> None:
        super().__init__(prompts=True)


def served(limits: Limits, *servers: Address) -> tuple[Page, str]:
    table = random_table(8, 8, seed=0)
    pair = table_pair(table, table)
    slot = SimpleNamespace(pair=pair, facts=pair.facts(), chat=False, plan=None)
    page = build(slot, limits, journal=Kept(), servers=servers, proxies=1 if limits.public else 0)  # type: ignore[arg-type]
    return page, serve(page, quiet=True)


async def pressed(web: Web, button: str, visitor: str | None = None, **values) -> Heard:
    function = web.functions.pressed(button)
    return await web.call(function, web.functions.values(function, **values), forwarded=visitor)


def context_of(stop: threading.Event | None = None) -> JobContext:
    return JobContext(SimpleNamespace(pair=None, facts=None), lambda task: iter(()), stop or threading.Event())  # type: ignore[arg-type, return-value]


def race_of(plain: StandIn, other: StandIn, **more) -> ServerRace:
    asked = {"params": SamplingParams(max_new_tokens=24), "until_clear": False} | more
    return ServerRace((Address("plain", plain.url), Address("spec", other.url)), PROMPT, **asked)
