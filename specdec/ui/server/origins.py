"""Says whose requests the page answers.

Another web site can make a visitor's browser send requests to the page, and a proxy passes on those of its guests.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from specdec.ui.server.request_checks import Refusal

# Names of headers that proxies add for the server behind them, by what they say. Browsers and programs send none.
_PROXY = re.compile(
    r"(.*-)?(via|forward|forwarded|forwards|proxy)(-.*)?"
    r"|.*(client|real|remote|connecting|user|source|originating|external|peer)-?(connection-)?(ip|addr).*"
    r"|(x-)?(original|rewrite|ssl|tls|https|akamai|amz|amzn|appengine|arr|azure|cdn|cf|cloud|envoy|fastly|fly|incap"
    r"|nf|surrogate|tailscale|varnish|vercel)(-.*)?"
    r"|x-(host|scheme|url-scheme|script-name|request-start)|front-end-https"
)
_OTHERS = "Only the machine that serves this page may open it. Start it with --behind-proxy or --host to let others in."


def check_owner(connection: HTTPConnection, names: frozenset[str]) -> None:
    """Refuse requests that are not from this machine: of a web site whose name leads here, or through a proxy.

    A proxy need not name itself: by default nginx adds no header, but speaks HTTP/1.0. Browsers never do.
    """
    if _name(f"//{connection.headers.get('host', '')}") not in names:
        raise Refusal(403, f"The request is for another host. {_OTHERS}")
    if any(_PROXY.fullmatch(header) for header in connection.headers):
        raise Refusal(403, f"The request came through a proxy. {_OTHERS}")
    if connection.scope.get("http_version") in ("0.9", "1.0"):
        raise Refusal(403, f"The request is in old HTTP, as proxies send it; this page takes HTTP/1.1. {_OTHERS}")


def check_site(connection: HTTPConnection, owner: bool, proxied: bool) -> None:
    """Refuse requests that a browser sends for another web site. A program sends neither header, and is not refused.

    An owner's page refuses all but links to it. A public one refuses posts; others may show it in a frame.
    """
    headers, method = connection.headers, connection.scope["method"]
    sites = [site.strip().lower() for site in ",".join(headers.getlist("sec-fetch-site")).split(",") if site.strip()]
    foreign = any(site not in ("same-origin", "none") for site in sites)
    reads = method in ("GET", "HEAD")
    if owner:
        follows_link = reads and headers.get("sec-fetch-mode", "navigate") == "navigate"
        refused = (foreign and not follows_link) or _of_another(headers, False)
    else:  # a browser's word on the site counts more than the origin: behind a proxy the page's host is not certain
        refused = not reads and (foreign if sites else _of_another(headers, proxied))
    if refused:
        raise Refusal(403, "The request comes from another web site. Open this page itself and use it there.")


def _of_another(headers: Headers, proxied: bool) -> bool:
    """Whether an Origin is surely not the page's own. A trusted proxy may have replaced the page's host and port."""
    hosts = headers.getlist("host")
    if proxied:
        named = [host.strip() for value in headers.getlist("x-forwarded-host") for host in value.split(",")]
        names = {_name(f"//{host}") for host in hosts + named}
        return any(origin == "null" or (named and _name(origin) not in names) for origin in headers.getlist("origin"))
    return any(not _is_at(origin, hosts) for origin in headers.getlist("origin"))


def _is_at(origin: str, hosts: list[str]) -> bool:
    scheme, _, host = origin.lower().partition("://")
    port = {"http": ":80", "https": ":443"}.get(scheme)
    return port is not None and host.removesuffix(port) in {host.lower().removesuffix(port) for host in hosts}


def _name(address: str) -> str | None:
    """The host's name in an address, without its port."""
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
