"""Any server that speaks OpenAI's protocol: the text and its speed.

Engines that tell more are classes of their own, which read the same streams. Protocol:
https://platform.openai.com/docs/api-reference/completions. Tried on ``transformers serve`` 5.23. Read in the code of
TensorRT-LLM (``serve/openai_protocol.py``, which refuses fields that it does not know), mlx-lm (``server.py``, whose
streams end with the connection) and Ollama (``openai/openai.go``); LM Studio shows no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from specdec.errors import BadSetting, ServerFailed, quoted
from specdec.events import FinishReason, SamplingParams
from specdec.servers.answer import Answer, Asked, Counts, Piece, whole, wholes
from specdec.servers.client import Client, Streamed
from specdec.servers.probe import Probe

# "stop" stands for both ends of a text; an engine that says which stop string it was does so in a field of its own.
REASONS: dict[str, FinishReason] = {
    "length": "length", "stop": "eos", "eos_token": "eos", "eos": "eos", "stop_sequence": "stop",
}  # fmt: skip
STOPS = ("stop_reason", "matched_stop")  # vLLM, SGLang: the stop string that ended a text, or the id of a token
PIECES = 4  # a token's text comes in no more pieces than this


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

    def in_order(self, probe: Probe) -> bool:
        """Whether a step's guesses stand one after another. The rounds of one that checks a tree cannot be shown."""
        return True

    def spelled(self, client: Client, asked: Asked, model: str) -> tuple[Asked, tuple[int, ...] | None]:
        """The call as the engine needs it, and the ids of its prompt if answers do not tell them; both before the call.

        Raises ``ServerFailed``.
        """
        return asked, None

    def token_bytes(self, client: Client, model: str, text: str) -> list[tuple[Any, str | bytes]]:
        """The tokens of a text: the id of each, with its bytes or as the vocabulary writes it; none if it tells none.

        Raises ``ServerFailed``.
        """
        return []

    def request(self, asked: Asked, model: str) -> tuple[str, dict[str, Any]]:
        """The path and the body of a call. Raises ``InvalidInput`` for a setting that it does not take."""
        params = asked.params
        unknown = {
            "top_k": params.top_k, "min_p": params.min_p, "ignore_eos": params.ignore_eos, "grammar": params.grammar,
        }  # fmt: skip
        given = [key for key, value in unknown.items() if value]
        given += ["repetition_penalty"] * (params.repetition_penalty != 1)
        if given:
            raise BadSetting(f"{given[0]} is set, but a server of an unknown engine may not know it; leave it out.")
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

    def every_setting(self, params: SamplingParams) -> dict[str, Any]:
        """The settings of sampling under the names that vLLM and SGLang have for them.

        Each is named: what a request leaves out, these servers take from the model's own generation config.
        """
        return {
            "top_k": params.top_k or -1,
            "top_p": params.top_p,
            "min_p": params.min_p,
            "repetition_penalty": params.repetition_penalty,
            "ignore_eos": params.ignore_eos,
        }

    def read(self, streamed: Iterable[Streamed], name: str, most: int) -> Answer:
        """The answer from the events of its stream. ``most``: how many tokens were asked for at most.

        Raises ``ServerFailed`` where the events are not those of an answer.
        """
        pieces: list[Piece] = []
        prompt_ids: tuple[int, ...] | None = None
        reason: FinishReason | None = None
        last: dict[str, Any] = {}
        usage, end, written = _Usage(name, most), 0.0, 0
        half, thought = "", False  # of a character that two events share; whether thoughts were sent
        for end, record in streamed:
            choice = _choice(record, name)
            for told in (record.get("prompt_token_ids"), choice.get("prompt_token_ids")):
                prompt_ids = prompt_ids if told is None else wholes(told, "token ids of the prompt", name)
            text, half = _whole_characters(half + _text(choice, name))
            ids = wholes(choice["token_ids"], "token ids", name) if choice.get("token_ids") else None
            if text or ids:
                pieces.append(Piece(end, text, ids))
                written += len(ids or ())
            if written > most or len(pieces) > PIECES * most:
                raise ServerFailed(f"The server {name} wrote more than the {most:,} tokens that were asked for.")
            if choice.get("finish_reason") not in (None, ""):
                reason = _reason(choice, name)
            thought = thought or _thinks(choice)
            usage.saw(record.get("usage"), len(pieces))
            last |= {key: value for key, value in record.items() if key not in ("choices", "usage")}
        if reason is None:
            raise ServerFailed(f"The server {name} ended its stream without a reason; the text may be incomplete.")
        if half:  # the text ends inside a character
            *before, last_piece = pieces or [Piece(end, "", None)]
            pieces = [*before, replace(last_piece, text=f"{last_piece.text}\ufffd")]
        tokens = usage.of(pieces, reason == "length", thought)
        if tokens and tokens < len(pieces) and all(piece.ids is None for piece in pieces):
            pieces = _merged(pieces, tokens)
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


