"""The embedded pair is a real pair, small enough to ship, and decodes to the text of ``generate``.

--hours runs all draft lengths on all fifty prompts, and tests the layers on much text. The suite runs three
lengths and part of the prompts and the text.
"""

from __future__ import annotations

import functools
import statistics
from pathlib import Path

import pytest
import torch
from comparison import FULL, HOURS, Comparison
from fakes import generated, ids_of
from pairwise import few

import specdec
from specdec.measure.metrics import repeated_ngrams
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.loading import EMBEDDED
from training.corpus import HELD_OUT_EVERY, python_documents
from training.evaluate import held_out_windows, leave_one_out
from training.train import CONTEXT, SPLIT, TARGET, Windows, build_model, deepened

GAMMAS = (1, 2, 3, 5, 8, 16) if HOURS else (1, 5, 16)
NEW_TOKENS = 64 if HOURS else 32 if FULL else 24

NAMES = ("Lily", "Tom", "Anna", "Ben", "Mia")
OPENINGS = (
    "Once upon a time, there was a {} who",
    "One day, {} went to the",
    '"What is that?" asked {}.',
    "{} was very sad because",
    "The little dog ran to {} and",
    "{} and the old king walked",
)
OTHERS = (
    "def add(a, b):",
    "class Queue:\n    def __init__(self):",
    "import os\nimport sys\n",
    "for i in range(10):\n    if",
    "    try:\n        return",
    "def test_",
    '"""',
    "# The",
    "if __name__ ==",
    "while True:",
    "The sea was",
    "It was a dark night, and the wind",
    "Text:\nTom has a red ball.\n\nThe same text again:\n",
    "1 2 3 4 5",
    "A",
    " ",
    "\n\n",
    "Ünïcödé and 日本語",
    "The committee approved",
    "...",
)
FIFTY = [opening.format(name) for opening in OPENINGS for name in NAMES] + list(OTHERS)


@functools.cache
def pair() -> specdec.Pair:
    return specdec.load_pair()


@functools.cache
def reference(prompt: str) -> tuple[int, ...]:
    return generated(pair().target, pair().encode(prompt)[0], NEW_TOKENS, eos_token_id=None)


# The suite runs one story for each opening and all other prompts, a third of them at each draft length.
SOME = FIFTY[:30:5] + FIFTY[30:]
GROUPS = {gamma: FIFTY if HOURS else SOME[i :: len(GAMMAS)] for i, gamma in enumerate(GAMMAS)}


@pytest.mark.xdist_group("fifty")  # the reference texts are generated once
@pytest.mark.parametrize("gamma", few(GAMMAS, 1))
def test_prompts_come_out_as_generate_writes_them(gamma: int) -> None:
    """The embedded pair's greedy text is the target's own, token for token."""
    assert len(set(FIFTY)) == 50 and set(OTHERS) < set().union(*GROUPS.values())
    comparison = Comparison()
    params = specdec.SamplingParams(max_new_tokens=NEW_TOKENS, ignore_eos=True)
    for prompt in GROUPS[gamma]:
        ours = ids_of(list(specdec.speculative(pair(), prompt, gamma=gamma, params=params)))
        comparison.require_same(pair().target, pair().encode(prompt)[0], ours, reference(prompt))
    comparison.require_few_ties()


def test_shards_are_small_and_safetensors_only() -> None:
    """No file over 10 MB, both models together under 30 MB, safetensors only."""
    files = [f for role in ("target", "draft") for f in (EMBEDDED / role).iterdir()]
    assert max(f.stat().st_size for f in files) < 10e6
    assert sum(f.stat().st_size for f in files) < 30e6
    assert not [f for f in files if f.suffix in {".bin", ".pt", ".pkl"}]


def test_both_models_read_the_same_tokens() -> None:
    """The same tokenizer lies beside both models, byte for byte."""
    names = ("tokenizer.json", "tokenizer_config.json")
    for name in names:
        assert (EMBEDDED / "target" / name).read_bytes() == (EMBEDDED / "draft" / name).read_bytes()


@pytest.mark.parametrize("text", ["naïve café 日本語 🙂", "def f(x):\n    return x\n", "\t \r\n  two  spaces "])
def test_any_text_survives_the_tokenizer(text: str) -> None:
    """Byte-level BPE encodes and decodes any text without loss."""
    tokenizer = pair().tokenizer
    assert tokenizer.decode(tokenizer(text).input_ids) == text


