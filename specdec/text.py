"""Makes text from token ids, as the tokenizer's own decoder does.

Special tokens are shown by name, and spaces stay as the decoder writes them: ``decode`` is called with
``skip_special_tokens=False`` and ``clean_up_tokenization_spaces=False``. A row of the embedding that the tokenizer has
no token for is shown by its number, as ``<330>``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any

from specdec.errors import InvalidInput

_HALF = re.compile("[\ud800-\udfff]")
_FALLBACK_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_WORD = re.compile("[\u0120\u2581]?[A-Za-z]+(</w>)?")
_LOST = "\ufffd"  # stands for bytes that are no text
_LONGEST = 3  # bytes of an incomplete character
_CONTEXT = 8  # tokens that the text of later ones may depend on
_SAMPLE = 64  # tokens that show how a decoder joins them


@lru_cache(maxsize=1)
def byte_of_character() -> dict[str, int]:
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


class _Decoder:
    """A tokenizer's own decoder."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._fast = hasattr(tokenizer, "backend_tokenizer")
        self._added = set(getattr(tokenizer, "added_tokens_decoder", {}))
        self.size = 0 if tokenizer is None else getattr(tokenizer, "vocab_size", 0) + len(self._added)

    def __call__(self, token_ids: Sequence[int]) -> str:
        settings = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return whole_text(self._tokenizer.decode(list(token_ids), **settings)) if token_ids else ""

    def token(self, token_id: int) -> str | bytes | None:
        """The token as the vocabulary writes it. None for a padded row of the embedding, or without a tokenizer."""
        if self._tokenizer is None:
            return None
        # A tokenizer in Python may give the unknown token, or fail, for an id that it does not have.
        if not self._fast and token_id >= getattr(self._tokenizer, "vocab_size", 0) and token_id not in self._added:
            return None
        return self._tokenizer.convert_ids_to_tokens(token_id)

    def fallback_byte(self, token_id: int) -> bytes | None:
        """The byte that a token such as ``<0x0A>`` stands for."""
        token = self.token(token_id)
        found = _FALLBACK_BYTE.fullmatch(token) if isinstance(token, str) else None
        return bytes([int(found[1], 16)]) if found and self([token_id]) != token else None

    def is_fallback(self, token_id: int) -> bool:
        return self.fallback_byte(token_id) is not None

    def sample(self) -> list[int]:
        """Ids of ordinary tokens, from the whole vocabulary."""
        ids = range(0, self.size, max(1, self.size // _SAMPLE))
        return [i for i in ids if i not in self._added and self.token(i) is not None and not self.is_fallback(i)]

    def word(self) -> list[int]:
        """A token of ordinary letters, in a list that is empty if there is none.

        Between two of them the text of a token is that in the middle of a text.
        """
        for token_id in range(self.size):
            token = self.token(token_id) if token_id not in self._added else None
            if isinstance(token, str) and _WORD.fullmatch(token) and self([token_id]).strip().isalpha():
                return [token_id]
        return [i for i in self.sample() if _LOST not in self([i]) and self([i]).strip()][:1]


class TokenBytes:
    """The bytes of a token: what it adds to the middle of a text.

    They are those that the tokenizer's own decoder writes for the token between two others. Half a character has bytes
    too where the vocabulary holds them, as in byte-level BPE and in byte fallback. Joined, they are the decoded text,
    except at its edges, where many decoders leave out a space (see ``head``), and for bytes that are no text: a decoder
    with byte fallback writes a replacement character for each byte of a run that is not valid.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._decoded = _Decoder(tokenizer)
        self._word = self._decoded.word()
        self._known: dict[int, bytes] = {}
        level = "ByteLevel" in repr(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None))
        self._stored = False  # whether a token's characters stand for its bytes
        self._before = 0  # characters of the first of two words that belong to it
        if self._word:
            self._before = len(self._decoded(self._word))
            self._two = self._decoded(self._word * 2)
            sample = [i for i in self._decoded.sample() if _LOST not in self._decoded([i])]
            # A decoder may write the space between two words with the second one or with the first.
            ways = [(True, 0)] * level + [(False, 0), (False, 1)]
            self._stored, after = next((way for way in ways if self._joins(sample, *way)), ways[0])
            self._before += after

    def __call__(self, token_id: int) -> bytes:
        if token_id not in self._known:
            self._known[token_id] = self._lookup(token_id, self._stored, self._before)
        return self._known[token_id]

    def is_fallback(self, token_id: int) -> bool:
        """Whether the token is a byte of the byte fallback, such as ``<0x0A>``."""
        return self._decoded.is_fallback(token_id)

    def head(self, token_ids: Sequence[int]) -> list[str]:
        """The pieces of the first tokens of a text, up to the last one whose piece there is not its bytes."""
        if not self._word:
            return []
        token_ids = list(takewhile(lambda token_id: self._decoded.token(token_id) is not None, token_ids))
        whole = self._decoded([*token_ids, *self._word])
        if not whole.endswith(self._two[self._before :]):  # the word itself stands at the beginning of the text
            return [""] * len(token_ids)
        whole = whole[: len(whole) - len(self._two) + self._before]
        parts = [self(token_id) for token_id in token_ids]
        for count in range(min(len(parts), _CONTEXT) + 1):
            rest = b"".join(parts[count:]).decode(errors="replace")
            if whole.endswith(rest) if count else whole == rest:
                return [*[""] * (count - 1), whole[: len(whole) - len(rest)]] if count else []
        return []

    def _lookup(self, token_id: int, stored: bool, before: int) -> bytes:
        token = self._decoded.token(token_id)
        if token is None:
            return f"<{token_id}>".encode()
        if isinstance(token, bytes):
            return token
        table = byte_of_character()
        if stored and all(character in table for character in token):
            return bytes(table[character] for character in token)
        if (byte := self._decoded.fallback_byte(token_id)) is not None:
            return byte
        if not self._word:
            return self._decoded([token_id]).encode()
        text = self._between([token_id], before)
        if len(token) == 1 and token < "\u0100" and text in ("", _LOST):  # a byte, as of ByT5
            return token.encode("latin-1")
        return text.encode()

    def _between(self, token_ids: Sequence[int], before: int) -> str:
        """The text of tokens between two words. ``before`` characters belong to the first word."""
        text = self._decoded([*self._word, *token_ids, *self._word])
        return text[before : len(text) - len(self._two) + before]

    def _joins(self, sample: Sequence[int], stored: bool, after: int) -> bool:
        """Whether the joined bytes of these tokens are what the tokenizer decodes for all of them."""
        before = self._before + after
        parts = [self._lookup(token_id, stored, before) for token_id in sample]
        return self._between(sample, before) == b"".join(parts).decode(errors="replace")


def text_of(tokenizer: Any, token_ids: Iterable[int], before: Iterable[int] = ()) -> str:
    """The text that these tokens add to a text of the tokens ``before``, as ``Result.text`` shows it.

    It is the end of what the tokenizer decodes for all of them, so the text of a prompt and that of its continuation
    can be joined.
    """
    decoded, before, token_ids = _Decoder(tokenizer), list(before), list(token_ids)
    if any(decoded.token(token_id) is None for token_id in {*before, *token_ids}):
        stream = TextStream(tokenizer)
        for token_id in before:
            stream.push(token_id)
        stream.finish()
        return "".join(map(stream.push, token_ids)) + stream.finish()
    return _added(decoded(before), decoded([*before, *token_ids]))


def _added(text: str, longer: str) -> str:
    """The end of ``longer``, from where it differs from ``text``."""
    return longer[len(_common(text, longer)) :]


def _common(text: str, other: str) -> str:
    return text if other.startswith(text) else os.path.commonprefix([text, other])


class TextStream:
    """Turns tokens into text one by one. The joined pieces are what the tokenizer decodes for all tokens.

    A piece is "" while later tokens may change it: until a character is complete, and in a vocabulary with byte
    fallback until a run of bytes ends, because its decoder replaces a whole run that is not valid.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._decoded = _Decoder(tokenizer)
        self._word = self._decoded.word()
        self._ids: list[int] = []  # the latest tokens, as far as the text of later ones may depend on them
        self._given = 0  # characters of their text that were given

    def push(self, token_id: int) -> str:
        """The text that this token completes."""
        if self._decoded.token(token_id) is None:
            return f"{self.finish()}<{token_id}>"
        self._ids.append(token_id)
        if self._decoded.is_fallback(token_id):
            return ""
        text = self._decoded(self._ids)
        settled = _common(text, self._decoded([*self._ids, *self._word]))  # what the next word does not change
        waiting = len(settled) - len(settled.rstrip(_LOST))
        return self._give(text, len(settled) - min(waiting, _LONGEST))

    def finish(self) -> str:
        """The rest of the text at its end: a replacement character where the last character is incomplete."""
        text = self._decoded(self._ids)
        return self._give(text, len(text))

    def _give(self, text: str, end: int) -> str:
        piece, self._given = text[self._given : end], max(self._given, end)
        if len(self._ids) >= 2 * _CONTEXT:
            self._forget(text)
        return piece

    def _forget(self, text: str) -> None:
        """Drop the oldest tokens, if the end of the text stays the same without them."""
        start = len(self._ids) - _CONTEXT
        while start and self._decoded.is_fallback(self._ids[start]):
            start -= 1
        first = self._word if text else []  # keeps decoders from taking the next tokens for the beginning of a text
        kept = [*first, *self._ids[start:]]
        shorter = self._decoded(kept)
        tail = shorter[len(self._decoded(first)) :].lstrip()
        waiting = len(text) - self._given
        if waiting <= len(tail) and text.endswith(tail):
            self._ids, self._given = kept, len(shorter) - waiting
