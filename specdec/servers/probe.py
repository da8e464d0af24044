"""What a server says of itself before any call: the pages that engines are recognised by."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, field
from typing import Any

from specdec.errors import InvalidInput, ServerFailed
from specdec.servers.answer import Counts
from specdec.servers.client import PATIENCE, Client, one_line

# A line of /metrics: https://prometheus.io/docs/instrumenting/exposition_formats/. Its parts have lengths, so that no
# page takes long to search.
_SAMPLE = re.compile(
    r"^([A-Za-z_:][A-Za-z0-9_:]{0,199})(?:\{(?:[^}\"\n]|\"(?:[^\"\\\n]|\\.){0,500}\"){0,500}\})?"
    r"[ \t]{1,9}([0-9.eE+]{1,40})(?:[ \t]{1,9}\d{1,20})?[ \t\r]{0,9}$",
    re.MULTILINE,
)
MOST_COUNTERS = 10_000
LONGEST_NAME = 200
LONGEST_VERSION = 50


@dataclass(frozen=True)
class Probe:
    """The answers of a server.

    - ``model``: the name that requests need; ``owner``: who made the list of models, which engines write their name
      into.
    - ``pages``: the JSON objects of the pages that tell an engine, by path: one, or those of a list. A page that is
      missing is left out.
    - ``metrics``: the counters of ``/metrics``, summed over their labels; empty where there is none.
    """

    model: str
    owner: str
    pages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    def page(self, path: str) -> dict[str, Any]:
        """The first object of a page; without any, an empty one."""
        return next(iter(self.pages.get(path, [])), {})

    def version(self, path: str, name: str = "version") -> str:
        """A version that stands in a page; "" if it does not."""
        found = self.page(path).get(name)
        return one_line(found, LONGEST_VERSION) if isinstance(found, str) else ""


# Of vLLM; llama.cpp's server (two); SGLang, under its name of today and the one before.
PAGES = ("/version", "/props", "/slots", "/server_info", "/get_server_info")


def probe(client: Client, model: str | None = None, seconds: float = PATIENCE) -> Probe:
    """Ask a server who it is. ``model``: the name of one of its models; needed where it serves several.

    ``seconds`` is the deadline of all its pages together. Raises ``ServerFailed`` if it cannot be reached, and
    ``InvalidInput`` if the model is not known.
    """
    end = time.perf_counter() + seconds
    listed = client.json("/v1/models", seconds=seconds, needed=True)
    found = _objects(listed.get("data")) if isinstance(listed, dict) else []
    names = [each["id"] for each in found if "id" in each]
    chosen = _only(names, client.name) if model is None else _named(names, model)
    owners = [each.get("owned_by") for each in found if each.get("id") == chosen]
    pages: dict[str, list[dict[str, Any]]] = {}
    for path in PAGES:
        page = client.json(path, seconds=end - time.perf_counter())
        pages |= {path: [page] if isinstance(page, dict) else _objects(page)}
    metrics = metrics_of(client, end - time.perf_counter())
    return Probe(chosen, next((owner for owner in owners if isinstance(owner, str)), ""), pages, metrics)


def _named(names: list[Any], model: str) -> str:
    """The model that is called so. Messages show the last part of a folder's name, so that part is enough."""
    alike = {name for name in names if isinstance(name, str) and shown_name(name) == model}
    return alike.pop() if len(alike) == 1 and model not in names else model


def _objects(page: Any) -> list[dict[str, Any]]:
    return [each for each in page if isinstance(each, dict)] if isinstance(page, list) else []


def shown_name(model: str) -> str:
    """The name of a model for people who open a recording: of a folder the last part, as of a pair's."""
    folder = re.match(r"[/~.\\]|[A-Za-z]:[/\\]", model)
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1] if folder else model


def _only(names: list[Any], server: str) -> str:
    """The name of a server's only model. Raises ``InvalidInput`` where it has several or none, or one that is none."""
    names = list(dict.fromkeys(name for name in names if isinstance(name, str))) or names[:1]
    if not names:
        raise InvalidInput(f"The server {server} does not list its models; name its model with --model.")
    if len(names) > 1:
        some = ", ".join(one_line(shown_name(str(name)), LONGEST_NAME) for name in names[:5])
        where = "with --model, or in the field Model where addresses are typed"
        raise InvalidInput(f"The server {server} serves several models ({some}); name one {where}.")
    name = names[0]
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise ServerFailed(
            f"The server {server} has a model whose name is no text of 1 to {LONGEST_NAME} characters without control "
            "characters."
        )
    return name


def metrics_of(client: Client, seconds: float = PATIENCE) -> dict[str, float]:
    """The counters of a server, summed over their labels; empty where it has none."""
    found: dict[str, float] = {}
    for sample in _SAMPLE.finditer(client.text("/metrics", seconds) or ""):
        name = sample[1]
        try:
            total = found.get(name, 0.0) + float(sample[2])
        except ValueError:
            continue  # not a number after all, such as "1e"
        if math.isfinite(total):
            found[name] = total
        if len(found) > MOST_COUNTERS:
            break
    return found


def difference(before: Counts | None, after: Counts | None) -> Counts | None:
    """What was counted between two readings; None where one is missing, where a counter went back, and where
    they contradict each other, as after a restart.
    """
    if before is None or after is None:
        return None
    found = Counts(after.steps - before.steps, after.drafted - before.drafted, after.accepted - before.accepted)
    fit = 0 <= found.steps <= found.drafted and 0 <= found.accepted <= found.drafted
    return found if fit else None
