"""The bytes of a server's tokens, which recordings and coloured texts need.

An engine that tells token ids also tells the tokens of a text (``/tokenize``), or turns single ids into text
(``/detokenize``). For one that tells no ids, every piece of its text is a token here, with an id of its own.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from specdec.errors import ServerFailed
from specdec.servers.answer import Answer
from specdec.servers.client import PATIENCE, Client
from specdec.servers.openai import OpenAI
from specdec.text import TokenBytes, byte_of_character

FIRST_PIECE = 2**24  # above the ids of every vocabulary: another server of the race may tell its ids
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class ServerTokens(TokenBytes):
    """The bytes of each token that a race has mentioned, by id.

    All lanes of a race share them, so that equal texts have equal ids.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, bytes] = {}
        self._ids: dict[str, int] = {}  # of pieces of text, where ids are not told
        self._asked: defaultdict[str, set[int]] = defaultdict(set)  # by server: the ids that it was asked to spell
        self._others: set[str] = set()  # servers with other bytes for an id

    def __call__(self, token_id: int) -> bytes:
        return self._bytes.get(token_id, b"")

    def is_fallback(self, token_id: int) -> bool:
        return False

    def head(self, token_ids: Sequence[int]) -> list[str]:
        return []

    def id_of(self, text: str) -> int:
        """The id of a piece of text."""
        found = self._ids.setdefault(text, FIRST_PIECE + len(self._ids))
        self._bytes[found] = text.encode(errors="replace")
        return found

    def learn(self, client: Client, engine: OpenAI, model: str, answer: Answer, prompt: str) -> bool:
        """Learn the bytes of all ids of an answer and its prompt.

        It takes at most ``PATIENCE`` seconds. A token whose bytes the server does not tell has none. Returns whether
        these tokens have the bytes that are known from other servers: two models may use one id for two texts.
        """
        end = time.perf_counter() + PATIENCE
        prompt_ids, ids = answer.prompt_ids or (), answer.ids or ()
        try:
            if answer.text and not self._spell(ids, answer.text):
                self._read(client, engine, model, answer.text, ids, end)
            if prompt and not self._has(prompt_ids):
                self._read(client, engine, model, prompt, prompt_ids, end)
            for token_id in dict.fromkeys([*prompt_ids, *ids]):
                if time.perf_counter() > end:
                    break
                if token_id not in self._bytes:
                    self._bytes[token_id] = _detokenized(client, model, token_id, end)
        except ServerFailed:
            pass  # the text is lost, not the race
        joined = b"".join(map(self, prompt_ids)).decode(errors="replace")
        if prompt_ids and joined != prompt and joined.strip() == "":
            self._bytes[prompt_ids[0]] = prompt.encode()
        return client.name not in self._others

    def _read(self, client: Client, engine: OpenAI, model: str, text: str, ids: Sequence[int], end: float) -> None:
        """Learn the bytes of the tokens of ``text``, whose ids are ``ids``, from a server."""
        told = _bytes_of(engine.token_bytes(client, model, text), text)
        if not told and self._has(ids):  # what is known may contradict the text
            new = set(ids) - self._asked[client.name]
            told = {token_id: _detokenized(client, model, token_id, end) for token_id in new}
            self._asked[client.name] |= new
            if new and not any(told.values()) and all(map(self, ids)):
                self._others.add(client.name)
        if not all(_same(self(token_id), its) for token_id, its in told.items()):
            self._others.add(client.name)
        self._bytes = told | self._bytes

    def _has(self, ids: Sequence[int]) -> bool:
        return self._bytes.keys() >= set(ids)

    def _spell(self, ids: Sequence[int], text: str) -> bool:
        """Whether the bytes of these ids are known, and begin with this text; the token of an end is not in it."""
        joined = b"".join(map(self, ids)).decode(errors="replace")
        return self._has(ids) and joined.lstrip(" ").startswith(text.strip(" "))


def _bytes_of(told: Sequence[tuple[Any, str | bytes]], text: str) -> dict[int, bytes]:
    """The bytes of the tokens of a text, if one of the ways to write a vocabulary spells that text; else none."""
    if any(not isinstance(token_id, int) or not isinstance(token, (str, bytes)) for token_id, token in told):
        return {}
    for spelling in (_as_bytes, _byte_level, _with_fallback):
        found = [spelling(token) for _, token in told]
        whole = [part for part in found if part is not None]
        # Many tokenizers put a space in front of a text.
        if len(whole) == len(found) and b"".join(whole).removeprefix(b" ") == text.encode().removeprefix(b" "):
            return {token_id: part for (token_id, _), part in zip(told, whole, strict=True)}
    return {}


def _same(one: bytes, other: bytes) -> bool:
    """Whether two spellings of a token agree. A space in front may be missing, and a part of a character unreadable."""
    found = [token.replace(b"\xef\xbf\xbd", b"").strip(b" ") for token in (one, other)]
    return found[0] == found[1] or not all(found)


def _as_bytes(token: str | bytes) -> bytes | None:
    return token if isinstance(token, bytes) else None


def _byte_level(token: str | bytes) -> bytes | None:
    table = byte_of_character()
    return bytes(table[c] for c in token) if isinstance(token, str) and all(c in table for c in token) else None


def _with_fallback(token: str | bytes) -> bytes | None:
    """A token of SentencePiece: a bar for a space, and single bytes by number."""
    if isinstance(token, bytes):
        return None
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode(errors="replace")


def _detokenized(client: Client, model: str, token_id: int, end: float) -> bytes:
    """A token's text after another one, because many decoders leave out a space at the beginning of a text."""
    texts = []
    for ids in ([token_id], [token_id, token_id]):
        body = {"model": model, "tokens": ids, "skip_special_tokens": False}
        page = client.json("/detokenize", body, max(end - time.perf_counter(), 0.0))
        # vLLM, llama.cpp and SGLang call the text by these names.
        told = [page.get(key) for key in ("prompt", "content", "text")] if isinstance(page, dict) else []
        texts.append(next((text for text in told if isinstance(text, str)), ""))
    one, two = texts
    return (two[len(one) :] if two.startswith(one) else one).encode(errors="replace")
