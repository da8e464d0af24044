"""Where decoding must either equal ``generate`` or refuse in a sentence: positions, broken numbers, odd arguments."""

from __future__ import annotations

import copy
import math
import time

import pytest
import torch
from fakes import (
    byte_tokenizer,
    chain,
    generated,
    ids_of,
    isolated_rng,
    letters,
    noisy_copy,
    prompt_of,
    random_table,
    rounds_of,
    shared_tiny,
    table_model,
    table_pair,
    tiny,
    word_tokenizer,
)
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    GenerationConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaModel,
    Phi3Config,
    Phi3ForCausalLM,
)

import specdec
from specdec.lanes import hf_generate
from specdec.runtime import draws

LANES = ("generate", "assisted", "speculative")


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 6)
    return specdec.Pair(target=target, draft=noisy_copy(target, 6), tokenizer=byte_tokenizer())


def written(pair: specdec.Pair, lane: str = "speculative", prompt=None, **settings) -> tuple[int, ...]:
    params = specdec.SamplingParams(**({"max_new_tokens": 8} | settings))
    return ids_of(list(getattr(specdec, lane)(pair, prompt_of(4) if prompt is None else prompt, params=params)))


# --- LongRoPE --------------------------------------------------------------------------------------------------------

SHORT = 24  # tokens up to which the short factors hold


@pytest.fixture(scope="module")
def long_rope() -> specdec.Pair:
    """A Phi-3 whose two sets of factors differ so much that its text shows which one was used."""
    with isolated_rng(0):
        config = Phi3Config(
            vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=96, original_max_position_embeddings=SHORT,
            pad_token_id=0, eos_token_id=None, initializer_range=0.4,
            rope_parameters={
                "rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": SHORT,
                "short_factor": [1.0] * 4, "long_factor": [9.0, 7.0, 5.0, 3.0],
            },
        )  # fmt: skip
        target = Phi3ForCausalLM(config).eval()
    target.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=None)
    return specdec.Pair(target, noisy_copy(target, scale=0.01))


@pytest.mark.parametrize(("prompt", "new"), [(10, SHORT - 9), (SHORT + 1, 20), (SHORT + 9, 30)])
def test_a_text_on_one_side_of_the_rope_boundary_equals_generate(prompt: int, new: int, long_rope) -> None:
    ids = prompt_of(prompt, 96)
    reference = generated(long_rope.target, ids, new)
    for gamma in (0, 4):
        events = specdec.speculative(long_rope, ids, gamma=gamma, params=specdec.SamplingParams(max_new_tokens=new))
        assert ids_of(list(events)) == reference


@pytest.mark.parametrize("prompt", [10, SHORT])
def test_a_text_across_the_rope_boundary_is_refused(prompt: int, long_rope) -> None:
    """The message names the longest text that does not cross it. Plain ``generate`` still works."""
    allowed = SHORT + 1 - prompt
    for lane in ("speculative", "assisted"):
        assert len(written(long_rope, lane, prompt_of(prompt, 96), max_new_tokens=allowed)) == allowed
        with pytest.raises(specdec.InvalidInput, match=f"at most {allowed} new"):
            written(long_rope, lane, prompt_of(prompt, 96), max_new_tokens=allowed + 1)
    assert len(written(long_rope, "generate", prompt_of(prompt, 96), max_new_tokens=allowed + 9)) == allowed + 9


def test_a_draft_may_cross_its_own_rope_boundary(long_rope) -> None:
    """Only its guesses become worse, because q is still the distribution that they were drawn from."""
    target = shared_tiny("llama", 6, vocab_size=96)
    ids = prompt_of(SHORT - 6, 96)
    assert written(specdec.Pair(target, long_rope.draft), prompt=ids, max_new_tokens=30) == generated(target, ids, 30)


# --- NaN and infinity ------------------------------------------------------------------------------------------------


