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
# A name, "=" and a scheme or a port: an address that lacks something, or whose name has other signs.
_MEANT = re.compile(
    r"[^\n]{0,200}=\s*[A-Za-z][\w+.-]*://\S*"
    r"|[\w.-]{1,40}=(?:(?:\[[\da-fA-F:]+\]|[\w.-]+):\d{2,5}(?:/\S*)?|localhost)"
)


@dataclass(frozen=True, slots=True)
class Address:
    """A server by its name. Its address and its key stand in no text that is made of this value."""

    name: str
    url: str = field(repr=False)
    key: str | None = field(default=None, repr=False)
    model: str | None = field(default=None, repr=False)  # to ask for; None: its only one


def named_address(text: str) -> Address | None:
    """The server of ``NAME=URL``, with its key from the environment; None if the text has another form.

    Raises ``InvalidInput`` for an address that cannot be one.
    """
    found = _NAMED.fullmatch(text)
    if not found:
        return None
    name, url = found.groups()
    return Address(name, require_address(name, url), os.environ.get(key_variable(name)))


def named_addresses(words: Sequence[str]) -> list[Address | None]:
    """The server of each word; None for a word that names none. The servers, if there are any, are the first words.

    Raises ``InvalidInput`` for a first word that is meant for a server and has another form: it would be taken for a
    prompt.
    """
    found = [named_address(word) for word in words]
    if words and found[0] is None and _MEANT.fullmatch(words[0]):
        raise InvalidInput(
            "The first word looks like a server and cannot be one. Write it as plain=http://127.0.0.1:8000: a name of "
            "1 to 40 letters, digits, dots, hyphens and underscores, and an address that begins with http:// or https://."
        )
    return found


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
    """Raise ``InvalidInput`` unless these are two servers or more, each with its own name and its own address."""
    names = [each.name for each in addresses]
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput(f"Two servers are called {name}; give each its own name.")
    if len(names) < 2:
        raise InvalidInput("Name two or more servers: plain=http://127.0.0.1:8000 spec=http://127.0.0.1:8001.")
    by_address: dict[str, str] = {}
    for each in addresses:
        base = re.sub(r"(?<=//)(localhost|\[::1\])(?=[:/]|$)", "127.0.0.1", base_of(each.url))  # this machine's names
        first = by_address.setdefault(base, each.name)
        if first != each.name:
            raise InvalidInput(f"The servers {first} and {each.name} have the same address; give each its own.")


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
            server = connect(each.name, each.url, each.key, each.model or model, stopped)
            open_clients.enter_context(server.client)
            servers.append(server)
        yield servers
