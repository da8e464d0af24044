"""Any server that speaks OpenAI's protocol: the text and its speed.

Engines that tell more are classes of their own, which read the same streams. Protocol:
https://platform.openai.com/docs/api-reference/completions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specdec.errors import InvalidInput, ServerFailed
from specdec.events import FinishReason
from specdec.servers.answer import Answer, Asked, Counts, Piece, whole, wholes
from specdec.servers.client import Client, Streamed
from specdec.servers.probe import Probe

REASONS: dict[str, FinishReason] = {"length": "length", "stop": "eos", "eos_token": "eos", "eos": "eos"}


class OpenAI:
    """An unknown engine behind OpenAI's protocol."""

    name = "OpenAI-compatible server"

    def version(self, probe: Probe) -> str | None:
        """The engine's version if these answers are an engine of this kind, "" if it told none; else None."""
        return ""

    def speculation(self, probe: Probe) -> bool | None:
        """Whether it speculates; None if it does not say."""
        return None

    def counted(self, metrics: dict[str, float]) -> Counts | None:
        """What the whole server has counted since its start; None where it counts nothing."""
        return None

    def likely(self, client: Client, model: str, ids: Sequence[int], count: int) -> list[tuple[int, float]]:
        """The most likely next tokens after these ids with their log-probabilities, best first.

        Empty where the server does not tell them.
        """
        return []

    def request(self, asked: Asked, model: str) -> tuple[str, dict[str, Any]]:
        """The path and the body of a call. Raises ``InvalidInput`` for a setting that it does not take."""
        params = asked.params
        unknown = {"top_k": params.top_k, "min_p": params.min_p, "ignore_eos": params.ignore_eos}
        given = [key for key, value in unknown.items() if value]
        given += ["repetition_penalty"] * (params.repetition_penalty != 1)
        if given:
            raise InvalidInput(f"{given[0]} is set, but a server of an unknown engine may not know it; leave it out.")
        return self.call(asked, model)

    def call(self, asked: Asked, model: str) -> tuple[str, dict[str, Any]]:
        """The path and the settings that every server takes."""
        params = asked.params
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": params.max_new_tokens,
            "temperature": params.temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if not params.greedy:
            body["top_p"] = params.top_p
        if params.seed is not None:
            body["seed"] = params.seed
        if params.stop:
            body["stop"] = list(params.stop)
        if isinstance(asked.prompt, str):
            return "/v1/completions", body | {"prompt": asked.prompt}
        return "/v1/chat/completions", body | {"messages": list(asked.prompt)}

    def read(self, streamed: Iterable[Streamed], name: str) -> Answer:
        """The answer from the events of its stream. Raises ``ServerFailed`` where they are not those of an answer."""
        pieces: list[Piece] = []
        prompt_ids: tuple[int, ...] | None = None
        reason: FinishReason = "eos"
        last: dict[str, Any] = {}
        tokens, end = None, 0.0
        for end, record in streamed:
            choice = _choice(record, name)
            if isinstance(told := record.get("prompt_token_ids", choice.get("prompt_token_ids")), list):
                prompt_ids = wholes(told, "token ids of the prompt", name)
            text = _text(choice)
            ids = wholes(choice["token_ids"], "token ids", name) if choice.get("token_ids") is not None else None
            if text or ids:
                pieces.append(Piece(end, text, ids))
            if choice.get("finish_reason") is not None:
                reason = REASONS.get(str(choice["finish_reason"]), "eos")
                if reason == "eos" and isinstance(choice.get("stop_reason"), str):
                    reason = "stop"
            usage = record.get("usage")
            if isinstance(usage, dict) and usage.get("completion_tokens") is not None:
                tokens = whole(usage["completion_tokens"], "written tokens", name)
            last |= {key: value for key, value in record.items() if key not in ("choices", "usage")}
        if not pieces:
            raise ServerFailed(f"The server {name} wrote no text.")
        return self.told(Answer(prompt_ids, tuple(pieces), reason, end, tokens), last, name)

    def told(self, answer: Answer, last: dict[str, Any], name: str) -> Answer:
        """The answer with what the engine's own fields tell. ``last``: the latest value of each field of its events."""
        return answer


def _choice(record: dict[str, Any], name: str) -> dict[str, Any]:
    choices = record.get("choices")
    if choices in (None, []):
        return {}
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        raise ServerFailed(f"The server {name} sent an event whose choices cannot be read.")
    return choices[0]


def _text(choice: dict[str, Any]) -> str:
    """What a choice adds: of a chat its thoughts too, because they are tokens as well."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        parts = [delta.get(part) for part in ("reasoning_content", "reasoning", "content")]
        return "".join(part for part in dict.fromkeys(parts) if isinstance(part, str))
    text = choice.get("text")
    return text if isinstance(text, str) else ""