def broken(model, value: float):
    model.lm_head.weight.data[3] = value
    return model


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("gamma", [0, 3])
def test_a_target_with_nan_logits_is_refused(gamma: int, temperature: float, value: float) -> None:
    pair = specdec.Pair(broken(tiny("llama", 6), value), tiny("llama", 6))
    params = specdec.SamplingParams(max_new_tokens=8, temperature=temperature, seed=1)
    with pytest.raises(specdec.SpecdecError, match="target's logits hold NaN or infinity"):
        list(specdec.speculative(pair, prompt_of(4), gamma=gamma, params=params))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_with_nan_logits_is_refused(temperature: float) -> None:
    pair = specdec.Pair(tiny("llama", 6), broken(tiny("llama", 6), math.nan))
    with pytest.raises(specdec.SpecdecError, match="draft's logits hold NaN or infinity"):
        written(pair, temperature=temperature, seed=1)


class Operators(TorchDispatchMode):
    """The names of the operators that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("draft", ["model", "prompt lookup", "early exit"])
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0}, {"temperature": 0.7}, {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.9}, {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 1.0, "repetition_penalty": 1.3},
    ],
)  # fmt: skip
@pytest.mark.parametrize("accept", [{}, {"acceptance": "top-k", "accept_top_k": 2}])
def test_nan_reaches_no_operator_that_asserts(draft: str, settings: dict, accept: dict) -> None:
    """A failed assertion on a GPU ends all work of the process. NaN occurs here in the middle of a text.

    Indices made of it are within their bounds, or this would be an IndexError; and nothing draws by ``multinomial``.
    """
    table = chain([1, 2, 3, 4, 5, 0])
    table[4] = math.nan
    target = table_model(table / 2, table / 2)
    methods = {"model": table_model(table), "prompt lookup": specdec.PromptLookup(), "early exit": specdec.EarlyExit(1)}
    params = specdec.SamplingParams(max_new_tokens=40, seed=1, **settings)
    prompt = torch.tensor([0, 1, 2, 3, 4, 5, 0, 1, 2])
    with Operators() as seen, pytest.raises(specdec.SpecdecError, match="NaN or infinity"):
        list(specdec.speculative(specdec.Pair(target, methods[draft]), prompt, gamma=4, params=params, **accept))
    assert "argmax" in seen.names and "multinomial" not in seen.names


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("lane", ["generate", "assisted"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_transformers_lanes_refuse_nan_before_a_token_is_written(lane: str, value: float, temperature: float) -> None:
    """Without this, greedy decoding would write tokens, and sampling would fail with torch's own error."""
    pair = specdec.Pair(broken(tiny("llama", 6), value), tiny("llama", 6))
    params = specdec.SamplingParams(max_new_tokens=8, temperature=temperature, seed=1)
    seen = []
    with pytest.raises(specdec.SpecdecError, match="logits hold NaN or infinity"):
        for batch in specdec.driven(getattr(specdec, lane)(pair, prompt_of(4), params=params)):
            seen += batch
    assert [type(event) for event in seen] == [specdec.Started]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_assisted_generation_names_a_draft_with_nan_logits(temperature: float) -> None:
    pair = specdec.Pair(tiny("llama", 6), broken(tiny("llama", 6), math.nan))
    with pytest.raises(specdec.SpecdecError, match="draft's logits hold NaN or infinity"):
        written(pair, "assisted", temperature=temperature, seed=1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("lane", ["generate", "assisted"])
def test_where_the_host_would_wait_nan_is_found_at_the_end(lane: str, temperature: float, monkeypatch) -> None:
    """NaN in the middle of the text, as on a GPU, where a draw from NaN would end all work of the process."""
    table = chain([1, 2, 3, 4, 5, 0])
    table[4] = math.nan
    pair = table_pair(table, chain([1, 2, 3, 4, 5, 0]))
    usual = hf_generate.Numbers.__init__
    monkeypatch.setattr(
        hf_generate.Numbers, "__init__", lambda self, streamer, waits: usual(self, streamer, waits=True)
    )
    draw, drawn_from = torch.multinomial, []
    monkeypatch.setattr(torch, "multinomial", lambda p, **rest: (drawn_from.append(p), draw(p, **rest))[1])
    with pytest.raises(specdec.SpecdecError, match="logits hold NaN or infinity"):
        written(pair, lane, torch.tensor([0]), temperature=temperature, seed=1, max_new_tokens=40)
    assert all(p.isfinite().all() for p in drawn_from) and bool(drawn_from) == bool(temperature)
    assert written(table_pair(chain([1, 2, 0]), chain([1, 2, 0])), lane, torch.tensor([0]), max_new_tokens=3) == (
        1,
        2,
        0,
    )


def test_the_check_for_nan_is_not_timed(monkeypatch) -> None:
    usual = hf_generate.Numbers._see
    monkeypatch.setattr(hf_generate.Numbers, "_see", lambda *args: (time.sleep(0.05), usual(*args)))
    pair = table_pair(chain([1, 2, 0]), None)
    params = specdec.SamplingParams(max_new_tokens=30)
    *_, finished = specdec.generate(pair, torch.tensor([0]), params=params)
    assert finished.elapsed_seconds < 1.0  # 1.5 s of looking alone


def test_minus_infinity_is_a_valid_logit() -> None:
    """Minus infinity excludes a token. If only one token is left, there is no margin."""
    table = random_table(6, 1, 0)
    table[:, 1:] = -math.inf
    pair = table_pair(table, random_table(6, 1, 0))
    for temperature in (0.0, 1.0):
        params = specdec.SamplingParams(max_new_tokens=5, temperature=temperature, seed=1)
        events = list(specdec.speculative(pair, torch.tensor([0]), gamma=2, params=params))
        assert ids_of(events) == (0,) * 5
        assert [event.target_margin for event in rounds_of(events)] == [None] * len(rounds_of(events))


def test_a_draw_has_the_probabilities_it_is_given() -> None:
    """Probability zero is never drawn; the others are within five standard deviations of 200,000 draws."""
    p, count = torch.tensor([0.5, 0.0, 0.3, 0.15, 0.05]), 200_000
    rng = torch.Generator().manual_seed(0)
    seen = draws.draw(p.expand(count, -1), rng).bincount(minlength=5) / count
    assert seen[1] == 0
    assert ((seen - p).abs() <= 5 * (p * (1 - p) / count).sqrt()).all()


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", LANES)
def test_a_whole_number_is_a_penalty(lane: str, pair) -> None:
    settings = {"prompt": torch.tensor([5, 5, 5]), "max_new_tokens": 60}
    assert written(pair, lane, **settings, repetition_penalty=2) == written(
        pair, lane, **settings, repetition_penalty=2.0
    )


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("params", [None, {"max_new_tokens": 3}, 5])
def test_params_of_another_kind(params, lane: str, pair) -> None:
    with pytest.raises(specdec.InvalidInput, match=type(params).__name__):
        list(getattr(specdec, lane)(pair, prompt_of(3), params=params))


@pytest.mark.parametrize("lane", LANES)
def test_a_pair_of_another_kind(lane: str) -> None:
    for no_pair in (None, "gpt2", shared_tiny("llama", 6)):
        with pytest.raises(specdec.InvalidInput, match=type(no_pair).__name__):
            list(getattr(specdec, lane)(no_pair, prompt_of(3)))


@pytest.mark.parametrize("lane", LANES)
def test_a_stop_string_that_cannot_be_written(lane: str, pair) -> None:
    """Half of a surrogate pair, and a character that a small vocabulary of words has no token for."""
    words = specdec.Pair(pair.target, pair.draft, word_tokenizer(["a", "b"]))
    for owner, stop in ((pair, "\ud800"), (words, "日本")):
        with pytest.raises(specdec.InvalidInput, match="stop"):
            written(owner, lane, stop=stop)


HALF = r"not valid text: at character 3 it holds half of a surrogate pair \(U\+D83D\)"


@pytest.mark.parametrize("lane", LANES)
def test_half_of_a_surrogate_pair_is_refused_in_one_sentence(lane: str, pair) -> None:
    """In a prompt, in a stop string, and in any field of a chat message; with a tokenizer and without."""
    chat = specdec.Pair(pair.target, pair.draft, byte_tokenizer.__wrapped__())
    chat.tokenizer.chat_template = "{{ messages[0].content }}"
    half = "ab\ud83d"
    for message in ({"content": half}, {half: "a"}, {"content": [{"type": "text", "text": half}]}):
        with pytest.raises(specdec.InvalidInput, match=f"A chat message is {HALF}"):
            written(chat, lane, [{"role": "user"} | message])
    with pytest.raises(specdec.InvalidInput, match=f"The prompt is {HALF}"):
        written(pair, lane, half)
    for owner in (pair, specdec.Pair(pair.target, pair.draft)):
        with pytest.raises(specdec.InvalidInput, match=f"A stop string is {HALF}"):
            written(owner, lane, stop=("fine", half))
    assert len(written(pair, lane, "ab\U0001f600", stop="\U0001f600")) > 0


@pytest.mark.parametrize("gamma", [range(3), slice(3)])
def test_a_range_is_no_policy(gamma, pair) -> None:
    with pytest.raises(specdec.InvalidInput, match="gamma is"):
        specdec.speculative(pair, prompt_of(3), gamma=gamma)


def test_a_prompt_on_the_meta_device(pair) -> None:
    with pytest.raises(specdec.InvalidInput, match="meta device"):
        written(pair, prompt=torch.ones(3, dtype=torch.long, device="meta"))


# --- what the target brings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eos", [torch.tensor([9, 5]), torch.tensor(5), torch.tensor([[5]])])
@pytest.mark.parametrize("lane", LANES)
def test_eos_ids_in_a_tensor_end_the_text(lane: str, eos: torch.Tensor) -> None:
    """A table that writes 5 next, whatever it read."""
    table = torch.zeros(12, 12)
    table[:, 5] = 9.0
    target = table_model(table)
    target.generation_config.eos_token_id = eos
    pair = specdec.Pair(target, table_model(table), letters(12))
    assert written(pair, lane, torch.tensor([0])) == (5,)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "fields",
    [{"num_return_sequences": 3}, {"num_return_sequences": 3, "do_sample": True}, {"speculation_type": "dflash"}],
    ids=str,
)
def test_settings_of_the_targets_checkpoint_are_neutralised(fields: dict, lane: str, pair) -> None:
    target = tiny("llama", 6)
    for name, value in fields.items():
        setattr(target.generation_config, name, value)
    own = specdec.Pair(target, pair.draft)
    assert written(own, lane) == written(pair, lane)
    started = next(specdec.speculative(own, prompt_of(4), params=specdec.SamplingParams(max_new_tokens=8)))
    assert fields.items() <= started.neutralised.items()


