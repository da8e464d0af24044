"""A small server that decodes from a table, with or without speculation, and with a fault if asked for.

It speaks the protocol of vLLM, so ``specdec.servers`` takes it for one. Its speculation is written here from the paper
alone (Leviathan et al. 2211.17192), without any code of specdec.
"""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any

from servers import exchanges
from servers.exchanges import send

WORDS = [" a", " b", " c", " d", " e", "."]
END = 5  # the last word ends a text


class Table:
    """A Markov chain over ``WORDS``: logits of the next word by the last one, for a target and for its draft."""

    def __init__(self, seed: int = 3, unlike: float = 1.0) -> None:
        rng = random.Random(seed)
        self.target = [[rng.gauss(0, 2) for _ in WORDS] for _ in WORDS]
        self.draft = [[value + unlike * rng.gauss(0, 1) for value in row] for row in self.target]

    def shares(self, rows: list[list[float]], last: int, temperature: float) -> list[float]:
        if temperature == 0:
            best = max(rows[last])
            return [float(value == best) for value in rows[last]]
        scaled = [math.exp(value / temperature) for value in rows[last]]
        return [value / sum(scaled) for value in scaled]


def decode(
    table: Table, prompt: list[int], asked: dict[str, Any], gamma: int, fault: str
) -> tuple[list[list[int]], list[int], list[int]]:
    """The tokens of each step, and of the steps with guesses how many were made and kept."""
    rng, temperature = random.Random(asked.get("seed")), float(asked["temperature"])
    most, ends = int(asked["max_tokens"]), not asked.get("ignore_eos")

    def drawn(shares: list[float]) -> int:
        return rng.choices(range(len(shares)), shares)[0]

    text = list(prompt)
    first = drawn(table.shares(table.target, text[-1], temperature))
    text.append(first)
    steps, made, kept = [[first]], [], []
    while len(text) - len(prompt) < most and not (ends and text[-1] == END):
        guesses, q = [], []
        for _ in range(gamma):
            shares = table.shares(table.draft, (text + guesses)[-1], temperature)
            best = max(range(len(shares)), key=shares.__getitem__)
            guesses.append(best if fault == "argmax" else drawn(shares))
            q.append(shares)
        step: list[int] = []
        for at, guess in enumerate(guesses):
            last = (text + guesses[:at])[-1]
            if fault == "stale" and at:
                last = (text + guesses[: at - 1])[-1]
            p = table.shares(table.target, last, temperature)
            if rng.random() < p[guess] / max(q[at][guess], 1e-300):
                step.append(guess)
                continue
            rest = p if fault == "residual" else [max(0.0, a - b) for a, b in zip(p, q[at], strict=True)]
            step.append(drawn(rest if sum(rest) else p))
            break
        else:
            step.append(drawn(table.shares(table.target, (text + guesses)[-1], temperature)))
        if gamma:
            made.append(gamma)
            kept.append(len(step) - 1)
        if ends and END in step:
            step = step[: step.index(END) + 1]
        step = step[: most - (len(text) - len(prompt))]
        steps.append(step)
        text += step
    if fault == "cut":
        steps = steps[:-2] or steps[:1]
        made, kept = made[: len(steps) - 1], kept[: len(steps) - 1]
    return steps, made, kept


class TableServer:
    """``gamma`` 0 serves without speculation. ``nudge`` is added to the logit of one word; ``batch_nudge`` in all calls
    after the first, as if these came together."""

    def __init__(self, table: Table, gamma: int = 0, fault: str = "", nudge: float = 0.0, batch_nudge: float = 0.0):
        self.table, self.gamma, self.fault = table, gamma, fault
        self.nudge, self.batch_nudge = nudge, batch_nudge
        self.calls, self.lock = 0, threading.Lock()
        self.counters = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0}

    def rows(self) -> Table:
        nudge = self.nudge + (self.batch_nudge if self.calls > 1 else 0.0)
        found = Table.__new__(Table)
        found.target = [[value + nudge * (place == 1) for place, value in enumerate(row)] for row in self.table.target]
        found.draft = self.table.draft
        return found


def _answer(served: TableServer, handler: BaseHTTPRequestHandler, asked: Any) -> None:
    if asked is None:
        _page(served, handler)
    elif handler.path == "/detokenize":
        _send(handler, json.dumps({"prompt": "".join(WORDS[i] for i in asked["tokens"])}))
    else:
        given = asked["prompt"]
        prompt = given if isinstance(given, list) else [ord(sign) % 5 for sign in given]
        if asked.get("stream"):
            _send(handler, _streamed(served, asked, prompt), "text/event-stream")
        else:
            _send(handler, _likely(served, prompt))


def _send(handler: BaseHTTPRequestHandler, text: str, kind: str = "application/json") -> None:
    send(handler, 200, kind, text.encode())


def _page(served: TableServer, handler: BaseHTTPRequestHandler) -> None:
    counters = "".join(
        f'vllm:spec_decode_num_{name}_total{{engine="0"}} {value}.0\n' for name, value in served.counters.items()
    )
    pages = {
        "/v1/models": json.dumps({"data": [{"id": "table", "owned_by": "vllm"}]}),
        "/version": json.dumps({"version": "table"}),
        "/metrics": "vllm:requests 1\n" + (counters if served.gamma else ""),
    }
    if handler.path in pages:
        _send(handler, pages[handler.path], "text/plain" if handler.path == "/metrics" else "application/json")
    else:
        send(handler, 404, "application/json", b"{}")


def _likely(served: TableServer, prompt: list[int]) -> str:
    """The log-probabilities of the next word."""
    shares = served.rows().shares(served.rows().target, prompt[-1], 1.0)
    told = {f"token_id:{i}": math.log(share) for i, share in enumerate(shares)}
    return json.dumps({"choices": [{"text": "", "logprobs": {"top_logprobs": [told]}}]})


def _streamed(served: TableServer, asked: dict[str, Any], prompt: list[int]) -> str:
    """The events of a text."""
    with served.lock:
        served.calls += 1
    steps, made, kept = decode(served.rows(), prompt, asked, served.gamma, served.fault)
    with served.lock:
        for name, value in zip(served.counters, (len(made), sum(made), sum(kept)), strict=True):
            served.counters[name] += value
    lines = []
    for at, step in enumerate(steps):
        choice = {"index": 0, "text": "".join(WORDS[i] for i in step), "token_ids": step, "finish_reason": None}
        choice["prompt_token_ids"] = None if at else prompt
        if at == len(steps) - 1:
            choice["finish_reason"] = "stop" if step and step[-1] == END else "length"
        lines.append({"choices": [choice]})
    last: dict[str, Any] = {"choices": [], "usage": {"completion_tokens": sum(map(len, steps))}}
    if served.gamma:
        detail = {"per_step_accepted": kept, "per_step_drafted": made} if made else {}
        last["metrics"] = {
            "speculative_decoding": {
                "num_spec_tokens": served.gamma, "num_spec_steps": len(made), "num_draft_tokens": sum(made),
                "num_accepted_draft_tokens": sum(kept), **detail,
            }
        }  # fmt: skip
    return "".join(f"data: {json.dumps(each)}\n\n" for each in [*lines, last]) + "data: [DONE]\n\n"


@contextmanager
def serving(*servers: TableServer) -> Iterator[list[str]]:
    """The addresses of these servers while they run."""
    with ExitStack() as running:
        yield [running.enter_context(exchanges.serving(partial(_answer, server))) for server in servers]
