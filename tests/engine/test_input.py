"""Bad input is refused before anything runs, with a sentence that names what was found."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from fakes import byte_tokenizer, count_passes, ids_of, noisy_copy, prompt_of, shared_tiny, tiny, word_tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import MambaConfig, MambaForCausalLM, T5Config, T5ForConditionalGeneration

import specdec
from specdec.lanes.race import race

LANES = ("generate", "assisted", "speculative")


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 6)
    return specdec.Pair(target=target, draft=noisy_copy(target, 6), tokenizer=byte_tokenizer())


def refused(pair: specdec.Pair, prompt, lane: str = "speculative", params: dict | None = None, **options) -> str:
    """The sentence that a call is refused with; no model ran."""
    with count_passes(pair.target) as fed, pytest.raises(specdec.SpecdecError) as refusal:
        settings = specdec.SamplingParams(**({"max_new_tokens": 4} | (params or {})))
        list(getattr(specdec, lane)(pair, prompt, params=settings, **options))
    assert fed == []
    sentence = str(refusal.value)
    assert sentence.endswith(".") and " " in sentence and "\n" not in sentence
    return sentence


# --- prompts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize(
    "prompt", ["", [], torch.tensor([], dtype=torch.long), torch.zeros(1, 0, dtype=torch.long)], ids=repr
)
def test_empty_prompt(prompt, lane: str, pair) -> None:
    """There is nothing to continue."""
    sentence = refused(pair, prompt, lane)
    assert "prompt" in sentence.lower()


def test_prompt_of_no_tokens() -> None:
    """A text may have no tokens: white space, with a tokenizer that drops it."""
    words = specdec.Pair(target=shared_tiny("llama", 6), draft=None, tokenizer=word_tokenizer(["a", "b"]))
    assert "empty" in refused(words, "   ", gamma=0)


@pytest.mark.parametrize("lane", LANES)
def test_prompt_beyond_the_context(lane: str, pair) -> None:
    """Beyond its context a model writes nonsense or crashes. The sentence names both lengths."""
    sentence = refused(pair, prompt_of(125), lane)
    assert "125" in sentence and "128" in sentence
    refused(pair, prompt_of(300), lane)
    params = specdec.SamplingParams(max_new_tokens=4)
    assert len(ids_of(list(getattr(specdec, lane)(pair, prompt_of(124), params=params)))) == 4


def test_context_of_the_draft_counts_when_drafting() -> None:
    """A draft with a shorter context than its target cannot draft beyond it."""
    target, draft = tiny("llama", 6), tiny("llama", 7)
    draft.config.max_position_embeddings = 50
    pair = specdec.Pair(target=target, draft=draft, tokenizer=byte_tokenizer())
    assert "50" in refused(pair, prompt_of(60), gamma=3)
    events = list(specdec.speculative(pair, prompt_of(60), gamma=0, params=specdec.SamplingParams(max_new_tokens=3)))
    assert len(ids_of(events)) == 3


@pytest.mark.parametrize("lane", LANES)
def test_batch_is_refused(lane: str, pair) -> None:
    """Several prompts are refused; the first is not used silently."""
    assert "2" in refused(pair, torch.ones(2, 5, dtype=torch.long), lane)


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        (torch.ones(4), "float"),
        (torch.ones(4, dtype=torch.complex64), "complex"),
        (torch.ones(4, dtype=torch.bool), "bool"),
        (torch.ones(1, 1, 4, dtype=torch.long), "(1, 1, 4)"),
        (torch.tensor([3, 320]), "320"),
        (torch.tensor([3, -1]), "-1"),
        (17, "int"),
        (None, "None"),
        (b"bytes", "bytes"),
    ],
    ids=repr,
)
def test_prompt_of_another_kind(prompt, found: str, pair) -> None:
    """A value that is no text, messages or ids of this model is named."""
    assert found in refused(pair, prompt)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: torch.tensor([3, 4]).to_sparse(), "sparse"),
        (lambda: torch.tensor([[3, 4]]).to_sparse_csr(), "sparse"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.quint8), "quantized"),
        (lambda: torch.nested.nested_tensor([torch.tensor([3]), torch.tensor([4, 5])]), "nested"),
        (lambda: torch.nested.nested_tensor([torch.tensor([3]), torch.tensor([4, 5])], layout=torch.jagged), "nested"),
    ],
    ids=["coo", "csr", "quantized", "nested", "jagged"],
)
@pytest.mark.filterwarnings("ignore")
def test_prompt_in_another_kind_of_tensor(make, found: str, pair) -> None:
    for lane in LANES:
        assert found in refused(pair, make(), lane)


def test_same_prompt_in_every_form(pair) -> None:
    """Text, ids, and ids with a batch of one are the same prompt."""
    ids = torch.tensor(pair.tokenizer("Once upon a time").input_ids)
    params = specdec.SamplingParams(max_new_tokens=8)
    texts = [
        ids_of(list(specdec.speculative(pair, prompt, params=params)))
        for prompt in ("Once upon a time", ids, ids[None], ids.int())
    ]
    assert len(set(texts)) == 1


# --- chat messages ---------------------------------------------------------------------------------------------------

MESSAGES = [{"role": "user", "content": "Who is Lily?"}]


@pytest.mark.parametrize("lane", LANES)
def test_chat_without_a_template(lane: str, pair) -> None:
    """A tokenizer without a template cannot take messages; transformers' own error is a stack trace."""
    assert "template" in refused(pair, MESSAGES, lane)


