"""The bytes of a server's tokens, those that end inside a character included."""

from __future__ import annotations

import pytest

from specdec.servers.answer import Answer, Piece
from specdec.servers.openai import OpenAI
from specdec.servers.tokens import ServerTokens

TEXT = "Hi \u00e9\U0001f600!"
WHOLE = TEXT.encode()
PARTS = [b"Hi", b" ", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80", b"!"]
LEVEL = ["Hi", "\u0120", "\u00c3", "\u00a9", "\u00f0\u0141", "\u013a\u0122", "!"]  # as GPT-2 writes bytes
FALLBACK = ["\u2581Hi", "\u2581", "<0xC3>", "<0xA9>", "\U0001f600", "!"]  # as SentencePiece does


class Spelling(OpenAI):
    def __init__(self, tokens) -> None:
        self.tokens = tokens

    def token_bytes(self, client, model, text):
        return list(enumerate(self.tokens)) if text == TEXT else []


class Detokenizer:
    """A server that turns ids into text, each after a space that it leaves out at the beginning."""

    name = "one"

    def __init__(self, parts, key="prompt") -> None:
        self.parts, self.key, self.calls = parts, key, 0

    def json(self, path, body=None, seconds=None):
        self.calls += 1
        text = b"".join(self.parts[i] for i in body["tokens"]).decode(errors="replace")
        return {self.key: text.removeprefix(" ")}


def learned(engine, client, count) -> ServerTokens:
    tokens = ServerTokens()
    pieces = tuple(Piece(0.1, "", (i,)) for i in range(count - 1))
    answer = Answer((), (*pieces, Piece(0.2, TEXT, (count - 1,))), "length", 0.2)
    tokens.learn(client, engine, "m", answer, "")
    return tokens


@pytest.mark.parametrize(
    ("written", "parts"),
    [(LEVEL, PARTS), (PARTS, PARTS), (FALLBACK, [b" Hi", b" ", b"\xc3", b"\xa9", "\U0001f600".encode(), b"!"])],
)
def test_the_engines_own_tokens_have_the_bytes_of_half_characters(written, parts) -> None:
    client = Detokenizer(parts)
    tokens = learned(Spelling(written), client, len(parts))
    assert [tokens(i) for i in range(len(parts))] == parts and client.calls == 0
    assert b"".join(map(tokens, range(len(parts)))).removeprefix(b" ") == WHOLE


@pytest.mark.parametrize(
    "written",
    [
        [],  # it tells none
        LEVEL[1:],  # they spell another text
        [None] * 7,
        [["a"]] * 7,
        ["<0x41>"] * 7,
    ],
)
@pytest.mark.parametrize("key", ["prompt", "content", "text"])
def test_else_each_id_is_asked_for(written, key) -> None:
    parts = [b" Once", b" upon", b" a", b"\xc3", b"\xa9"]
    tokens = learned(Spelling(written), Detokenizer(parts, key), len(parts))
    assert [tokens(i) for i in range(3)] == parts[:3]
    assert tokens(3).decode() == "\ufffd"  # nobody tells its byte


def test_ids_are_asked_for_once() -> None:
    client = Detokenizer([b"a", b"b"])
    tokens = learned(Spelling([]), client, 2)
    before = client.calls
    tokens.learn(client, Spelling([]), "m", Answer((0, 1), (Piece(0.1, "ab", (0, 1)),), "length", 0.1), "ab")
    assert client.calls == before


def test_a_prompt_whose_tokens_are_not_told_is_its_own_text() -> None:
    tokens = ServerTokens()
    tokens.learn(
        Detokenizer([b"", b"", b"a"]), Spelling([]), "m", Answer((0, 1), (Piece(0.1, "a", (2,)),), "eos", 0.1), "Hi"
    )
    assert b"".join(map(tokens, (0, 1))) == b"Hi"


def test_pieces_of_one_server_have_other_ids_than_the_tokens_of_another() -> None:
    tokens = learned(Spelling(LEVEL), Detokenizer(PARTS), len(PARTS))
    pieces = [tokens.id_of(text) for text in (" a", " b", " a")]
    assert pieces[0] == pieces[2] != pieces[1]
    assert [tokens(i) for i in range(len(PARTS))] == PARTS and b"".join(map(tokens, pieces)) == b" a b a"
