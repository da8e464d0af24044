"""Whose requests the page answers: not those of a proxy's guests, and not those of other web sites."""

from __future__ import annotations

import pytest
from asking import DATA, JOIN, OWNER, RUN, Bare, ask, door, post

HOST = ("Host", "localhost:7860")
HERE = [HOST, ("Origin", "http://localhost:7860")]
BROWSER = [
    HOST, ("Connection", "keep-alive"), ("Cache-Control", "max-age=0"), ("sec-ch-ua", '"Chromium";v="140"'),
    ("sec-ch-ua-mobile", "?0"), ("sec-ch-ua-platform", '"Linux"'), ("Upgrade-Insecure-Requests", "1"), ("DNT", "1"),
    ("User-Agent", "Mozilla/5.0"), ("Accept", "*/*"), ("Accept-Encoding", "br"), ("Accept-Language", "en"),
    ("Cookie", "a=b"), ("Referer", "http://localhost:7860/"), ("Range", "bytes=0-"), ("If-None-Match", '"1"'),
    ("Sec-GPC", "1"), ("Priority", "u=1, i"), ("Pragma", "no-cache"), ("TE", "trailers"), ("Last-Event-ID", "1"),
    ("X-Requested-With", "XMLHttpRequest"), ("Purpose", "prefetch"), ("Sec-Purpose", "prefetch"), ("Save-Data", "on"),
    ("Authorization", "Bearer x"), ("X-Gradio-User", "api"), ("X-HF-Authorization", "x"), ("X-IP-Token", "x"),
]  # fmt: skip
PROXIES = [
    "Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
    "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded", "X-Original-Forwarded-For", "X-Vercel-Forwarded-For",
    "X-Real-IP", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "True-Client-IP", "CF-Connecting-IP",
    "CF-Connecting-IPv6", "CF-Ray", "CF-Visitor", "CF-IPCountry", "CDN-Loop", "Fastly-Client-IP", "Fly-Client-IP",
    "Akamai-Origin-Hop", "X-Akamai-Edgescape", "X-Azure-ClientIP", "X-Azure-FDID", "X-Appengine-User-IP",
    "X-Envoy-External-Address", "X-Nf-Client-Connection-IP", "DO-Connecting-IP", "X-Amz-Cf-Id", "X-Amzn-Trace-Id",
    "X-Cloud-Trace-Context", "X-ARR-Log-ID", "X-Sucuri-ClientIP", "Incap-Client-IP", "X-ProxyUser-Ip",
    "WL-Proxy-Client-IP", "Proxy-Client-IP", "X-Remote-Addr", "X-Remote-IP", "X-Originating-IP", "X-BlueCoat-Via",
    "X-Original-URL", "X-Original-Host", "X-Rewrite-URL", "X-Scheme", "X-Script-Name", "X-NginX-Proxy", "X-Varnish",
    "Surrogate-Capability", "Tailscale-User-Login", "X-SSL-Client-Verify", "Front-End-Https", "X-Request-Start",
    "Max-Forwards", "Proxy-Connection",
]  # fmt: skip


def own(headers=(HOST,), path="/config", method="GET", version="1.1", body=b""):
    """The status of a request to an owner's page, and whether the app heard of it."""
    app = Bare()
    reply = ask(door(app, names=OWNER), path, method, body, headers, peer="127.0.0.1", version=version)
    assert bool(app.paths) == (reply.status == 200)
    return reply


def public(headers, path=JOIN, proxies=0, body=b"{}"):
    return ask(door(proxies=proxies), path, "POST", body, headers).status


@pytest.mark.parametrize("header", PROXIES)
@pytest.mark.parametrize("path", ["/", DATA, "/healthz"])
def test_an_owner_s_page_has_nothing_for_a_proxy_s_guest(header, path):
    for value in ("192.0.2.9", ""):
        reply = own([*BROWSER, (header, value)], path)
        assert reply.status == 403 and reply.sentence.startswith("The request came through a proxy.")
        assert "--behind-proxy" in reply.sentence


@pytest.mark.parametrize("header", BROWSER, ids=lambda header: header[0])
def test_what_browsers_and_programs_send_is_no_sign_of_a_proxy(header):
    assert own([HOST, header]).status == own(BROWSER).status == 200


def test_a_proxy_that_adds_no_header_speaks_old_http():
    """By default nginx sends the upstream's name as the host, adds no header and speaks HTTP/1.0."""
    reply = own([("Host", "127.0.0.1:7860"), ("Connection", "close")], "/", version="1.0")
    assert reply.status == 403 and "HTTP/1.1" in reply.sentence and "--behind-proxy" in reply.sentence
    assert ask(door(), "/", version="1.0").status == 200  # a public page may stand behind one