@pytest.mark.full
def test_the_whole_context_is_usable() -> None:
    """A prompt that nearly fills the context gives the text of ``generate``, and late tokens have no higher loss."""
    text = "".join(f"{row.prompt}\n\n" for row in read_prompts(EXAMPLES))
    ids = pair().tokenizer(text * 200, verbose=False).input_ids[: CONTEXT - 32]
    prompt = torch.tensor(ids)
    params = specdec.SamplingParams(max_new_tokens=32, ignore_eos=True)
    ours = ids_of(list(specdec.speculative(pair(), prompt, gamma=5, params=params)))
    comparison = Comparison()
    comparison.require_same(pair().target, prompt, ours, generated(pair().target, prompt, 32, eos_token_id=None))
    comparison.require_few_ties()


@pytest.mark.full
def test_every_target_layer_earns_its_place() -> None:
    """Leaving out any one layer makes the target worse on held-out Python source: depth is not padding.

    The suite reads too little text to judge the weakest layers; --hours tests every layer.
    """
    pair = specdec.load_pair()  # its own copy, as layers are taken out of it
    documents = {"python": python_documents()[::HELD_OUT_EVERY]}
    windows = Windows(documents, pair.tokenizer, torch.device("cpu"))
    costs = leave_one_out(pair.target, held_out_windows(windows, "python", 256, 32 if HOURS else 4))
    shown = [round(cost, 3) for cost in costs]
    assert min(costs) > (0 if HOURS else -0.02), shown
    assert statistics.median(costs) > 0, shown


def test_a_deepened_model_goes_on_where_the_shallow_one_was() -> None:
    """Two layers of half the strength compute nearly the same as one; two of full strength do not."""
    torch.manual_seed(0)
    shallow = build_model(TARGET | {"hidden_size": 48}).eval()
    deep, ids = deepened(shallow).eval(), torch.arange(40)[None]
    assert len(deep.model.layers) == len(shallow.model.layers) + len(SPLIT)
    with torch.inference_mode():
        before, after = (model(input_ids=ids).logits for model in (shallow, deep))
        for i, layer in enumerate(deep.model.layers):
            if SPLIT.start <= i < SPLIT.stop + len(SPLIT):
                layer.self_attn.o_proj.weight.mul_(2), layer.mlp.down_proj.weight.mul_(2)
        strong = deep(input_ids=ids).logits
    assert (after - before).norm() < 0.5 * (strong - before).norm()


@pytest.mark.full
@pytest.mark.parametrize("row", read_prompts(EXAMPLES), ids=lambda row: row.name)
def test_texts_of_example_prompts_do_not_repeat_themselves(row: dict) -> None:
    """At most a fifth of the 4-grams in 128 greedy tokens repeat, as repetition would raise acceptance."""
    params = specdec.SamplingParams(max_new_tokens=128, ignore_eos=True)
    result = specdec.collect(specdec.speculative(pair(), row.prompt, gamma=5, params=params))
    assert repeated_ngrams(result.token_ids) <= 0.20


def test_training_command_is_documented_by_the_card() -> None:
    """The model card names the command, the losses and the limits."""
    card = Path(EMBEDDED / "MODEL_CARD.md").read_text()
    for word in ("python -m training.train", "Held-out loss", "Limits", "Licence"):
        assert word in card


def test_the_embedded_head_drafts_for_the_embedded_target() -> None:
    """The trained head leaves the target's text unchanged and guesses far better than a random head."""
    pair = specdec.load_pair(draft=specdec.Eagle3("embedded"))
    facts = pair.facts()["draft"]
    assert (facts["text"], facts["local"]) == ("eagle3:embedded", False) and pair.name == "embedded"
    assert 0.5e6 < facts["parameters"] - 4096 * pair.target.config.hidden_size < 1e6  # its output matrix left out
    tokens = 300 if HOURS else 64
    params = specdec.SamplingParams(max_new_tokens=tokens, ignore_eos=True)
    compared = Comparison()
    for row in read_prompts(EXAMPLES) if HOURS else read_prompts(EXAMPLES)[:2]:
        ids = pair.encode(row.prompt)[0]
        plain = generated(pair.target, ids, tokens, eos_token_id=None)
        for gamma in (*range(1, 17), "auto") if HOURS else (5,):
            result = specdec.collect(specdec.speculative(pair, ids, gamma=gamma, params=params))
            compared.require_same(pair.target, ids, tuple(result.token_ids), plain)
            assert gamma != 5 or result.metrics.alpha > 0.4, row.name
    compared.require_few_ties()
