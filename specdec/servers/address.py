"""Addresses of servers: who may name one, where its key comes from, and what must never be shown of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from specdec.errors import InvalidInput
from specdec.servers.client import base_of, key_variable, never
from specdec.servers.lane import Server, connect

_NAMED = re.compile(r"([\w.-]{1,40})=(https?://.+)")


@dataclass(frozen=True, slots=True)
class Address:
    """A server by its name. Its address and its key stand in no text that is made of this value."""

    name: str
    url: str = field(repr=False)
    key: str | None = field(default=None, repr=False)


def named_address(text: str) -> Address | None:
    """The server of ``NAME=URL``, with its key from the environment; None if the text has another form.

    Raises ``InvalidInput`` for an address that cannot be one.
    """
    found = _NAMED.fullmatch(text)
    if not found:
        return None
    name, url = found.groups()
    return Address(name, require_address(name, url), os.environ.get(key_variable(name)))


def require_address(name: str, url: str) -> str:
    """Return ``url``. Raises ``InvalidInput``, in a sentence without it, unless it can be the address of a server."""
    try:
        base_of(url)
    except InvalidInput:
        raise InvalidInput(
            f"The address of the server {name} cannot be used; give one such as http://127.0.0.1:8000, without a key, "
            "a user or a query."
        ) from None
    return url


def require_names(addresses: Sequence[Address]) -> None:
    """Raise ``InvalidInput`` unless these are two servers or more, each with its own name."""
    names = [each.name for each in addresses]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"Two servers are called {name}; give each its own name.")
    if len(names) < 2:
        raise InvalidInput("Name two or more servers: plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001.")


@contextmanager
def connected(
    addresses: Sequence[Address], model: str | None = None, stopped: Callable[[], bool] = never
) -> Iterator[list[Server]]:
    """The servers at these addresses, in order. Their clients are closed at the end.

    ``stopped``: where it is true, every call of these servers ends with ``ServerFailed``, also this first one.
    """
    with ExitStack() as open_clients:
        servers = []
        for each in addresses:
            server = connect(each.name, each.url, each.key, model, stopped)
            open_clients.enter_context(server.client)
            servers.append(server)
        yield servers
