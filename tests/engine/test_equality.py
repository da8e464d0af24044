"""Greedy speculative decoding writes token for token what ``model.generate`` writes, in fp32.

The test itself calls ``generate`` for the reference, with every sampling setting neutral. --hours runs the full
table: all draft lengths from 1 to 16 and more seeds. ``-n 0 -s`` prints how many positions were compared, and the ties.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator

import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from comparison import HOURS, Comparison
from fakes import (
    FAMILIES,
    MORE_FAMILIES,
    byte_tokenizer,
    chain,
    count_passes,
    generated,
    ids_of,
    noisy_copy,
    prompt_of,
    rounds_of,
    shared_tiny,
    shuffled_rows,
    shuffled_tokenizer,
    table_model,
    table_pair,
    tiny,
)
from pairwise import pairwise
from transformers import GenerationConfig, OpenAIGPTConfig, OpenAIGPTLMHeadModel, StopStringCriteria
from transformers.generation import stopping_criteria

import specdec
from specdec.engine.request import StopStrings

GAMMAS = range(1, 17) if HOURS else (1, 5, 16)
SEEDS = range(6) if HOURS else (0,)
NEW_TOKENS = 60 if HOURS else 40


@pytest.fixture(scope="module")
def comparison() -> Iterator[Comparison]:
    tally = Comparison()
    yield tally
    print(f"{tally.positions} positions compared, ties: {tally.ties or 'none'}")
    tally.require_few_ties()


DRAFTS = ("other seed", "near", "equal", "other family", "fewer ids", "more ids")


@functools.cache
def pair_of(family: str, draft: str, seed: int = 0) -> specdec.Pair:
    """``family`` is the target's; the draft "for llama" is one of ``family`` for a Llama."""
    if draft == "for llama":
        layers = 2 if family == "lfm2" else 1  # its first layer is a convolution, and it counts by its attention
        model = shared_tiny(family, seed + 100, layers=layers, vocab_size=304, context=512)
        return specdec.Pair(target=target_of("llama", seed), draft=model, tokenizer=byte_tokenizer())
    target = target_of(family, seed)
    draft_tokenizer = None
    if draft == "equal":
        model = target
    elif draft == "near":
        model = noisy_copy(target, seed, scale=0.006)
    elif draft == "lookup":
        model = specdec.PromptLookup()
    elif draft == "early exit":
        model = specdec.EarlyExit(2)
    elif draft == "other ids":
        draft_tokenizer, order = shuffled_tokenizer(byte_tokenizer(), 280)
        model = shuffled_rows(noisy_copy(target, seed, scale=0.006), order)
    elif draft == "other family":
        other = FAMILIES[(FAMILIES.index(family) + 1) % len(FAMILIES)]
        model = shared_tiny(other, seed, layers=1, vocab_size=336, context=512)
    else:
        rows = {"other seed": 336, "fewer ids": 304, "more ids": 368}[draft]
        model = shared_tiny(family, seed + 100, layers=2, vocab_size=rows, context=512)
    return specdec.Pair(target=target, draft=model, tokenizer=byte_tokenizer(), draft_tokenizer=draft_tokenizer)


def target_of(family: str, seed: int):
    return shared_tiny(family, seed, layers=3, vocab_size=336, context=512)


@functools.cache
def reference_of(
    family: str, seed: int, prompt_length: int, penalty: float, new_tokens: int = NEW_TOKENS
) -> tuple[int, ...]:
    prompt_ids = prompt_of(prompt_length, seed=seed)
    return generated(target_of(family, seed), prompt_ids, new_tokens, repetition_penalty=penalty)


def spoken(pair: specdec.Pair, prompt_ids: torch.Tensor, gamma: int | str, **settings) -> tuple[int, ...]:
    settings = {"max_new_tokens": NEW_TOKENS} | settings
    events = list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=specdec.SamplingParams(**settings)))
    assert tuple(specdec.collect(iter(events)).token_ids) == ids_of(events)
    return ids_of(events)


@pytest.mark.parametrize("seed", SEEDS)
@pairwise(family=FAMILIES, draft=DRAFTS, gamma=GAMMAS, penalty=(1.0, 1.3))
def test_text_equals_generate(family: str, draft: str, gamma: int, penalty: float, seed: int, comparison) -> None:
    """Whatever the draft and its length, the text is the target's own; padded ids on either side change nothing."""
    pair = pair_of(family, draft, seed)
    for length in (1, 20):
        prompt_ids = prompt_of(length, seed=seed)
        ours = spoken(pair, prompt_ids, gamma, repetition_penalty=penalty)
        comparison.require_same(pair.target, prompt_ids, ours, reference_of(family, seed, length, penalty), penalty)


