"""Serves the page: theme, own files, launch settings, and its end. Everything comes from this host."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
import time
from threading import Event
from typing import TYPE_CHECKING, Any

import gradio as gr

from specdec.models import sandbox
from specdec.ui.assets import ROUTE, SCRIPT, STYLE, routes
from specdec.ui.server.gateway import in_front
from specdec.ui.server.gradio_queue import bound_sessions
from specdec.ui.server.log_lines import log_tracebacks
from specdec.ui.server.logins import ADVICE
from specdec.ui.server.rate_limits import OpenStreams, Rate
from specdec.ui.static_page import ASSETS
from specdec.ui.web_private import change_templates, messages_of, queue_of

if TYPE_CHECKING:
    from specdec.ui.page import Page

MANY = 100_000  # streams and messages on one's own page: in effect no limit
SHARE_HOSTS = ("https://gradio.s3-us-west-2.amazonaws.com",)  # Gradio's scripts on a page behind a share link
SPACE_FRAMES = ("https://huggingface.co", "https://*.hf.space")  # huggingface.co shows a Space in a frame
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
MESSAGES = 2000  # that wait for a browser; a job of a public page sends fewer than 1,000
SESSIONS = 100  # with a state in Gradio, which has the last values of their fields
THREADS = 250  # more than the queue has places, so that waiting jobs cannot take all threads
BESIDE_FILES = 1_000_000  # bytes of a request besides its files, including JSON's escapes
PATIENCE = 5.0  # seconds for the running job to end when the page is stopped
LAST_WORDS = 0.5  # seconds for the last messages to reach the visitors

# Gradio's HTML sends browsers to the root of the host for the first, and names no icon, which they look for there too.
MANIFEST, ICON = '<link rel="manifest" href="{}manifest.json" />', f'<link rel="icon" href="./{ROUTE}/icon.svg" />'
# What its HTML tells the sites that show previews of links: Gradio's name and no sentence.
_PREVIEW = re.compile(r"""<meta\s+(?:property="og:|name="(?:twitter:|description"))[^>]*>\s*""")
TITLE = "specdec: speculative decoding you can watch and measure"
ABOUT = (
    "A small model guesses, a large one checks all guesses at once. Watch it round by round beside plain generate, and "
    "measure whether it pays for your models."
)

_SANS = ("-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Noto Sans", "Liberation Sans", "Arial", "sans-serif")
_MONO = ("ui-monospace", "SF Mono", "Cascadia Mono", "Menlo", "Consolas", "Liberation Mono", "monospace")


def theme() -> gr.themes.Base:
    """Gradio's plain theme in the page's colours, with fonts that every system has."""
    blue, light_blue, night = "#1d5fb8", "#6cb0f7", "#0f0f11"
    return gr.themes.Base(
        primary_hue=gr.themes.colors.blue, neutral_hue=gr.themes.colors.gray, font=_SANS, font_mono=_MONO
    ).set(
        body_background_fill="#ffffff",
        body_background_fill_dark=night,
        background_fill_primary="#ffffff",
        background_fill_primary_dark=night,
        body_text_color="#1f2937",
        body_text_color_dark="#e5e7eb",
        body_text_color_subdued="#5b6472",
        body_text_color_subdued_dark="#a3abb8",
        block_info_text_color="#5b6472",
        block_info_text_color_dark="#a3abb8",
        block_label_text_color="#374151",
        block_label_text_color_dark="#d1d5db",
        block_title_text_color="#374151",
        block_title_text_color_dark="#d1d5db",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_shadow="none",
        block_padding="0px",
        input_background_fill="#ffffff",
        input_background_fill_dark="#17181b",
        input_border_width="1px",
        input_border_color="#8a93a1",
        input_border_color_dark="#6b7280",
        input_border_color_focus=blue,
        input_border_color_focus_dark=light_blue,
        input_placeholder_color="#6b7280",
        input_placeholder_color_dark="#9ca3af",
        checkbox_border_color="#6b7280",
        checkbox_border_color_dark="#9ca3af",
        checkbox_background_color_selected=blue,
        checkbox_background_color_selected_dark="#3a7fd0",
        checkbox_border_color_selected=blue,
        checkbox_border_color_selected_dark="#3a7fd0",
        button_primary_background_fill=blue,
        button_primary_background_fill_dark=light_blue,
        button_primary_background_fill_hover="#174f9b",
        button_primary_background_fill_hover_dark="#8cc2fa",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark=night,
        button_secondary_background_fill="transparent",
        button_secondary_background_fill_dark="transparent",
        button_secondary_background_fill_hover="#f3f4f6",
        button_secondary_background_fill_hover_dark="#24262b",
        button_secondary_border_color="#8a93a1",
        button_secondary_border_color_dark="#6b7280",
        button_secondary_text_color="#1f2937",
        button_secondary_text_color_dark="#e5e7eb",
        button_border_width="1px",
    )


def serve(page: Page, root_path: str = "", **options: Any) -> str:
    """Serve a page in the background with its theme, files and gateway. Returns its local address.

    ``root_path`` is the path under which a proxy shows the page, such as "/tool", whether or not the proxy passes it
    on. ``options`` are others of ``launch``.
    """
    jobs, limits = page.jobs, page.jobs.limits
    streams = OpenStreams(jobs.left) if limits.public else OpenStreams(jobs.left, MANY, MANY)
    queue = queue_of(page.demo)
    bound_sessions(queue, streams.listening, MESSAGES if limits.public else MANY)
    log_tracebacks()
    change_templates(_named_by_path)
    change_templates(_with_preview)
    change_templates(_read_quickly)
    change_templates(_fetched_early)
    jobs.listening = streams.listening
    launched = Event()
    gateway = {"streams": streams, "health": page.health, "proxies": jobs.proxies}
    gateway["launched"] = launched.is_set
    gateway["joined"] = messages_of(queue).__contains__
    gateway["max_body"] = 2 * limits.file_bytes + BESIDE_FILES  # a benchmark has two files
    if not limits.public:
        gateway |= {name: Rate(math.inf, 1) for name in ("requests", "posts", "sent", "checks")}
        gateway["names"] = LOOPBACK | {options.get("server_name") or "127.0.0.1"}
    if options.get("share"):
        gateway["hosts"] = SHARE_HOSTS
    if os.environ.get("SPACE_ID"):
        gateway["frames"] = SPACE_FRAMES
    # Uvicorn would put an address of X-Forwarded-For in place of the peer's, which the gateway needs.
    os.environ["FORWARDED_ALLOW_IPS"] = ""
    _, address, _ = page.demo.launch(
        theme=theme(),
        # Linked and not passed as ``css``, because Gradio would limit each rule to its own elements.
        head=f'<link rel="stylesheet" href="{STYLE}">',
        app_kwargs={"routes": routes(), "lifespan": in_front(**gateway)},
        auth_message=ADVICE,
        ssr_mode=False,
        show_error=False,
        enable_monitoring=False,
        state_session_capacity=SESSIONS,
        max_threads=THREADS,
        footer_links=[],
        prevent_thread_lock=True,
        root_path=root_path,  # given even if it is empty, or Gradio would read its variable
        **options,
    )
    launched.set()
    return address


def serve_until_stopped(page: Page, **options: Any) -> None:
    """Serve a page until the process is told to end (SIGINT, SIGTERM) or its device is lost; then end it.

    Waiting visitors are told, and the running job ends with its findings so far.
    """
    stopped: list[str] = []
    page.jobs.on_lost = lambda: stopped.append("lost")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stopped.append("asked"))
    serve(page, **options)
    while not stopped:
        time.sleep(0.2)
    with contextlib.suppress(OSError):  # a closed pipe must not keep visitors from being told
        print("Stopping.", flush=True)
    ended = page.jobs.close("The page is being stopped. Try again in a minute. Nothing ran.", PATIENCE)
    time.sleep(LAST_WORDS)
    page.demo.close()
    sandbox.end()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    status = 1 if "lost" in stopped else 0
    if status or not ended:
        os._exit(status)  # a hanging pass would keep the interpreter from exiting
    sys.exit(status)


