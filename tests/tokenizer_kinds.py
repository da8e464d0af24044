"""A small tokenizer of every kind that transformers can build without a download."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import byte_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    BertTokenizer,
    ByT5Tokenizer,
    CLIPTokenizer,
    CTRLTokenizer,
    GemmaTokenizer,
    GPT2Tokenizer,
    LlamaTokenizer,
    OpenAIGPTTokenizer,
    PreTrainedTokenizer,
    PreTrainedTokenizerFast,
    T5Tokenizer,
    XLNetTokenizer,
)

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["▁", "▁▁", "▁the", "▁cat", "▁c", "at", "s", "a", "t", "▁a", ",", ".", "é", "日", "🙂", "n't", "▁return", "th"]
NORMAL = ["naïve", "two words", "日本🙂", "\n\n\n", "    ", " x", "▁▁▁", "y "]  # added tokens of all letters
SPECIAL = ["<|end|>", "<tool▁call>"]


def ids_of(*tokens: str) -> dict[str, int]:
    return {token: place for place, token in enumerate(dict.fromkeys(tokens))}


def _from(model: Any, decoder: Any = None) -> PreTrainedTokenizerFast:
    backend = Tokenizer(model)
    if decoder is not None:
        backend.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def _words(*decoder: Any) -> PreTrainedTokenizerFast:
    tokens = ids_of(
        "[UNK]", "the", "cat", "a", "##s", "##ing", ".", ",", "n't", "'s", "日", "do", "|", "<pad>", *PIECES
    )
    return _from(models.WordLevel(tokens, unk_token="[UNK]"), *decoder)


def _gpt2(**settings: Any) -> GPT2Tokenizer:
    state = json.loads(byte_tokenizer().backend_tokenizer.to_str())["model"]
    return GPT2Tokenizer(vocab=state["vocab"], merges=[tuple(m) for m in state["merges"]], **settings)


def _llama3() -> PreTrainedTokenizerFast:
    backend = Tokenizer.from_str(byte_tokenizer().backend_tokenizer.to_str())
    backend.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=True)


def _llama2_before() -> PreTrainedTokenizerFast:
    """As converted files have it: a normalizer in place of Metaspace."""
    merges = [("▁", "a"), ("▁", "▁")]
    backend = Tokenizer(models.BPE(ids_of("<unk>", "<s>", *BYTES, *PIECES), merges, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", unk_token="<unk>")


def _gemma() -> GemmaTokenizer:
    """Runs of spaces and of line ends are added tokens."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    merges = [("▁", "a"), ("▁", "▁")]
    tokenizer = GemmaTokenizer(vocab=ids_of(*special, *BYTES, *PIECES, "\n", "\t"), merges=merges)
    tokenizer.add_tokens(["▁" * count for count in range(2, 9)] + ["\n" * count for count in range(2, 5)])
    return tokenizer


def _scored(*tokens: str) -> list[tuple[str, float]]:
    return [(token, -float(place)) for place, token in enumerate(ids_of(*tokens))]


def _ended() -> dict[str, int]:
    stems = ["the", "cat", "a", "t", "s", "ing", "."]
    return ids_of("<unk>", *stems, *(f"{stem}</w>" for stem in stems))


def _clip() -> CLIPTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = ids_of("<|startoftext|>", "<|endoftext|>", *alphabet, *(f"{one}</w>" for one in alphabet), "ca", "at</w>")
    return CLIPTokenizer(vocab=vocab, merges=[("c", "a"), ("a", "t</w>")])


def _ctrl() -> CTRLTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        vocab, merges = Path(folder) / "vocab.json", Path(folder) / "merges.txt"
        vocab.write_text(json.dumps(ids_of("<unk>", "the", "ca@@", "t", "t@@", "ing", ".", "a", "日@@")))
        merges.write_text("#version\n\n")
        return CTRLTokenizer(str(vocab), str(merges))


