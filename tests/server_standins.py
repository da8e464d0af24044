"""Small servers on this machine that answer as inference servers do, for tests without one.

``vllm`` tells every round, as vLLM 0.32 does with ``--per-request-spec-decode-metrics detailed``; ``plain`` is the same
without speculation; ``text`` speaks OpenAI's protocol and tells nothing else.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from servers.exchanges import send, serving

Kind = Literal["plain", "vllm", "text"]
PROMPT = "Once upon a time"
PIECES = [PROMPT[:4], " upon", " a", " time"]
STORY = (
    ", a robot named Spot lived in a small house. It liked to sing, and it sang for the birds in the garden . One day "
    "a big cat came in, and the robot hid its red ball under a tree. The cat was kind, so they played until dark ."
)
WORDS = [f" {word}" for word in STORY.split(" ")[1:]]
GUESSES = 4
KEPT = (2, 4, 0, 3, 4, 1, 4, 2)  # of the guesses of each step, again and again
PAUSE = 0.001  # seconds between two pieces; a reader that gets them together knows no times
PIECE_OF = dict(enumerate([*PIECES, ",", *WORDS]))


class StandIn:
    """A server of a kind, in a ``with`` statement. ``asked`` has each request: its path, its headers and its body.

    While ``go_on`` is clear, an answer waits before its next piece.
    """

    def __init__(self, kind: Kind):
        self.kind, self.asked, self.go_on = kind, [], threading.Event()  # type: ignore[var-annotated]
        self.go_on.set()
        self._running = ExitStack()

    def __enter__(self) -> StandIn:
        self.url = self._running.enter_context(serving(self._answer))
        self.port = int(self.url.rpartition(":")[2])
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._running.close()

    def page(self, path: str) -> Any:
        """What a GET answers; None for no such page."""
        if path == "/v1/models":
            return {"data": [{"id": "tiny", "owned_by": "somebody" if self.kind == "text" else "vllm"}]}
        if path == "/version" and self.kind != "text":
            return {"version": "0.32.0"}
        if path == "/metrics" and self.kind != "text":
            names = ["vllm:num_requests_running"]
            if self.kind == "vllm":
                counted = ("drafts", "draft_tokens", "accepted_tokens")
                names += [f"vllm:spec_decode_num_{name}_total" for name in counted]
            return "".join(f"{name} 0.0\n" for name in names)
        return None

    def events(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The events of a completion."""
        ids = [len(PIECES) + at % (len(WORDS) + 1) for at in range(body["max_tokens"])]
        sizes, accepted = [1], []
        while sum(sizes) < len(ids):
            kept = KEPT[len(accepted) % len(KEPT)] if self.kind == "vllm" else 0
            sizes.append(kept + 1)
            accepted.append(kept)
        at = 0
        for size in sizes:
            taken = ids[at : at + size]
            at += size
            choice: dict[str, Any] = {"text": "".join(PIECE_OF[i] for i in taken), "finish_reason": None}
            choice["finish_reason"] = "length" if at >= len(ids) else None
            if self.kind != "text":
                choice["token_ids"] = taken
                choice["prompt_token_ids"] = list(range(len(PIECES)))
            yield {"choices": [choice]}
        last: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": len(ids)}}
        if self.kind == "vllm":
            steps = {"per_step_accepted": accepted, "per_step_drafted": [GUESSES] * len(accepted)}
            last["metrics"] = {"speculative_decoding": {"num_spec_tokens": GUESSES, **steps}}
        yield last

    def _answer(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        self.asked.append((handler.path, dict(handler.headers), body))
        found = None
        if body is None:
            found = self.page(handler.path)
        elif handler.path == "/detokenize" and self.kind != "text":
            found = {"prompt": "".join(PIECE_OF[i] for i in body["tokens"])}
        elif handler.path in ("/v1/completions", "/v1/chat/completions"):
            return self._stream(handler, body)
        text = found if isinstance(found, str) else json.dumps(found or {})
        kind = "text/plain" if isinstance(found, str) else "application/json"
        return send(handler, 404 if found is None else 200, kind, text.encode())

    def _stream(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        for event in self.events(body):
            self.go_on.wait()
            handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            time.sleep(PAUSE)
        handler.wfile.write(b"data: [DONE]\n\n")


class Dying(StandIn):
    """Breaks the connection of every call after the first ``calls`` ones."""

    def __init__(self, calls: int):
        super().__init__("vllm")
        self._left = calls

    def _stream(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self._left -= 1
        if self._left < 0:
            handler.close_connection = True
        else:
            super()._stream(handler, body)
