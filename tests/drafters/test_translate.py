"""A draft with a tokenizer of its own: ids to ids by way of the bytes they stand for."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from fakes import (
    byte_tokenizer,
    ids_of,
    letter_tokenizer,
    random_table,
    shared_tiny,
    shuffled_rows,
    shuffled_tokenizer,
    table_model,
)
from tokenizer_kinds import kind, plain

import specdec
from specdec.drafters.translation import Translation, Vocabulary

TEXT = 'Once upon a time: "naïve café", 日本語, 🙂!\n\n    def push(self):'


@pytest.fixture(scope="module")
def translation() -> Translation:
    return Translation(byte_tokenizer(), shuffled_tokenizer(byte_tokenizer(), 280)[0])


def test_shared_tokens_mean_the_same(translation) -> None:
    """Every token that both know is paired, by what it stands for and not by its id."""
    target, draft = byte_tokenizer(), shuffled_tokenizer(byte_tokenizer(), 280)[0]
    assert len(translation.shared) == 280
    for draft_id, target_id in translation.shared.tolist():
        assert draft.convert_ids_to_tokens(draft_id) == target.convert_ids_to_tokens(target_id)


def test_special_tokens_are_paired_by_role() -> None:
    """The end of a text is the end of a text, whatever its name; other special tokens are not text."""
    target, draft = byte_tokenizer(), shuffled_tokenizer(byte_tokenizer(), 280)[0]
    renamed = Translation(target, draft)
    draft_end = renamed.draft.id_of[renamed.target.bytes_of[target.eos_token_id]]
    assert draft_end == draft.eos_token_id
    plain = Vocabulary(target)
    assert plain.split(b"</s>") == target("</s>"[:1]).input_ids + plain.split(b"/s>")


@pytest.mark.parametrize("way", ["split", "encode"])
def test_text_is_the_same_after_splitting_and_joining(way: str) -> None:
    for tokenizer in (byte_tokenizer(), shuffled_tokenizer(byte_tokenizer(), 280)[0]):
        vocabulary = Vocabulary(tokenizer)
        assert vocabulary.join(getattr(vocabulary, way)(TEXT.encode())) == TEXT.encode()


OTHERS = [
    "runs of spaces (Gemma)",
    "SentencePiece BPE with byte fallback (Llama 2)",
    "Unigram (T5)",
    "WordPiece (BERT)",
    "BPE with the end of words (GPT-1)",
    "the rest of a word is marked (CTRL)",
    "byte strings in Python (tiktoken)",
]


@pytest.mark.parametrize("name", OTHERS)
def test_a_draft_reads_what_the_targets_tokenizer_decodes(name: str) -> None:
    """The prompt, and every token that it and the target share. So drafts of another kind change no text."""
    ours, theirs = kind(name), byte_tokenizer()
    translation = Translation(ours, theirs)
    words = ours("the cat a", add_special_tokens=False).input_ids
    assert translation.prompt(words) == theirs(plain(ours, words)).input_ids
    for draft_id, target_id in translation.shared.tolist():
        assert translation.draft.bytes_of[draft_id] == translation.target.bytes_of[target_id]
    size = max(ours.get_vocab().values()) + 1
    target = table_model(random_table(size, 1, seed=0, scale=4))
    draft = table_model(random_table(300, 1, seed=1, scale=4))
    pair = specdec.Pair(target=target, draft=draft, tokenizer=ours, draft_tokenizer=theirs)
    params = specdec.SamplingParams(max_new_tokens=24, ignore_eos=True)
    prompt = torch.tensor(words)
    written = [ids_of(list(specdec.speculative(pair, prompt, gamma=gamma, params=params))) for gamma in (0, 4)]
    assert written[0] == written[1]


def test_runs_of_spaces_are_shared_by_what_they_stand_for() -> None:
    """Gemma's are added tokens; a byte-level vocabulary has the same spaces under other names.

    A character with a token of its own is that, not the byte of the fallback: the target never writes it so.
    """
    ours, theirs = kind("runs of spaces (Gemma)"), letter_tokenizer(["\u0120", "a", "\u0120\u0120", "\u010a"])
    shared = {d: t for d, t in Translation(ours, theirs).shared.tolist()}
    assert [ours.convert_ids_to_tokens(shared[i]) for i in (0, 1, 2)] == ["▁", "a", "▁▁"]


def test_the_rest_of_a_word_is_no_word() -> None:
    """Some tokenizers encode a text as whole words, whatever is before it, but a draft may go on inside of one."""
    tokenizer = kind("Unigram (T5)")
    vocabulary = Vocabulary(tokenizer)
    assert tokenizer.convert_ids_to_tokens(vocabulary.encode(b" the")) == ["▁the"]
    assert tokenizer.convert_ids_to_tokens(vocabulary.encode(b"that")) == ["th", "at"]


def test_encode_writes_as_the_tokenizer_does() -> None:
    """Where longest-match would write otherwise too: merges have an order."""
    tokenizer = byte_tokenizer()
    assert Vocabulary(tokenizer).encode(TEXT.encode()) == tokenizer(TEXT, add_special_tokens=False).input_ids


def test_half_a_character_at_the_end_is_left_out() -> None:
    """A draft that ends inside a character proposes what is complete."""
    vocabulary = Vocabulary(byte_tokenizer())
    assert vocabulary.join(vocabulary.encode("a 日本".encode()[:-1])) == "a 日".encode()


def test_confidence_is_divided_over_the_targets_tokens() -> None:
    """The sums of -log over the target's tokens are those over the draft's, each counted where it begins."""
    translation = Translation(letter_tokenizer(["a", "b", "c", "bc"]), letter_tokenizer(["c", "ab", "a", "b"]))
    assert translation.proposal([1, 0], [0.5, 0.25]) == ([0, 3], [0.5, 0.25])  # ab c -> a bc
    assert translation.proposal([2, 2], [0.5, 0.25]) == ([0, 0], [0.5, 0.25])  # a a
    assert translation.proposal([1], [0.5]) == ([0, 1], [0.5, 0.0])  # ab -> a b


def test_prompt_beyond_the_drafts_context_decodes_without_drafts() -> None:
    """The target's text goes on; the draft has nothing to say."""
    tokenizer, order = shuffled_tokenizer(byte_tokenizer(), 280)
    target = shared_tiny("llama", 3)
    draft = shuffled_rows(shared_tiny("gpt2", 3), order)  # learned positions: reading past the last one is an error
    pair = specdec.Pair(target=target, draft=draft, tokenizer=byte_tokenizer(), draft_tokenizer=tokenizer)
    prompt = torch.full((1, 120), byte_tokenizer()("z").input_ids[0])
    wide = prompt.clone()
    wide[0, ::2] = 299  # a token of several letters, which the draft has to spell
    for ids in (prompt, wide):
        params = specdec.SamplingParams(max_new_tokens=8, ignore_eos=True)
        texts = [ids_of(list(specdec.speculative(pair, ids, gamma=gamma, params=params))) for gamma in (0, 4)]
        assert texts[0] == texts[1]