@pairwise(
    family=(*FAMILIES, *MORE_FAMILIES),
    draft=("near", "for llama", "fewer ids", "more ids", "other ids", "lookup", "early exit"),
    gamma=(*GAMMAS, "auto"),
)
def test_every_family_and_every_way_to_draft(family: str, draft: str, gamma: int | str, comparison) -> None:
    """Each family as target and as draft, and drafts without a second model; 300 tokens in the full table."""
    pair, new_tokens = pair_of(family, draft), 300 if HOURS else 24
    prompt_ids = prompt_of(20, seed=0)
    ours = spoken(pair, prompt_ids, gamma, max_new_tokens=new_tokens)
    target = "llama" if draft == "for llama" else family
    comparison.require_same(pair.target, prompt_ids, ours, reference_of(target, 0, 20, 1.0, new_tokens), 1.0)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_early_exit_of_a_target_that_is_spread(family: str, comparison) -> None:
    """Accelerate puts a hook into every module. A copied module must not run the original."""
    target = dispatch_model(tiny(family), {"": "cpu"}, main_device="cpu", force_hooks=True)
    prompt_ids = prompt_of(9)
    ours = spoken(specdec.Pair(target, specdec.EarlyExit(1)), prompt_ids, 5)
    comparison.require_same(target, prompt_ids, ours, generated(tiny(family), prompt_ids, NEW_TOKENS))


@pytest.mark.parametrize("draft", [tiny("llama", 1), specdec.EarlyExit(1), specdec.PromptLookup()])
def test_a_target_whose_weights_are_offloaded(draft, comparison) -> None:
    """Its weights are on no device until a module needs them, the embeddings' too."""
    target = cpu_offload(tiny("llama"), torch.device("cpu"))
    pair, prompt_ids = specdec.Pair(target, draft), prompt_of(9)
    plain = generated(tiny("llama"), prompt_ids, NEW_TOKENS)
    comparison.require_same(target, prompt_ids, spoken(pair, prompt_ids, 5), plain)
    params = specdec.SamplingParams(max_new_tokens=NEW_TOKENS)
    assert specdec.collect(specdec.generate(pair, prompt_ids, params=params)).token_ids == list(plain)
    with pytest.raises(specdec.IncompatiblePair, match="Leave the lane assisted out"):
        specdec.assisted(pair, prompt_ids, params=params)


