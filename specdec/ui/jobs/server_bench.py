"""A benchmark of two servers over many prompts, as a visitor asks for it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from specdec.measure.kept import Begun
from specdec.measure.plan import Plan, Trial
from specdec.measure.results.text import ResultsText, plan_head
from specdec.servers.address import connected
from specdec.servers.bench import server_trials, servers_plan
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.server_race import ServerRace, Turn, until_over


@dataclass
class ServersCalls:
    """The calls of a benchmark. ``engines``: those of both servers with their versions, once they have answered."""

    ask: ServerRace
    asked: Plan
    engines: list[str] = field(default_factory=list)

    def run(self, context: JobContext, limits: Limits) -> Generator[Begun | Trial | None, None, None]:
        """Yield a ``Begun``, then each call when it has ended. A Stop and the page's limit end it early.

        The servers are warmed up before, with the first prompt.
        """
        turn = Turn(context, limits)
        with until_over(turn), connected(self.ask.servers, self.ask.model, turn.over) as servers:
            self.engines = [" ".join(filter(None, [each.engine.name, each.version])) for each in servers]
            seconds = turn.left()
            found = servers_plan(servers, self.asked, seconds)
            yield Begun(ResultsText(found.plan, plan_head(found.about, found.plan)), [])
            yield from server_trials(servers, found, seconds)