def _named_by_path(template: str) -> str:
    """Gradio's HTML, so that a page under a path asks for nothing outside of that path."""
    return template.replace(MANIFEST.format("/"), MANIFEST.format("./") + ICON)


def _with_preview(template: str) -> str:
    """Gradio's HTML with the page's own title, sentence and picture for previews of links to it."""
    host = os.environ.get("SPACE_HOST")  # of a Space; a picture needs a whole address
    picture = f"{f'https://{host}' if host else '.'}/{ROUTE}/preview.png"
    told = {"og:type": "website", "og:title": TITLE, "og:description": ABOUT, "og:image": picture}
    lines = [f'<meta property="{name}" content="{value}" />' for name, value in told.items()]
    lines += [
        f'<meta name="description" content="{ABOUT}" />',
        '<meta name="twitter:card" content="summary_large_image" />',
    ]
    return _PREVIEW.sub("", template).replace("</head>", "\n".join([*lines, "</head>"]), 1)


def _fetched_early(template: str) -> str:
    """Gradio's HTML with links to the page's own style and script, for which Gradio asks once it has built the page.

    A login page has none, because it may not have these files.
    """
    links = f'<link rel="preload" as="style" href="./{STYLE}" />\n<link rel="modulepreload" href="./{SCRIPT}" />\n'
    links = f'{{% if not config.get("auth_required") %}}\n{links}{{% endif %}}\n'
    return template.replace("</head>", f"{links}</head>", 1)


def _read_quickly(template: str) -> str:
    """Gradio's HTML with a script that makes the page's config quick to read. As a file it could come too late."""
    script = (ASSETS / "gradio_config.js").read_text(encoding="utf-8")
    return template.replace("</head>", f"<script>\n{script}</script>\n</head>", 1)