def test_a_draft_that_differs_in_its_ids_alone_drafts_as_well() -> None:
    """The embedded draft under other ids: the same text, and about as many guesses kept."""
    pair = specdec.load_pair()
    tokenizer, order = shuffled_tokenizer(pair.tokenizer, len(pair.tokenizer))
    other = dataclasses.replace(pair, draft=shuffled_rows(pair.draft.model, order), draft_tokenizer=tokenizer)
    params = specdec.SamplingParams(max_new_tokens=64, ignore_eos=True)
    results = [specdec.collect(specdec.speculative(p, "Once upon a time", params=params)) for p in (pair, other)]
    assert results[0].token_ids == results[1].token_ids
    assert results[1].metrics.alpha > 0.9 * results[0].metrics.alpha
    assert all(0 < token.draft_confidence <= 1 for event in results[1].rounds for token in event.draft)


def test_models_with_fewer_rows_than_tokens_decode() -> None:
    """Ids that a tokenizer knows and a model has no row for are neither proposed nor read."""
    tokenizer, order = shuffled_tokenizer(byte_tokenizer(), 300)
    target = shared_tiny("llama", 3, vocab_size=290)
    draft = shuffled_rows(shared_tiny("llama", 3), order[:270])
    pair = specdec.Pair(target=target, draft=draft, tokenizer=byte_tokenizer(), draft_tokenizer=tokenizer)
    for temperature in (0.0, 1.0):
        params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True, temperature=temperature, seed=0)
        ids = ids_of(list(specdec.speculative(pair, "x y z", gamma=5, params=params)))
        assert len(ids) == 40 and max(ids) < 290
    greedy = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    texts = [ids_of(list(specdec.speculative(pair, "x y z", gamma=g, params=greedy))) for g in (0, 5)]
    assert texts[0] == texts[1]


def test_nothing_in_common_drafts_nothing_when_sampling() -> None:
    """No token of the draft's is one of the target's: there is no q to draw from, and the text goes on without."""
    strangers = letter_tokenizer(["z", "q"])
    target = letter_tokenizer(["a", "b", "c"])
    pair = specdec.Pair(
        target=shared_tiny("llama", 3), draft=shared_tiny("llama", 1), tokenizer=target, draft_tokenizer=strangers
    )
    params = specdec.SamplingParams(max_new_tokens=8, ignore_eos=True, temperature=1.0, seed=0)
    assert len(ids_of(list(specdec.speculative(pair, torch.tensor([0, 1, 2]), gamma=4, params=params)))) == 8