@pytest.mark.parametrize("lane", LANES)
def test_chat_goes_through_the_template_with_one_bos(lane: str, pair) -> None:
    """The template writes BOS; tokenising its text would add another one, which models answer badly."""
    tokenizer = byte_tokenizer(301)  # not the shared one: this one gets a template and adds its BOS to plain text
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer.chat_template = (
        "<s>{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    assert tokenizer("x").input_ids[0] == 0
    chat = specdec.Pair(target=pair.target, draft=pair.draft, tokenizer=tokenizer)
    events = list(getattr(specdec, lane)(chat, MESSAGES, params=specdec.SamplingParams(max_new_tokens=3)))
    ids = events[0].prompt_ids
    assert ids.count(0) == 1 and ids[0] == 0
    assert tokenizer.decode(ids[1:]) == "[user] Who is Lily?\n[assistant]"
    plain = list(getattr(specdec, lane)(chat, "Who?", params=specdec.SamplingParams(max_new_tokens=3)))
    assert plain[0].prompt_ids == tuple(tokenizer("Who?").input_ids)


@pytest.mark.parametrize("messages", [[{"content": "no role"}], ["a", "b"], [{}], [1]], ids=repr)
def test_malformed_chat_messages_are_refused(messages, pair) -> None:
    """A list of something else is no chat."""
    refused(pair, messages)


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [-1, 17, 2.5, True, None, "5"], ids=repr)
def test_gamma_out_of_range(gamma, pair) -> None:
    """0 to 16, a whole number; True is not 1 and 2.5 is not 2."""
    for lane in ("speculative", "assisted"):
        assert str(gamma).strip("'") in refused(pair, prompt_of(3), lane, gamma=gamma)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")), ("temperature", "hot"),
        ("temperature", True), ("temperature", None), ("top_k", -1), ("top_k", 2.5), ("top_p", 0.0), ("top_p", 1.1),
        ("top_p", float("nan")), ("min_p", -0.1), ("min_p", 1.5), ("repetition_penalty", 0.0),
        ("repetition_penalty", 1e-38), ("repetition_penalty", -1.0), ("max_new_tokens", 0), ("max_new_tokens", -3),
        ("max_new_tokens", 1.5), ("max_new_tokens", True), ("seed", -1), ("seed", 2**63), ("seed", 1.5),
        ("seed", "x"), ("stop", ("",)), ("stop", (3,)),
    ],
    ids=repr,
)  # fmt: skip
def test_sampling_params_out_of_range(name: str, value) -> None:
    """Each is refused where it is written down, by name and value."""
    with pytest.raises(specdec.SpecdecError) as refusal:
        specdec.SamplingParams(**{name: value})
    assert name in str(refusal.value) and str(value) in str(refusal.value)


def test_sampling_params_take_what_is_in_range() -> None:
    """The ends of the ranges are inside; an int is a number; one stop string may stand alone."""
    params = specdec.SamplingParams(temperature=1, top_p=1, min_p=0, repetition_penalty=1, seed=2**63 - 1, stop="END")
    assert params.stop == ("END",) and not params.greedy
    assert specdec.SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert specdec.SamplingParams().greedy