class Python(PreTrainedTokenizer):
    """A tokenizer in Python, of a list of tokens."""

    def __init__(self, tokens: list[str], **settings: Any) -> None:
        self._tokens = tokens
        super().__init__(**settings)

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def get_vocab(self) -> dict[str, int]:
        return {token: place for place, token in enumerate(self._tokens)} | self.added_tokens_encoder

    def _tokenize(self, text: str) -> list[str]:
        return list(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._tokens.index(token) if token in self._tokens else 0

    def _convert_id_to_token(self, index: int) -> str:
        return self._tokens[index]


class PythonCharacters(Python):
    """As of CANINE, which takes seconds to build."""

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)


class PythonPieces(Python):
    """As of SentencePiece."""

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens).replace("▁", " ").strip()


class PythonBytes(Python):
    """As of tiktoken: every token is bytes, one character for each."""

    def __init__(self) -> None:
        super().__init__([chr(byte) for byte in range(256)] + ["the", " cat", "\xe6\x97", "\xf0\x9f\x99\x82!", "\r\n"])

    def _tokenize(self, text: str) -> list[str]:
        return list(text.encode().decode("latin-1"))

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        added = set(self.added_tokens_encoder)
        parts = [token.encode("utf-8" if token in added else "latin-1") for token in tokens]
        return b"".join(parts).decode(errors="replace")


KINDS: dict[str, Callable[[], Any]] = {
    "byte-level BPE (GPT-2)": _gpt2,
    "byte-level BPE with a space first": lambda: _gpt2(add_prefix_space=True),
    "byte-level BPE in a sequence (Llama 3)": _llama3,
    "SentencePiece BPE with byte fallback (Llama 2)": lambda: LlamaTokenizer(
        vocab=ids_of("<unk>", "<s>", "</s>", *BYTES, *PIECES), merges=[("▁", "a"), ("▁", "▁")]
    ),
    "SentencePiece BPE as converted (Mistral)": _llama2_before,
    "SentencePiece BPE without a first space": lambda: LlamaTokenizer(
        vocab=ids_of("<unk>", "<s>", "</s>", *BYTES, *PIECES), merges=[("▁", "a")], add_prefix_space=False
    ),
    "runs of spaces (Gemma)": _gemma,
    "Unigram (T5)": lambda: T5Tokenizer(vocab=_scored("<pad>", "</s>", "<unk>", *PIECES), extra_ids=3),
    "Unigram (XLNet)": lambda: XLNetTokenizer(vocab=_scored("<unk>", "<s>", "</s>", *PIECES)),
    "WordPiece (BERT)": lambda: BertTokenizer(
        vocab=ids_of("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "play", "##ing", "cat", ".", "##日", "n't")
    ),
    "WordPiece without cleaning": lambda: _words(decoders.WordPiece(cleanup=False)),
    "BPE with the end of words (GPT-1)": lambda: OpenAIGPTTokenizer(vocab=_ended(), merges=[]),
    "byte-level BPE with the end of words (CLIP)": _clip,
    "words without a decoder": _words,
    "a space before each word (Metaspace)": lambda: _words(decoders.Metaspace(prepend_scheme="always")),
    "Metaspace that leaves the first space": lambda: _words(decoders.Metaspace(prepend_scheme="never")),
    "joined, then two spaces cut": lambda: _words(
        decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)])
    ),
    "repeats left out (CTC)": lambda: _words(decoders.CTC()),
    "the rest of a word is marked (CTRL)": _ctrl,
    "bytes in Python (ByT5)": ByT5Tokenizer,
    "characters in Python (CANINE)": lambda: PythonCharacters(list(map(chr, range(0x3000)))),
    "words in Python": lambda: Python(["the", "cat", "a", ".", "日"]),
    "pieces in Python (SentencePiece)": lambda: PythonPieces(["<unk>", *PIECES]),
    "byte strings in Python (tiktoken)": PythonBytes,
}


@functools.cache
def kind(name: str) -> Any:
    """The tokenizer of that name, with added tokens."""
    tokenizer = KINDS[name]()
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in NORMAL])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    return tokenizer


def plain(tokenizer: Any, token_ids: list[int]) -> str:
    """What the tokenizer itself decodes."""
    return tokenizer.decode(token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
