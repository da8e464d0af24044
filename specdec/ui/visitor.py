"""Who asks for something: a session of a browser or a program, and the network address that it comes from."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, NamedTuple

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|([0-9.]+):\d{1,5}", re.ASCII)


class Visitor(NamedTuple):
    """``session`` is a browser tab or a client; ``address`` the network address that it comes from."""

    session: str
    address: str


def address_of(request: Any, proxies: int | None) -> str:
    """The address of a request: an IPv4 address, or an IPv6 /64 network, because a visitor has a whole one.

    ``request`` is a Starlette request or Gradio's. ``proxies`` is the number of trusted proxies in front of the page,
    each of which appends the address that it was called from to X-Forwarded-For. So the visitor's address is that entry
    from the end, whatever address it is; the entries before it may be invented. If there is no such entry, or it is no
    address, the peer's own counts. It also counts if it is public: a visitor in reach of the page without the proxies
    could invent the whole list.

    None means that the number is not known. Then it is the last public address of the list.
    """
    address = _parsed(request.client.host) if request.client else None
    if proxies != 0 and address is not None and not address.is_global:
        entries = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        found = _last_public(entries) if proxies is None else _entry(entries, proxies)
        address = found or address
    if address is None:
        return "unknown"
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def _entry(entries: list[str], from_end: int) -> _Address | None:
    return _parsed(entries[-from_end]) if from_end <= len(entries) else None


def _last_public(entries: list[str]) -> _Address | None:
    for entry in reversed(entries):
        address = _parsed(entry)
        if address is None:
            return None  # stop here: a client may have invented the addresses before it
        if address.is_global:
            return address
    return None


def _parsed(text: str) -> _Address | None:
    """The address of a peer or of an entry, which may have a port: ``192.0.2.1:80``, ``[2001:db8::1]:80``."""
    text = text.strip()
    if found := _WITH_PORT.fullmatch(text):
        text = found[1] or found[2]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