def test_extreme_settings_still_decode(pair) -> None:
    """The largest seed, a tiny temperature, top-k beyond the vocabulary: all allowed, so all must run."""
    for settings in (
        {"seed": 2**63 - 1, "temperature": 1.0},
        {"temperature": 0.01},
        {"temperature": 1.0, "top_k": 10_000},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 1e-9},
        {"temperature": 1.0, "min_p": 1.0},
        {"repetition_penalty": 100.0},
        {"temperature": 100.0},
    ):
        params = specdec.SamplingParams(max_new_tokens=12, **settings)
        for lane in LANES:
            assert len(ids_of(list(getattr(specdec, lane)(pair, prompt_of(4), params=params)))) == 12, (lane, settings)


def test_only_lossy_acceptance_takes_a_top_k(pair) -> None:
    """Lossy acceptance must be asked for."""
    assert "accept_top_k" in refused(pair, prompt_of(3), acceptance="top-k")
    assert "0" in refused(pair, prompt_of(3), acceptance="top-k", accept_top_k=0)
    assert "2.5" in refused(pair, prompt_of(3), acceptance="top-k", accept_top_k=2.5)
    assert "True" in refused(pair, prompt_of(3), acceptance="top-k", accept_top_k=True)
    assert "accept_top_k" in refused(pair, prompt_of(3), accept_top_k=3)
    assert "typical" in refused(pair, prompt_of(3), acceptance="typical")
    assert "acceptance" in refused(pair, prompt_of(3), acceptance=["block"])


def test_a_draft_length_needs_a_draft() -> None:
    """A pair without a draft decodes at draft length 0 only."""
    alone = specdec.Pair(target=shared_tiny("llama", 6), draft=None, tokenizer=byte_tokenizer())
    assert "5" in refused(alone, prompt_of(3))
    events = list(specdec.speculative(alone, prompt_of(3), gamma=0, params=specdec.SamplingParams(max_new_tokens=3)))
    assert len(ids_of(events)) == 3


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_tokenizers_that_agree() -> None:
    """Two loads of one tokenizer agree, whatever the sizes of the two vocabularies' padding."""
    words = [f"w{i}" for i in range(300)]
    target, draft = shared_tiny("llama", 6, vocab_size=336), shared_tiny("llama", 7, vocab_size=304)
    pair = specdec.Pair(
        target=target, draft=draft, tokenizer=word_tokenizer(words), draft_tokenizer=word_tokenizer(words)
    )
    params = specdec.SamplingParams(max_new_tokens=4)
    assert len(ids_of(list(specdec.speculative(pair, "w1 w2", params=params)))) == 4
    assert not pair.draft.own_tokenizer