def test_a_model_that_keeps_no_cache_is_refused() -> None:
    """It would go on without its past and write another text."""
    config = OpenAIGPTConfig(vocab_size=320, n_embd=16, n_layer=1, n_head=2, n_positions=128)
    with pytest.raises(specdec.IncompatiblePair, match="no cache"):
        specdec.Pair(OpenAIGPTLMHeadModel(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_pairs_accept_and_reject_guesses(family: str) -> None:
    """Guards the test above: texts vary; a similar draft is accepted in part, an equal one always, others rarely."""
    assert len(set(reference_of(family, 0, 20, 1.0))) > 8
    rates = {}
    for draft in ("near", "equal", "other seed"):
        params = specdec.SamplingParams(max_new_tokens=NEW_TOKENS)
        events = specdec.speculative(pair_of(family, draft), prompt_of(20, seed=0), gamma=5, params=params)
        rates[draft] = specdec.collect(events).metrics.alpha
    assert rates["equal"] == 1
    assert 0.2 < rates["near"] < 0.97
    assert rates["other seed"] < 0.3


@pytest.mark.parametrize("gamma", [0, 5])
def test_target_alone_equals_generate(gamma: int, comparison) -> None:
    """Draft length 0 is plain decoding by the same loop, with or without a draft in the pair."""
    pair = pair_of("llama", "near")
    alone = specdec.Pair(target=pair.target, draft=None, tokenizer=pair.tokenizer)
    ours = spoken(pair if gamma else alone, prompt_of(20, seed=0), gamma)
    comparison.require_same(pair.target, prompt_of(20, seed=0), ours, reference_of("llama", 0, 20, 1.0))


def test_sliding_window_is_exceeded() -> None:
    """The sliding-window family really slides: its window is smaller than the texts compared above."""
    for family in ("gemma2", "gemma3", "mistral"):
        assert target_of(family, 0).config.sliding_window < 20


def test_id_beyond_the_draft_is_written_and_read(comparison) -> None:
    """A target that writes ids the draft has no row for keeps its own text; the draft does not crash on them."""
    pair = pair_of("llama", "fewer ids")
    prompt_ids = torch.tensor([5, 330, 331, 7])
    reference = generated(pair.target, prompt_ids, 100)
    assert any(token_id >= 304 for token_id in reference)
    for gamma in (1, 4):
        ours = spoken(pair, prompt_ids, gamma, max_new_tokens=100)
        comparison.require_same(pair.target, prompt_ids, ours, reference)


# --- where a text ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0, 1, 5, 16])
@pytest.mark.parametrize("new_tokens", [1, 2, 7])
@pytest.mark.parametrize("draft", ["equal", "other seed"])
def test_length_is_exact(draft: str, new_tokens: int, gamma: int, comparison) -> None:
    """Never more tokens than asked for, even if the draft could go beyond (a bug of the first notebooks)."""
    pair, prompt_ids = pair_of("qwen2", draft), prompt_of(20, seed=0)
    events = list(
        specdec.speculative(pair, prompt_ids, gamma=gamma, params=specdec.SamplingParams(max_new_tokens=new_tokens))
    )
    assert len(ids_of(events)) == new_tokens
    assert events[-1].finish_reason == "length"
    comparison.require_same(pair.target, prompt_ids, ids_of(events), reference_of("qwen2", 0, 20, 1.0)[:new_tokens])
    for event in rounds_of(events)[1:]:
        assert len(event.draft) <= gamma


def test_draft_is_never_longer_than_what_remains() -> None:
    """With 4 tokens to go after the first, a draft of 16 would be thrown away: at most 3 are drafted."""
    events = list(
        specdec.speculative(
            pair_of("llama", "equal"), prompt_of(4), gamma=16, params=specdec.SamplingParams(max_new_tokens=5)
        )
    )
    assert [len(r.draft) for r in rounds_of(events)] == [0, 3]
    assert [r.token_kind for r in rounds_of(events)] == ["target", "bonus"]


COUNT_UP = chain([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0])  # from 0 it writes 1, 2, 3, ...


def test_eos_inside_a_draft_ends_the_text_there() -> None:
    """EOS as the third of five accepted draft tokens: it is kept, nothing follows it, and the target adds nothing."""
    pair = table_pair(COUNT_UP, COUNT_UP, eos=4)
    events = list(specdec.speculative(pair, torch.tensor([0]), gamma=5))
    assert ids_of(events) == (1, 2, 3, 4) == generated(pair.target, torch.tensor([0]), 20)
    last = rounds_of(events)[-1]
    assert (last.token_id, last.token_kind) == (None, None)
    assert [t.status for t in last.draft] == ["accepted", "accepted", "accepted", "discarded", "discarded"]
    assert events[-1].finish_reason == "eos"


@pytest.mark.parametrize("eos", [1, 2, 6, 7])
@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_eos_anywhere(eos: int, gamma: int) -> None:
    """EOS as first token, first draft token, last draft token, bonus: always kept, always last."""
    pair = table_pair(COUNT_UP, COUNT_UP, eos=eos)
    events = list(specdec.speculative(pair, torch.tensor([0]), gamma=gamma))
    assert ids_of(events) == tuple(range(1, eos + 1))
    assert events[-1].finish_reason == "eos"


def test_eos_as_correction() -> None:
    """A draft that continues where the target stops: EOS is the correction."""
    stops = chain([1, 2, 3, 11, 5, 6, 7, 8, 9, 10, 11, 0])
    events = list(specdec.speculative(table_pair(stops, COUNT_UP, eos=11), torch.tensor([0]), gamma=5))
    assert ids_of(events) == (1, 2, 3, 11)
    assert rounds_of(events)[-1].token_kind == "correction"
    assert events[-1].finish_reason == "eos"


def test_rejected_eos_ends_nothing() -> None:
    """EOS proposed by the draft and refused by the target is no end."""
    stops = chain([1, 2, 11, 4, 5, 6, 7, 8, 9, 10, 11, 0])
    params = specdec.SamplingParams(max_new_tokens=6)
    events = list(specdec.speculative(table_pair(COUNT_UP, stops, eos=11), torch.tensor([0]), gamma=5, params=params))
    assert ids_of(events) == (1, 2, 3, 4, 5, 6)
    assert events[-1].finish_reason == "length"


def test_several_eos_ids() -> None:
    """Chat models have two or three ids that end a text; the first to come ends it."""
    pair = table_pair(COUNT_UP, COUNT_UP, eos=[9, 5, 7])
    for gamma in (0, 2, 5):
        assert ids_of(list(specdec.speculative(pair, torch.tensor([0]), gamma=gamma))) == (1, 2, 3, 4, 5)


def test_eos_in_the_prompt_ends_nothing() -> None:
    """Many prompts hold an EOS between turns, some end with it."""
    pair = table_pair(COUNT_UP, COUNT_UP, eos=3)
    for prompt in ([3], [3, 4, 3, 5], [2, 3]):
        prompt_ids = torch.tensor(prompt)
        params = specdec.SamplingParams(max_new_tokens=7)
        ours = ids_of(list(specdec.speculative(pair, prompt_ids, gamma=3, params=params)))
        assert ours == generated(pair.target, prompt_ids, 7)
        assert len(ours) == 7


def test_ignore_eos() -> None:
    """A benchmark wants its full length."""
    pair = table_pair(COUNT_UP, COUNT_UP, eos=3)
    params = specdec.SamplingParams(max_new_tokens=9, ignore_eos=True)
    for run in (specdec.speculative, specdec.assisted):
        events = list(run(pair, torch.tensor([0]), gamma=4, params=params))
        assert ids_of(events) == tuple(range(1, 10))
        assert events[-1].finish_reason == "length"
    assert ids_of(list(specdec.generate(pair, torch.tensor([0]), params=params))) == tuple(range(1, 10))


def spelling_pair() -> tuple[specdec.Pair, list[int], str]:
    """A pair that writes ten tokens of two or more letters in a circle; the ids and the text."""
    tokenizer = byte_tokenizer()
    tokens = [(i, tokenizer.decode([i])) for i in range(258, 300)]
    cycle = [i for i, text in tokens if len(text) > 1 and text.isalpha() and text.isascii()][:10]
    table = torch.zeros(336, 336)
    for now, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        table[now, following] = 9.0
    model = table_model(table)
    return specdec.Pair(target=model, draft=model, tokenizer=tokenizer), cycle, tokenizer.decode(cycle)


@pytest.mark.parametrize("gamma", [0, 1, 4, 7])
def test_stop_string_keeps_the_token_that_completes_it(gamma: int) -> None:
    """A stop string may begin in one token and end inside another; what is written equals ``generate``'s."""
    pair, cycle, _ = spelling_pair()
    words = [pair.tokenizer.decode([i]) for i in cycle]
    prompt_ids = torch.tensor(cycle[:1])
    for stop in ((words[3][-1] + words[4][0],), (words[5],), ("never", words[6] + words[7][:1]), ("never",)):
        params = specdec.SamplingParams(max_new_tokens=12, stop=stop)
        events = list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params))
        reference = generated(pair.target, prompt_ids, 12, tokenizer=pair.tokenizer, stop_strings=list(stop))
        assert ids_of(events) == reference
        assert events[-1].finish_reason == ("length" if stop == ("never",) else "stop")