def readable_beyond_its_rows() -> LlamaForCausalLM:
    """A target that reads eight ids more than it writes, as Mllama reads that of an image."""
    target = tiny("llama")
    rows, size = target.get_input_embeddings().weight.shape
    wider = torch.nn.Embedding(rows + 8, size)
    torch.nn.init.normal_(wider.weight, generator=torch.Generator().manual_seed(1))
    wider.weight.data[:rows] = target.get_input_embeddings().weight
    target.set_input_embeddings(wider)
    return target


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("draft", ["prompt-lookup", "suffix", "recycling", "early-exit", "model"])
def test_an_id_that_the_target_reads_and_cannot_write(draft: str, temperature: float) -> None:
    target = readable_beyond_its_rows()
    ways = {
        "prompt-lookup": specdec.PromptLookup(), "suffix": specdec.Suffix(), "recycling": specdec.Recycling(),
        "early-exit": specdec.EarlyExit(1), "model": tiny("llama", 1),
    }  # fmt: skip
    rows = target.get_output_embeddings().weight.shape[0]
    prompt = torch.stack([torch.arange(3, 23), torch.full((20,), rows)], 1).flatten()
    params = specdec.SamplingParams(max_new_tokens=12, temperature=temperature, seed=1)
    found = specdec.collect(specdec.speculative(specdec.Pair(target, ways[draft]), prompt, gamma=4, params=params))
    assert len(found.token_ids) == 12 and max(found.token_ids) < rows
    if not temperature:
        assert tuple(found.token_ids) == generated(target, prompt, 12)


