"""Ids become text by their bytes: a token may hold half a character, and no text is lost or added."""

from __future__ import annotations

import pytest
from fakes import byte_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from specdec.text import TextStream, TokenBytes

TEXTS = [
    "Once upon a time",
    "naïve café",
    "日本語のテキスト",
    "🙂🙃 👩‍👩‍👧‍👦",
    "  two spaces,\ttab\n\nlines\r\n ",
    "<script>${alert(1)}</script> & \"quotes\" \\ 'single'",
    "ĠĊ are letters too",
    "\x00\x7f\u2581\ufeff",
]


def sentencepiece_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of Llama's kind: a visible space, and byte tokens for text without a piece."""
    pieces = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    pieces += ["▁", "O", "n", "c", "e", "▁O", "nc", "▁Onc", "▁Once"]
    merges = [("▁", "O"), ("n", "c"), ("▁O", "nc"), ("▁Onc", "e")]
    backend = Tokenizer(
        models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges, byte_fallback=True, unk_token="<unk>")
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_bytes_of_byte_level_tokens_join_to_the_text(text: str) -> None:
    """Byte-level tokens, as of GPT-2 and Qwen, join to exactly the text's bytes."""
    tokenizer = byte_tokenizer()
    bytes_of = TokenBytes(tokenizer)
    ids = tokenizer(text).input_ids
    assert b"".join(map(bytes_of, ids)) == text.encode()
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, ids)) == text


@pytest.mark.parametrize("text", ["Once once", "naïve Once", "日本 🙂", "tab\tline\n"], ids=ascii)
def test_bytes_of_sentencepiece_tokens_join_to_the_text(text: str) -> None:
    """In SentencePiece tokens, as of Llama, the visible space is a space and byte tokens are bytes."""
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert b"".join(map(TokenBytes(tokenizer), ids)) == b" " + text.encode()


def test_pieces_are_whole_characters() -> None:
    """A character appears when it is complete, never first as a replacement character."""
    tokenizer = byte_tokenizer()
    stream = TextStream(tokenizer)
    ids = tokenizer("a🙂b").input_ids
    pieces = [stream.push(token_id) for token_id in ids]
    assert len(ids) > 3 and "".join(pieces) == "a🙂b"
    assert "\ufffd" not in "".join(pieces)
    assert [piece for piece in pieces if piece] == ["a", "🙂", "b"]


def test_broken_bytes_become_replacement_characters() -> None:
    """Half a character followed by other text becomes one replacement character, and the rest is complete."""
    tokenizer = byte_tokenizer()
    ids = tokenizer("🙂").input_ids[:2] + tokenizer("ok").input_ids
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, ids)) == "\ufffdok"


def test_special_tokens_are_shown_by_name() -> None:
    """Special tokens are shown by name, as an EOS is part of the decoded text."""
    bytes_of = TokenBytes(byte_tokenizer())
    assert (bytes_of(0), bytes_of(1)) == (b"<s>", b"</s>")


def test_rows_beyond_the_tokenizer_are_shown_by_number() -> None:
    """Rows beyond the tokenizer's tokens are shown by number, as a model may choose such a padding row."""
    assert TokenBytes(byte_tokenizer())(330) == b"<330>"


def test_added_tokens_are_what_the_decoder_makes_of_them() -> None:
    """Added tokens go through the decoder too. That of byte-level BPE reads letters of its alphabet as bytes."""
    backend = Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str())
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    for token, data in {"naïve": b"na\xefve", "日本": "日本".encode(), "two words": b"two words", "Ġx": b" x"}.items():
        tokenizer.add_tokens([token])
        token_id = tokenizer.convert_tokens_to_ids(token)
        assert TokenBytes(tokenizer)(token_id) == data
        assert data.decode(errors="replace") == tokenizer.decode([token_id])
