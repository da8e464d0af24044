"""Says whose requests the page answers."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers

from specdec.ui.admitted import Refusal


def check_owner(headers: Headers, names: frozenset[str]) -> None:
    """Refuse requests that are not from this machine: of a web site whose name leads here, or through a proxy."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        host = None
    if host not in names or "x-forwarded-for" in headers or "forwarded" in headers:
        raise Refusal(
            403,
            "Only the machine that serves this page may open it. Start it with --behind-proxy or --host to let others "
            "in.",
        )