@pytest.mark.parametrize("size", [1, 0])
def test_a_window_that_sees_no_other_token_is_refused(size) -> None:
    target, params = tiny("mistral"), specdec.SamplingParams(max_new_tokens=8)
    target.config.sliding_window = size
    with pytest.raises(specdec.IncompatiblePair, match=f"has a sliding window of {size} tokens; .* 2 or more"):
        specdec.collect(specdec.speculative(specdec.Pair(target), prompt_of(20), gamma=0, params=params))


@pytest.mark.parametrize("lane", LANES)
def test_a_model_in_train_mode_is_refused(lane: str) -> None:
    """Also if only a part of it is in train mode: dropout would change the text unnoticed."""
    pair = specdec.Pair(tiny("llama", 6), tiny("llama", 7))
    for module in (*pair.models(drafting=True), pair.target.model.layers[1]):
        module.train()
        with pytest.raises(specdec.InvalidInput, match="train mode"):
            written(pair, lane)
        module.eval()
    assert len(written(pair, lane)) == 8


@pytest.mark.parametrize("places", [(0, 1), (1, 2)])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_one_layer_at_two_places_is_refused_with_the_reason(family: str, places: tuple[int, int]) -> None:
    """Both places would write into one layer of the cache. A copy of a layer keeps its number."""
    target = tiny(family, layers=4)
    layers = target.model.layers
    layers[places[1]] = layers[places[0]]
    with pytest.raises(specdec.IncompatiblePair, match="stands at two places of .*layer_idx"):
        specdec.Pair(target, specdec.PromptLookup())
    layers[places[1]] = copy.deepcopy(layers[places[0]])
    if family == "llama":  # the attention of the other fails over the mask
        with pytest.raises(specdec.IncompatiblePair, match="4 tokens, and .* holds 8.* layer_idx"):
            written(specdec.Pair(target, specdec.PromptLookup()))


