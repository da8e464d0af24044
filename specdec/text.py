"""Makes text from token ids. A token may hold half a character, so text is made from bytes, not token by token."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from specdec.errors import InvalidInput

_HALF = re.compile("[\ud800-\udfff]")
_FALLBACK_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes, inverted (Radford et al. 2019, ``bytes_to_unicode``)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return table | {chr(256 + i): byte for i, byte in enumerate(others)}


def require_text(what: str, text: str) -> None:
    """Refuse a text with half of a surrogate pair. Python accepts one in a string, but UTF-8 cannot encode it."""
    if found := _HALF.search(text):
        raise InvalidInput(
            f"{what} is not valid text: at character {found.start() + 1} it holds half of a surrogate pair "
            f"(U+{ord(found[0]):04X}). Leave it out."
        )


def whole_text(text: str) -> str:
    """Replace each half of a surrogate pair by a question mark, so that the text can be written as UTF-8."""
    return _HALF.sub("?", text)


class TokenBytes:
    """Looks up the bytes of a token: of byte-level BPE, SentencePiece with byte fallback, or plain pieces."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = {int(i): t.content for i, t in getattr(tokenizer, "added_tokens_decoder", {}).items()}
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        self._byte_level = "ByteLevel" in repr(decoder)
        self._known: dict[int, bytes] = {}

    def __call__(self, token_id: int) -> bytes:
        if token_id not in self._known:
            self._known[token_id] = self._lookup(token_id)
        return self._known[token_id]

    def _lookup(self, token_id: int) -> bytes:
        if token_id in self._special:
            return whole_text(self._special[token_id]).encode()
        token = self._tokenizer.convert_ids_to_tokens(token_id) if self._tokenizer is not None else None
        if token is None:  # a padded row of the embedding, or no tokenizer at all
            return f"<{token_id}>".encode()
        if self._byte_level:
            table = _byte_of_character()
            if all(character in table for character in token):
                return bytes(table[character] for character in token)
        if fallback := _FALLBACK_BYTE.fullmatch(token):
            return bytes([int(fallback[1], 16)])
        if "\u2581" in token:  # SentencePiece's visible space
            return whole_text(token).replace("\u2581", " ").encode()
        return whole_text(self._tokenizer.decode([token_id])).encode()


def text_of(tokenizer: Any, token_ids: Iterable[int]) -> str:
    """The text of these tokens, as ``Result.text``, the page and the terminal show it.

    Special tokens are shown by name. A space at the beginning of the first token stays, so the text of a prompt and
    that of its continuation can be joined.
    """
    stream = TextStream(tokenizer)
    return "".join(map(stream.push, token_ids)) + stream.finish()


class TextStream:
    """Turns tokens into text one by one. A piece is "" until its last character is complete."""

    def __init__(self, tokenizer: Any) -> None:
        self._bytes_of = TokenBytes(tokenizer)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """The text that this token completes."""
        return self._decoder.decode(self._bytes_of(token_id))

    def finish(self) -> str:
        """The rest of the text at its end: a replacement character where the last character is incomplete."""
        return self._decoder.decode(b"", final=True)

    def peek(self, token_ids: list[int]) -> list[str]:
        """The pieces that ``token_ids`` would add, without adding them: for guesses that were not kept."""
        state = self._decoder.getstate()
        pieces = [self.push(token_id) for token_id in token_ids]
        self._decoder.setstate(state)
        return pieces