@pytest.mark.parametrize("origin", ["http://localhost:7860", "HTTP://LOCALHOST:7860"])
def test_an_owner_s_page_takes_its_own_requests(origin):
    for site in ([], [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "cors")]):
        assert own([HOST, ("Origin", origin), *site], JOIN, "POST", body=b"{}").status == 200
        assert own([HOST, ("Origin", origin), *site], "/assets/a.js").status == 200  # fonts are asked for like this
    assert own([("Host", "localhost"), ("Origin", "http://localhost")], JOIN, "POST", body=b"{}").status == 200
    assert own([("Host", "localhost:80"), ("Origin", "http://localhost")], JOIN, "POST", body=b"{}").status == 200
    assert own([("Host", "[::1]:7860"), ("Origin", "http://[::1]:7860")], JOIN, "POST", body=b"{}").status == 200
    assert own([HOST], JOIN, "POST", body=b"{}").status == 200  # a program


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "https://evil.example", "http://localhost:7861", "http://localhost", "http://127.0.0.1:7860",
        "http://localhost:7860.evil.example", "chrome-extension://localhost:7860", "file://", "localhost:7860", "[",
        "http://localhost:7860, https://evil.example",
    ],
)  # fmt: skip
def test_an_owner_s_page_has_nothing_for_another_origin(origin):
    """Another port of this machine is another site's page as well."""
    for path, method in ((JOIN, "POST"), (RUN, "POST"), ("/config", "GET"), (DATA, "GET"), ("/healthz", "GET")):
        reply = own([HOST, ("Origin", origin)], path, method, body=b"{}" if method == "POST" else b"")
        assert reply.status == 403 and reply.sentence.startswith("The request comes from another web site.")
    assert own([*HERE, ("Origin", origin)], JOIN, "POST", body=b"{}").status == 403  # the second of two


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense", "same-origin, cross-site"])
def test_an_owner_s_page_has_nothing_for_another_site(site):
    for mode in ("cors", "no-cors", "navigate", None):
        said = [("Sec-Fetch-Site", site), *([("Sec-Fetch-Mode", mode)] if mode else [])]
        assert own([HOST, *said], JOIN, "POST", body=b"{}").status == 403
        assert own([*HERE, *said], JOIN, "POST", body=b"{}").status == 403
        assert own([HOST, *said], "/").status == (200 if mode in ("navigate", None) else 403)  # a link there


def test_a_public_page_takes_posts_of_its_own_and_of_programs():
    here = [("Host", "ME-specdec.hf.space"), ("Origin", "https://me-specdec.hf.space")]
    for trusted in (False, True):
        assert public([("Host", "page.example")], proxies=int(trusted)) == 200
        assert public(here, proxies=int(trusted)) == 200
        for site in ("same-origin", "none"):  # the proxy may have replaced the host
            said = [("Host", "127.0.0.1:7860"), ("Origin", "https://page.example"), ("Sec-Fetch-Site", site)]
            assert public(said, proxies=int(trusted)) == 200
    behind = [("Host", "127.0.0.1:7860"), ("Origin", "https://page.example:8443")]
    assert public(behind, proxies=1) == 200
    assert public([*behind, ("X-Forwarded-Host", "page.example")], proxies=1) == 200
    assert public([*behind, ("X-Forwarded-Host", "page.example:8443, inner")], proxies=1) == 200


@pytest.mark.parametrize(
    "said",
    [
        [("Sec-Fetch-Site", "cross-site")], [("Sec-Fetch-Site", "same-site")],
        [("Sec-Fetch-Site", "cross-site"), ("Origin", "https://page.example")], [("Origin", "null")],
        [("Origin", "https://evil.example"), ("X-Forwarded-Host", "page.example")],
    ],
)  # fmt: skip
def test_a_public_page_takes_no_posts_of_other_sites(said):
    for trusted in (False, True):
        for path in (JOIN, RUN, "/gradio_api/cancel", "/gradio_api/reset"):
            assert public([("Host", "page.example"), *said], path, trusted) == 403
    assert ask(door(), headers=[("Host", "page.example"), *said]).status == 200  # a Space shows it in a frame


def test_without_a_proxy_the_host_of_a_public_page_is_certain():
    assert public([("Host", "192.0.2.5:7860"), ("Origin", "http://192.0.2.5:7860")]) == 200
    assert public([("Host", "192.0.2.5:7860"), ("Origin", "https://evil.example")]) == 403
    assert public([("Host", "192.0.2.5:7860"), ("Origin", "http://192.0.2.5:7861")]) == 403


def test_refused_posts_count(monkeypatch):
    from specdec.ui.server.rate_limits import Rate

    front = door(posts=Rate(2, 0.001))
    said = [("Host", "page.example"), ("Sec-Fetch-Site", "cross-site")]
    assert [post(front, {}, headers=said).status for _ in range(3)] == [403, 403, 429]