# --- what is no model ------------------------------------------------------------------------------------------------


class PeftModelForCausalLM(torch.nn.Module):
    """As PEFT wraps a model: unknown names are looked up in what it holds."""

    def __init__(self, model):
        super().__init__()
        self.base_model, self.peft_config = model, {}

    def __getattr__(self, name: str):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.base_model, name)


def without_return_dict():
    model = tiny("llama", 6)
    model.config.return_dict = False
    return model


NO_MODELS = {
    "nothing": (lambda: None, "None"),
    "a name": (lambda: "gpt2", "'gpt2'.*load_pair takes names"),
    "a base model": (lambda: LlamaModel(tiny("llama").config), "LlamaModel, which cannot write text"),
    "a classifier": (
        lambda: LlamaForSequenceClassification(tiny("llama").config),
        "LlamaForSequenceClassification, which cannot write text",
    ),
    "another module": (lambda: torch.nn.Linear(2, 2), "a Linear"),
    "a PEFT model": (lambda: PeftModelForCausalLM(tiny("llama")), "merge_and_unload"),
    "a config without dictionaries": (without_return_dict, "return_dict"),
    "one token": (lambda: table_model(torch.zeros(1, 1)), "vocabulary of one token"),
}


@pytest.mark.parametrize("name", NO_MODELS)
def test_what_is_no_model_is_refused_as_target_and_as_draft(name: str) -> None:
    make, found = NO_MODELS[name]
    with pytest.raises(specdec.SpecdecError, match=found):
        specdec.Pair(make())
    if name != "nothing":
        with pytest.raises(specdec.SpecdecError, match=found):
            specdec.Pair(shared_tiny("llama", 6), make())