def test_a_model_without_attention_is_refused() -> None:
    """Recurrent state of these models cannot be rolled back, and decoding would go wrong unnoticed."""
    size = {"vocab_size": 320, "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    mamba = MambaForCausalLM(MambaConfig(**size))
    for pair in ({"target": mamba, "draft": None}, {"target": shared_tiny("llama", 6), "draft": mamba}):
        with pytest.raises(specdec.IncompatiblePair, match="MambaForCausalLM"):
            specdec.Pair(**pair, tokenizer=byte_tokenizer())


def test_encoder_decoder_is_refused() -> None:
    """T5 and similar models are no causal models."""
    config = T5Config(vocab_size=320, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0)
    with pytest.raises(specdec.IncompatiblePair, match="T5"):
        specdec.Pair(target=T5ForConditionalGeneration(config), draft=None, tokenizer=byte_tokenizer())


def test_load_pair_tells_what_is_missing(tmp_path) -> None:
    """A wrong path or device gives a sentence, not a stack trace of a library."""
    nowhere = str(tmp_path / "nowhere")
    with pytest.raises(specdec.LoadFailed) as refusal:
        specdec.load_pair(nowhere, nowhere)
    assert "nowhere" in str(refusal.value)
    with pytest.raises(specdec.SpecdecError, match="draft"):
        specdec.load_pair(draft=nowhere)
    with pytest.raises(specdec.SpecdecError, match="tpu9"):
        specdec.load_pair(nowhere, nowhere, device="tpu9")


def test_load_pair_from_folders(tmp_path) -> None:
    """A saved pair is found again in its folders, in fp32 on a CPU, and writes the same."""
    target, draft = tiny("llama", 6), tiny("llama", 7, layers=1)
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(tmp_path / name)
        byte_tokenizer().save_pretrained(tmp_path / name)
    loaded = specdec.load_pair(str(tmp_path / "target"), str(tmp_path / "draft"), device="cpu")
    params = specdec.SamplingParams(max_new_tokens=10)
    here = specdec.Pair(target=target, draft=draft, tokenizer=byte_tokenizer())
    texts = [ids_of(list(specdec.speculative(pair, "Once upon", params=params))) for pair in (loaded, here)]
    assert texts[0] == texts[1]
    assert loaded.target.dtype == loaded.draft.model.dtype == torch.float32
    described = next(specdec.speculative(loaded, "Once upon", params=params)).pair
    assert str(tmp_path) not in str(described), "paths of a machine are private"


def test_the_draft_length_is_5_where_none_is_given() -> None:
    """In every lane that drafts, so that their figures belong together."""
    for function in (specdec.speculative, specdec.assisted, race):
        assert inspect.signature(function).parameters["gamma"].default == 5


# --- what is no lane, and other arguments of public functions --------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        *({"interval": interval} for interval in (-1, math.nan, math.inf, "1", None, True, 1e9)),
        *({"max_seconds": seconds} for seconds in (-1, math.nan, "1", True)),
    ],
    ids=str,
)
def test_seconds_of_driven_out_of_range(arguments: dict, pair) -> None:
    """They are refused at once, not when the lane is read."""
    lane = specdec.speculative(pair, prompt_of(3), params=specdec.SamplingParams(max_new_tokens=3))
    with pytest.raises(specdec.InvalidInput, match=next(iter(arguments))):
        specdec.driven(lane, **arguments)
    assert specdec.collect(specdec.driven(lane, max_seconds=math.inf)).token_ids


@pytest.mark.parametrize("lane", [None, 5, "text", [1], {"a": 1}, torch.tensor(3), torch.ones(2), ...], ids=repr)
def test_what_is_no_lane_is_refused(lane) -> None:
    for function in (specdec.driven, specdec.collect):
        with pytest.raises(specdec.InvalidInput, match="lane|events"):
            function(lane)
    with pytest.raises(specdec.InvalidInput, match="generator of events"):
        list(specdec.driven(iter([lane])))
    with pytest.raises(specdec.InvalidInput, match="Among the events"):
        specdec.collect([lane] if not isinstance(lane, list) else lane)


def test_a_lane_that_is_driven_within_another_is_refused(pair) -> None:
    """It would wait for its own thread."""
    lane = specdec.speculative(pair, prompt_of(3), params=specdec.SamplingParams(max_new_tokens=3))
    with pytest.raises(specdec.InvalidInput, match="pass the lane itself"):
        list(specdec.driven(event for batch in specdec.driven(lane) for event in batch))


@pytest.mark.parametrize("tokenizer", ["gpt2", 5, ...], ids=repr)
def test_a_tokenizer_of_another_kind_is_refused_before_the_lane_is_read(tokenizer, pair) -> None:
    lane = specdec.speculative(pair, prompt_of(3), params=specdec.SamplingParams(max_new_tokens=3))
    with pytest.raises(specdec.InvalidInput, match="tokenizer is"):
        specdec.collect(lane, tokenizer)
    assert specdec.collect(lane).token_ids


@pytest.mark.parametrize("name", ["dtype", "draft_dtype", "bits"])
@pytest.mark.parametrize("value", [["float32"], {}, torch.ones(2)], ids=repr)
def test_settings_of_load_pair_of_another_kind(name: str, value) -> None:
    with pytest.raises(specdec.InvalidInput, match=name.removeprefix("draft_")):
        specdec.load_pair(**{name: value})


@pytest.mark.parametrize("head", [None, 5, ["a"], torch.nn.Linear(2, 2)], ids=repr)
def test_a_head_of_another_kind(head) -> None:
    with pytest.raises(specdec.InvalidInput, match="The head is"):
        specdec.Pair(shared_tiny("llama", 6), specdec.Eagle3(head))