@pytest.mark.parametrize(
    "stop", [["."], [" the", "end"], ["Lily.", "\n\n", "She was"], ["中", "é", "aé"], ["aaaa", "a"], ["\U0001f600" * 3]]
)
@pytest.mark.parametrize("mode", ["bytes", "text"])
def test_stop_strings_are_found_as_transformers_finds_them(stop: list[str], mode: str, monkeypatch) -> None:
    """Only tokens that have a place in a stop string, or beside one, are tried. The answers are the same."""
    tokenizer = specdec.load_pair().tokenizer
    if mode == "text":  # of a tokenizer without a byte-level decoder
        monkeypatch.setattr(StopStringCriteria, "_get_stop_string_matching_mode", staticmethod(lambda tokenizer: None))
    tried, make = [], StopStringCriteria._stop_string_create_embedding_vec
    monkeypatch.setattr(
        StopStringCriteria,
        "_stop_string_create_embedding_vec",
        staticmethod(lambda tokens, *rest: tried.append(len(tokens)) or make(tokens, *rest)),
    )
    found = []
    for kind in (StopStringCriteria, StopStrings):
        monkeypatch.setattr(stopping_criteria, "STOP_STRING_EMBEDDING_CACHE", OrderedDict())
        try:
            found.append(kind(tokenizer, stop))
        except ValueError:
            found.append(None)
    theirs, ours = found
    assert (ours is None) == (theirs is None) and tried[0] == len(tokenizer) and tried[1] < len(tokenizer) / 2
    every = torch.arange(len(tokenizer))[:, None]
    for text in stop * (ours is not None):
        for size in range(len(text)):  # each token after each beginning of a stop string
            before = torch.tensor(tokenizer("x" + text[:size], add_special_tokens=False).input_ids)
            ids = torch.cat([before.expand(len(every), -1), every, every.flip(0)], dim=1)
            for end in (-1, None):
                ours._seen = None
                assert torch.equal(ours(ids[:, :end], None), theirs(ids[:, :end], None)), (text, size)