def _text(choice: dict[str, Any], name: str) -> str:
    """What a choice adds: of a chat its thoughts too, because they are tokens as well."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        # A server may send a thought under both of its names.
        parts = [delta.get("reasoning_content") or delta.get("reasoning"), delta.get("content")]
    else:
        parts = [choice.get("text")]
    if any(part is not None and not isinstance(part, str) for part in parts):
        raise ServerFailed(f"The server {name} sent a text that is no text.")
    return "".join(part for part in parts if part)


def _whole_characters(text: str) -> tuple[str, str]:
    """The text without the first half of a character at its end, and that half.

    A server that cuts its text in UTF-16 sends a character such as an emoji as two halves, in two events.
    """
    held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    whole = text.removesuffix(held).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole, held


class _Usage:
    """What a stream says about how many tokens it wrote, event by event."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._told: list[tuple[int, int]] = []  # how many pieces there were, and how many tokens it said
        self._hidden = 0  # tokens of thoughts that it counts

    def saw(self, usage: Any, pieces: int) -> None:
        """Raises ``ServerFailed`` for a number that is none, and for more tokens than were asked for."""
        if not isinstance(usage, dict) or usage.get("completion_tokens") is None:
            return
        tokens = whole(usage["completion_tokens"], "written tokens", self._name)
        if tokens > self._most + 1:  # some count the token that ends a text beside these
            raise ServerFailed(
                f"The server {self._name} says that it wrote {tokens:,} tokens; {self._most:,} were asked for at most. "
                "So its speed is not known."
            )
        total, prompt = usage.get("total_tokens"), usage.get("prompt_tokens")
        if type(total) is int and type(prompt) is int and total - prompt <= self._most:
            tokens = max(tokens, total - prompt)  # some count thoughts in the total only
        details = usage.get("completion_tokens_details")
        hidden = details.get("reasoning_tokens") if isinstance(details, dict) else None
        self._hidden = whole(hidden or 0, "tokens of thoughts", self._name)
        self._told.append((pieces, tokens))

    def of(self, pieces: Sequence[Piece], cut: bool, thought: bool) -> int | None:
        """How many tokens these pieces have; None where that is not said, or is not to be believed.

        Counts that stand still while text comes are those of single events. A token has a few pieces at most. Thoughts
        that were counted and not sent are no tokens of the text. ``cut``: the text ends at the limit of its length;
        LM Studio counts one too few there. ``thought``: thoughts were sent.
        """
        if not self._told:
            return None
        (before, first), (at, tokens) = self._told[0], self._told[-1]
        if at < len(pieces) or (before < at and tokens <= first):
            return None
        if not thought and tokens - self._hidden >= len(pieces):
            tokens -= self._hidden
        few = tokens < len(pieces)
        return None if few and (tokens * PIECES < len(pieces) or (cut and tokens == len(pieces) - 1)) else tokens


def _merged(pieces: Sequence[Piece], tokens: int) -> list[Piece]:
    """As many pieces as tokens: a token whose text came in several parts came with the last of them.

    The first came with its first part, so that the seconds after it are those of the others.
    """
    groups: list[list[Piece]] = [[] for _ in range(tokens)]
    for place, piece in enumerate(pieces):
        groups[place * tokens // len(pieces)].append(piece)
    ends = [groups[0][0].seconds, *(group[-1].seconds for group in groups[1:])]
    return [Piece(at, "".join(piece.text for piece in group), None) for at, group in zip(ends, groups, strict=True)]


def _thinks(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta")
    return isinstance(delta, dict) and bool(delta.get("reasoning_content") or delta.get("reasoning"))


def _reason(choice: dict[str, Any], name: str) -> FinishReason:
    told = choice["finish_reason"]
    found = REASONS.get(told) if isinstance(told, str) else None
    if found is None:
        raise ServerFailed(f"The server {name} ended its text for a reason that is not known here: {quoted(told)}.")
    return "stop" if found == "eos" and any(isinstance(choice.get(key), str) for key in STOPS) else found
