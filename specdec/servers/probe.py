"""What a server says of itself before any call: the pages that engines are recognised by."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from specdec.errors import InvalidInput, ServerFailed
from specdec.servers.answer import Counts
from specdec.servers.client import Client

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{[^}]*\})? ([0-9.eE+]+)(?: \d+)?$", re.MULTILINE)
LONGEST_NAME = 200


@dataclass(frozen=True)
class Probe:
    """The answers of a server.

    - ``model``: the name that requests need; ``owner``: who made the list of models, which engines write their name
      into.
    - ``pages``: the JSON of the pages that tell an engine, by path; a page that is missing is left out.
    - ``metrics``: the counters of ``/metrics``, summed over their labels; empty where there is none.
    """

    model: str
    owner: str
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    def page(self, path: str) -> dict[str, Any]:
        return self.pages.get(path, {})


PAGES = ("/version", "/props", "/get_server_info", "/v1/internal/model/info")


def probe(client: Client, model: str | None = None) -> Probe:
    """Ask a server who it is. ``model``: the name of one of its models; needed where it serves several.

    Raises ``ServerFailed`` if it cannot be reached, and ``InvalidInput`` if the model is not known.
    """
    listed = client.json("/v1/models")
    found = [each for each in listed.get("data") or () if isinstance(each, dict)] if isinstance(listed, dict) else []
    names = [each["id"] for each in found if isinstance(each.get("id"), str)]
    if model is None and len(names) > 1:
        some = ", ".join(name[:LONGEST_NAME] for name in names[:5])
        raise InvalidInput(f"The server {client.name} serves several models ({some}); name one with --model.")
    if model is None and not names:
        raise InvalidInput(f"The server {client.name} does not list its models; name its model with --model.")
    chosen = model if model is not None else names[0]
    if len(chosen) > LONGEST_NAME:
        raise ServerFailed(f"The server {client.name} has a model name of more than {LONGEST_NAME} characters.")
    owners = [each.get("owned_by") for each in found if each.get("id") == chosen]
    pages = {path: page for path in PAGES if isinstance(page := client.json(path), dict)}
    return Probe(chosen, next((owner for owner in owners if isinstance(owner, str)), ""), pages, metrics_of(client))


def metrics_of(client: Client) -> dict[str, float]:
    """The counters of a server, summed over their labels; empty where it has none."""
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(client.text("/metrics") or ""):
        try:
            found[name] = found.get(name, 0.0) + float(value)
        except ValueError:
            continue  # not a number after all, such as "1e"
    return found


def difference(before: Counts | None, after: Counts | None) -> Counts | None:
    """What was counted between two readings; None where one is missing or a counter went back."""
    if before is None or after is None:
        return None
    found = Counts(after.steps - before.steps, after.drafted - before.drafted, after.accepted - before.accepted)
    return found if min(found.steps, found.drafted, found.accepted) >= 0 else None