# --- what a model's own generation config must not change ------------------------------------------------------------

LEAKS = {
    "repetition_penalty": 1.5,
    "top_k": 3,
    "top_p": 0.5,
    "min_p": 0.2,
    "temperature": 0.3,
    "do_sample": True,
    "no_repeat_ngram_size": 2,
    "typical_p": 0.6,
    "epsilon_cutoff": 0.01,
    "min_new_tokens": 30,
    "bad_words_ids": [[17], [23]],
    "encoder_repetition_penalty": 1.7,
    "num_beams": 3,
}


@pytest.fixture(scope="module")
def leaky() -> tuple[specdec.Pair, tuple[int, ...]]:
    """A target whose generation config sets everything, and what it writes without any of that."""
    clean = tiny("llama", 3, layers=3)
    prompt_ids = prompt_of(12)
    eos = generated(clean, prompt_ids, 40)[19]
    reference = generated(clean, prompt_ids, 40, eos_token_id=eos, pad_token_id=eos)
    target = tiny("llama", 3, layers=3)
    suppressed = [reference[2], reference[4]]
    target.generation_config = GenerationConfig(
        **LEAKS, suppress_tokens=suppressed, begin_suppress_tokens=[reference[0]], eos_token_id=eos, pad_token_id=0
    )
    draft = noisy_copy(clean, 1, scale=0.006)
    return specdec.Pair(target=target, draft=draft, tokenizer=byte_tokenizer()), reference


@pytest.mark.parametrize("lane", ["speculative", "gamma 0", "generate", "assisted"])
def test_generation_config_of_the_model_changes_nothing(lane: str, leaky) -> None:
    """Qwen's chat models have a repetition penalty, others top-k 50. No lane uses them, and each lane reports them."""
    pair, reference = leaky
    run = {
        "speculative": functools.partial(specdec.speculative, gamma=5),
        "gamma 0": functools.partial(specdec.speculative, gamma=0),
        "generate": specdec.generate,
        "assisted": functools.partial(specdec.assisted, gamma=5),
    }[lane]
    before = pair.target.generation_config.to_dict()
    events = list(run(pair, prompt_of(12), params=specdec.SamplingParams(max_new_tokens=40)))
    assert ids_of(events) == reference
    assert events[-1].finish_reason == "eos"
    said = events[0].neutralised
    for name in (*LEAKS, "suppress_tokens", "begin_suppress_tokens"):
        assert name in said, name
    assert said["repetition_penalty"] == 1.5 and said["top_k"] == 3 and said["no_repeat_ngram_size"] == 2
    assert pair.target.generation_config.to_dict() == before


def test_neutral_config_is_not_mentioned() -> None:
    """Nothing was set aside where the model asks for nothing."""
    params = specdec.SamplingParams(max_new_tokens=2)
    events = specdec.speculative(pair_of("llama", "near"), prompt_of(3), gamma=2, params=params)
    assert next(events).neutralised == {}


def test_reference_is_not_our_engine() -> None:
    """``generate`` of the reference runs without a draft, with one forward pass for each token."""
    target = target_of("gpt2", 0)
    with count_passes(target) as fed:
        generated(target, prompt_of(20), 10)
    assert fed == [20] + [1] * 9
