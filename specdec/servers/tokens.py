"""The bytes of a server's tokens, which recordings and coloured texts need.

An engine that tells token ids also turns single ids into text (``/detokenize``). For one that tells no ids, every piece
of its text is a token here, with an id of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from specdec.errors import ServerFailed
from specdec.servers.answer import Piece
from specdec.text import TokenBytes

_LOST = "\ufffd"  # stands for bytes that are no text


class ServerTokens(TokenBytes):
    """The bytes of each token that a race has mentioned, by id.

    All lanes of a race share them, so that equal texts have equal ids.
    """

    def __init__(self) -> None:
        self._bytes: dict[int, bytes] = {}
        self._ids: dict[str, int] = {}  # of pieces of text, where ids are not told

    def __call__(self, token_id: int) -> bytes:
        return self._bytes.get(token_id, b"")

    def is_fallback(self, token_id: int) -> bool:
        return False

    def head(self, token_ids: Sequence[int]) -> list[str]:
        return []

    def id_of(self, text: str) -> int:
        """The id of a piece of text."""
        found = self._ids.setdefault(text, len(self._ids))
        self._bytes[found] = text.encode(errors="replace")
        return found

    def learn(self, client: Any, model: str, pieces: Iterable[Piece], prompt_ids: Sequence[int], prompt: str) -> None:
        """Learn the bytes of all ids of an answer: from its own pieces, and from the server where a piece has several.

        A token that is only a part of a character has no text of its own; its piece's text is then given to the first
        token of the piece.
        """
        for piece in pieces:
            ids = piece.ids or ()
            if len(ids) == 1 and piece.text and _LOST not in piece.text:
                self._bytes.setdefault(ids[0], piece.text.encode())
        for token_id in dict.fromkeys([*prompt_ids, *(i for piece in pieces for i in piece.ids or ())]):
            if token_id not in self._bytes:
                self._bytes[token_id] = _detokenized(client, model, token_id)
        joined = b"".join(map(self, prompt_ids)).decode(errors="replace")
        if prompt_ids and joined != prompt and joined.strip() == "":
            self._bytes[prompt_ids[0]] = prompt.encode()


def _detokenized(client: Any, model: str, token_id: int) -> bytes:
    """A token's text after another one, because many decoders leave out a space at the beginning of a text."""
    try:
        alone, twice = (
            client.json("/detokenize", {"model": model, "tokens": ids}) for ids in ([token_id], [token_id, token_id])
        )
    except ServerFailed:
        return b""
    texts = [found.get("prompt", found.get("content")) if isinstance(found, dict) else None for found in (alone, twice)]
    one, two = (text if isinstance(text, str) else "" for text in texts)
    return (two[len(one) :] if two.startswith(one) else one).encode(errors="replace")
