"""A combination: which of its two ways guesses, and that the second one's drafts are as if it had never been left out.

The oracle of a draft after copied rounds is a call that begins with the whole text in front of it: nothing was copied
there, and the tests of each way hold its drafts against independent readings.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import block_heads
import pytest
import test_gemma4_assistant
import torch
from comparison import FULL, HOURS
from cuda_standins import forget_engines, stand_in_for_captures
from drafting import config_of, head_of, require_close
from enumeration import Target
from fakes import (
    byte_tokenizer,
    count_passes,
    generated,
    ids_of,
    noisy_copy,
    prompt_of,
    random_table,
    rounds_of,
    shared_tiny,
    shuffled_rows,
    shuffled_tokenizer,
    table_model,
    tiny,
)
from safetensors.torch import save_file
from test_dspark import FORMATS as DSPARK
from test_mtp import DEPTH, save
from test_mtp import pair_of as mtp_pair
from test_qwen_mtp import pair_of as qwen_pair
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeForCausalLM

import specdec
import specdec.cli
from specdec.drafters import registry
from specdec.drafters.combined import CombinedDraft
from specdec.drafters.dflash import DFlashDraft
from specdec.drafters.draft_model import MOST_UNREAD, DraftModel, ModelDraft
from specdec.drafters.dspark import DSparkDraft
from specdec.drafters.eagle3 import Eagle3Draft
from specdec.drafters.early_exit import EarlyExitDraft
from specdec.drafters.gemma4_assistant import Gemma4AssistantDraft
from specdec.drafters.mtp import MtpDraft
from specdec.drafters.prompt_lookup import NgramIndex
from specdec.errors import InvalidInput
from specdec.forward import cuda_graph
from specdec.forward.native.availability import why_torch
from specdec.forward.runner import Runner
from specdec.measure import roofline
from specdec.measure.conformance import DrafterConformance
from specdec.measure.enumeration import CLOSE, distance, distribution
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.loading import EMBEDDED, LoadOptions, load_pair, plan_pair
from specdec.models.pair_check import check_pair
from specdec.report import provenance
from specdec.report.recording import Recorder, read_recording
from specdec.runtime.sampling import Sampler
from specdec.runtime.tokens import TokenBuffer

COPY = specdec.PromptLookup(3, 2)


class TestCombined(DrafterConformance):
    method = specdec.Combined(specdec.PromptLookup(), specdec.EarlyExit(1))
    prompt = "Once upon a time, red, blue, green, red, blue,"

    def pair(self) -> specdec.Pair:
        return specdec.load_pair(EMBEDDED / "draft", self.method)  # a smaller target


def target_of(**changes: Any) -> Any:
    return shared_tiny(changes.pop("family", "llama"), 3, **{"layers": 6, "context": 512} | changes)


def eagle_pair(family: str = "llama") -> specdec.Pair:
    return specdec.Pair(target_of(family=family), specdec.Eagle3(head_of(config_of())))


def model_pair(family: str = "llama", rounded: bool = False, agrees: bool = False) -> specdec.Pair:
    """The draft has random weights, or those of the target with noise."""
    target = target_of(layers=3)
    draft = noisy_copy(target, 2) if agrees else tiny(family, 2, context=512)
    return specdec.Pair(target, DraftModel(draft, rounded=rounded))


def translated_pair() -> specdec.Pair:
    target, tokenizer = tiny("llama", 3, vocab_size=300, context=512), byte_tokenizer()
    other, order = shuffled_tokenizer(tokenizer, 280)
    return specdec.Pair(target, shuffled_rows(noisy_copy(target, 2), order), tokenizer, other)


def block_pair(family: str = "llama", config: dict[str, Any] | None = None) -> specdec.Pair:
    return block_heads.pair_of(block_heads.target_of(family), block_heads.head_of(config or block_heads.zlab()))


def gemma4_pair() -> specdec.Pair:
    head = test_gemma4_assistant.head_of(test_gemma4_assistant.config_of())
    return specdec.Pair(test_gemma4_assistant.target_of(), specdec.Gemma4Assistant(head))


SECOND: dict[str, tuple[Callable[[], specdec.Pair], type]] = {
    "a draft model": (model_pair, ModelDraft),
    "in 8 bits": (partial(model_pair, rounded=True), ModelDraft),
    "sliding windows": (partial(model_pair, "gemma3"), ModelDraft),
    "recurrent state": (partial(model_pair, "qwen3_5_text"), ModelDraft),
    "early exit": (lambda: specdec.Pair(target_of(), specdec.EarlyExit(2)), EarlyExitDraft),
    "an EAGLE-3 head": (eagle_pair, Eagle3Draft),
    "a head of a hybrid": (partial(eagle_pair, "qwen3_5_text"), Eagle3Draft),
    "MTP layers": (partial(mtp_pair, "glm4_moe", 2), MtpDraft),
}
OTHER_HEADS: dict[str, tuple[Callable[[], specdec.Pair], type]] = {
    "a DFlash head": (block_pair, DFlashDraft),
    "a DFlash head of a hybrid": (partial(block_pair, "qwen3_5_text"), DFlashDraft),
    "a DSpark head": (partial(block_pair, config=DSPARK["DeepSpec"]), DSparkDraft),
    "a Gemma 4 assistant": (gemma4_pair, Gemma4AssistantDraft),
    "Qwen's MTP layers": (partial(qwen_pair, "qwen3_5_text"), MtpDraft),
}


def combined(pair: specdec.Pair, first: Any = COPY, engine: str = "eager") -> specdec.Pair:
    return replace(pair, draft=specdec.Combined(first, pair.draft), engine=engine)


# --- the value -------------------------------------------------------------------------------------------------------

TEXTS = {
    "prompt-lookup+mtp": specdec.Combined(specdec.PromptLookup(5, 3), specdec.Mtp()),
    "prompt-lookup:2-4+early-exit:3": specdec.Combined(specdec.PromptLookup(4, 2), specdec.EarlyExit(3)),
    "suffix+eagle3:some/head": specdec.Combined(specdec.Suffix(), specdec.Eagle3("some/head")),
    " suffix + some/model ": specdec.Combined(specdec.Suffix(), DraftModel("some/model")),
    "suffix+a+b": specdec.Combined(specdec.Suffix(), DraftModel("a+b")),
    "suffix+recycling": specdec.Combined(specdec.Suffix(), specdec.Recycling()),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_names_both_ways(text: str) -> None:
    found = registry.method_of(text.strip())
    assert found == TEXTS[text]
    facts = found.describe()
    assert facts["kind"] == "combined" and registry.method_of(facts["text"]) == found
    built = eval(facts["python"], {"specdec": specdec})
    assert (registry.method_of(built) if isinstance(built, str) else built) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("suffix+", "names no way to draft after the"),
        ("prompt-lookup: +mtp", "has no n-gram lengths"),
        ("suffix+early-exit", "has no number of layers"),
        ("suffix+sufix", "no way to draft 'sufix'"),
        ("sufix+some/model", "no way to draft 'sufix.some/model'.* prompt-lookup.REST"),
        ("mtp+suffix", "no way to draft 'mtp.suffix'.* prompt-lookup.REST"),
        ("combined", "prompt-lookup.REST"),
        ("suffix+prompt-lookup", "copies too"),
        ("+".join(["suffix"] * 5000), "copies too"),
    ],
)
def test_a_text_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refusal:
        registry.method_of(text)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 400


def test_other_values_are_refused() -> None:
    copy = specdec.PromptLookup()
    for first, then, said in (
        (specdec.Mtp(), specdec.Mtp(), "first way of a combination is an? Mtp"),
        ("suffix", specdec.Mtp(), "first way of a combination is 'suffix'"),
        (copy, "mtp", "second way of a combination is 'mtp'"),
        (copy, None, "second way of a combination is None"),
        (copy, specdec.Suffix(), "second way of a combination is Suffix, which copies too"),
        (copy, specdec.Combined(copy, specdec.Mtp()), "copies too"),
    ):
        with pytest.raises(InvalidInput, match=said):
            specdec.Combined(first, then)
    with pytest.raises(InvalidInput, match="load_pair takes names"):
        specdec.Pair(tiny("llama"), specdec.Combined(copy, DraftModel("some/model")))
    with pytest.raises(specdec.IncompatiblePair, match="names no MTP layers"):
        specdec.Pair(tiny("llama"), specdec.Combined(copy, specdec.Mtp()))
    with pytest.raises(specdec.IncompatiblePair, match="Early exit after 9 layers"):
        specdec.Pair(tiny("llama"), specdec.Combined(copy, specdec.EarlyExit(9)))


def test_what_a_pair_needs_comes_from_the_second_way() -> None:
    target, draft = tiny("llama", 1), tiny("llama", 2, layers=1, context=64)
    pair = specdec.Pair(target, specdec.Combined(specdec.PromptLookup(), draft), engine="graph")
    assert pair.models(drafting=True) == [target, draft] and pair.context_length() == 64
    assert pair.draft == specdec.Combined(specdec.PromptLookup(), DraftModel(draft)) and pair.uses_graphs
    assert "differs from round to round" in str(roofline.limit_of(pair))
    eagle = replace(combined(eagle_pair()), engine="graph")
    assert eagle.draft.heads and eagle.draft.then.layer_ids, "the head is bound to the target"
    assert "reads hidden states" in eagle.describe()["engine"]["reason"]
    translated = combined(translated_pair())
    assert translated.draft.then.own_tokenizer and translated.facts()["draft"]["own_tokenizer"]


# --- which way guesses -----------------------------------------------------------------------------------------------


def test_the_text_is_copied_where_it_repeats_and_else_the_model_guesses() -> None:
    """After each text, by an index of the test's own; the events say so, and a recording keeps it."""
    few = {"vocab_size": 40, "context": 512}  # so that pairs of tokens come again
    pair = combined(specdec.Pair(tiny("llama", 3, **few), tiny("llama", 2, **few)))
    params, prompt = specdec.SamplingParams(max_new_tokens=60), prompt_of(12, 40)
    events = list(specdec.speculative(pair, prompt, gamma=4, params=params))
    text = prompt.tolist()
    for event in rounds_of(events):
        repeats = any(text[at : at + 2] == text[-2:] for at in range(len(text) - 2))
        drafted = bool(event.draft)
        assert event.drafted_by == ((COPY.kind if repeats else DraftModel.kind) if drafted else None)
        assert drafted or not event.index or len(text) == len(prompt) + 59
        text += event.committed_ids
    assert len(Counter(event.drafted_by for event in rounds_of(events))) == 3
    recorder = Recorder(byte_tokenizer())
    assert list(read_recording([recorder.line(event) for event in events])) == events
    alone = rounds_of(list(specdec.speculative(model_pair(), prompt, params=params)))
    assert {event.drafted_by for event in alone} == {None}, "where there is one way, nothing is said"


def test_a_policy_that_drafts_nothing_asks_neither() -> None:
    pair, params = combined(model_pair()), specdec.SamplingParams(max_new_tokens=12)
    drafter = pair.draft.start(Runner(pair.target), pair.vocabulary, *call_of(prompt_of(12).tolist(), params))
    proposal = drafter.propose(TokenBuffer(prompt_of(12), 12), 0, None)
    assert not len(proposal.ids) and proposal.drafted_by is None


# --- the second way's drafts -----------------------------------------------------------------------------------------


def call_of(text: list[int], params: specdec.SamplingParams = specdec.SamplingParams()) -> tuple[Sampler, TokenBuffer]:
    return Sampler(params, torch.Generator().manual_seed(0)), TokenBuffer(torch.tensor(text), 64)


@torch.inference_mode()
def fresh(pair: specdec.Pair, text: list[int], gamma: int) -> list[torch.Tensor]:
    """The logits of a draft after ``text`` in a call that begins with it."""
    target, (sampler, context) = Runner(pair.target), call_of(text[:-1])
    drafter = pair.draft.start(target, pair.vocabulary, sampler, context)
    drafter.prefill(context)
    target.forward(context.ids(0, context.length), keep=1, committed=True)
    context.commit(text[-1:])
    for cached in (target, drafter):
        cached.crop_to(context.length - 1)
    return [*torch.cat(drafter.propose(context, gamma, None).choices.logits)[:gamma].double()]


# Of the logits' range; else 1e-4, as passes of other sizes differ by 1e-5. Only short passes read 8 bits.
BOUND = {"in 8 bits": 3e-2}
LAG = 6  # copied rounds of up to four tokens: more than ``MOST_UNREAD``
TURNS = [*(True,) * LAG, False, True, False, False, True, True, False]  # whether the first way copies, round by round


def copying_in_turns(patch: Callable[[Any, str, Any], Any]) -> None:
    """Let the first way copy in some rounds and not in others, whatever the text is."""
    turns = itertools.chain(TURNS, itertools.cycle((True, False)))

    def continuation(self, tokens, count):
        return [(7 * len(tokens) + 11 * place) % 290 + 2 for place in range(count)] if next(turns) else []

    patch(NgramIndex, "continuation", continuation)


def require_drafts_of_a_fresh_call(
    monkeypatch, second: str, engine: str = "eager", fault: tuple[Any, str, Any] | None = None
) -> None:
    """Lossy acceptance, so that some guesses of each way stand, and some do not."""
    make, drafter = (SECOND | OTHER_HEADS)[second]
    alone, found, propose = make(), [], drafter.propose

    def noted(self, context, gamma, stop):
        proposal = propose(self, context, gamma, stop)
        found.append((list(context.tokens), torch.cat(proposal.choices.logits)[: len(proposal.ids)].clone()))
        return proposal

    with monkeypatch.context() as patched:
        patched.setattr(drafter, "propose", noted)
        if fault is not None:
            patched.setattr(*fault)
        copying_in_turns(patched.setattr)
        params = specdec.SamplingParams(max_new_tokens=70)
        lossy = {"acceptance": "top-k", "accept_top_k": 260}
        pair = combined(alone, engine=engine)
        rounds = rounds_of(list(specdec.speculative(pair, prompt_of(7), gamma=4, params=params, **lossy)))
    for text, logits in found:
        expected = fresh(replace(alone, engine="eager"), text, len(logits))
        for ours, theirs in zip(logits, expected, strict=True):
            require_close(ours, theirs, BOUND.get(second, 1e-4))
    copied = [event for event in rounds if event.drafted_by == COPY.kind]
    assert sum(len(event.committed_ids) for event in copied[:LAG]) > MOST_UNREAD, "the first lag is a long one"
    assert len(found) > 3 and {event.token_kind for event in rounds} >= {"correction", "bonus"}


@pytest.mark.parametrize("second", SECOND)
def test_a_draft_after_copied_rounds_is_that_of_a_fresh_call(monkeypatch, second: str) -> None:
    """After one copied round, two, and so many that the catching up has a pass of its own."""
    require_drafts_of_a_fresh_call(monkeypatch, second)


@pytest.mark.full
@pytest.mark.parametrize("second", OTHER_HEADS)
def test_a_draft_of_another_head_after_copied_rounds_is_too(monkeypatch, second: str) -> None:
    require_drafts_of_a_fresh_call(monkeypatch, second)


@pytest.fixture
def captured(monkeypatch, torch_passes) -> None:
    forget_engines(monkeypatch.setattr)
    stand_in_for_captures(monkeypatch.setattr)


@pytest.mark.parametrize("second", ["a draft model", "early exit"])
def test_a_captured_draft_after_copied_rounds_is_too(monkeypatch, captured, second: str) -> None:
    require_drafts_of_a_fresh_call(monkeypatch, second, "graph")


FAULTS = {
    "cache not cropped": ("a draft model", ModelDraft, "crop_to", lambda whole: lambda self, length: None),
    "rows skipped": (
        "a draft model", Runner, "catch_up",
        lambda whole: lambda self, context, most: self.follow(context.length - 1) if most == MOST_UNREAD else None,
    ),
    "the token before each row": (
        "a draft model", Runner, "catch_up",
        lambda whole: lambda self, context, most: self.forward(context.ids(len(self) - 1, context.length - 2), keep=1)
        if len(self) < context.length - 1 - most else None,
    ),
    "only the first way is cropped": (
        "an EAGLE-3 head", CombinedDraft, "crop_to", lambda whole: lambda self, length: self._first.crop_to(length),
    ),
    "states of copied rounds left out": (
        "an EAGLE-3 head", Eagle3Draft, "_take",
        lambda whole: lambda self, start, rows: whole(self, start, rows * (self._context.length % 3 > 0)),
    ),
    "states shifted": (
        "MTP layers", MtpDraft, "_take", lambda whole: lambda self, start, rows: whole(self, start, rows.roll(1, 0)),
    ),
    "prompt not read": (
        "in 8 bits", ModelDraft, "prefill", lambda whole: lambda self, context: self._runner.follow(context.length),
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_draft_is_caught(monkeypatch, fault: str) -> None:
    """The comparison above sees what would cost acceptance, and no text would show."""
    second, owner, name, faulty = FAULTS[fault]
    # A wrong draft may read a place of its cache where nothing was written, and so anything, NaN included. With too
    # much in the cache, sizes do not fit.
    with pytest.raises((AssertionError, specdec.NotNumbers, RuntimeError), match="logits differ|hold NaN|Size"):
        require_drafts_of_a_fresh_call(monkeypatch, second, fault=(owner, name, faulty(getattr(owner, name))))


# --- graphs ----------------------------------------------------------------------------------------------------------


def told(rounds: list[specdec.Round]) -> list[tuple]:
    """The content of rounds, without times and values that rounding changes."""
    return [
        (r.committed_ids, r.drafted_by, [(t.token_id, t.status) for t in r.draft or ()], [i for i, _ in r.missed])
        for r in rounds
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_catching_up_captures_no_further_graphs(monkeypatch, captured, temperature: float) -> None:
    """However many tokens were copied, a draft of the model is one graph. Texts and rounds are the eager engine's."""
    pair = combined(model_pair(), engine="graph")
    lossy = {"acceptance": "top-k", "accept_top_k": 200} if not temperature else {}
    params = specdec.SamplingParams(max_new_tokens=80, temperature=temperature, seed=3)

    def write(engine: str) -> list[tuple]:
        with monkeypatch.context() as patched:
            copying_in_turns(patched.setattr)
            of = replace(pair, engine=engine)
            return told(rounds_of(list(specdec.speculative(of, prompt_of(7), gamma=4, params=params, **lossy))))

    assert write("graph") == write("eager")
    ((engine,),) = cuda_graph._free.values()
    steps = Counter(name for _, name, _, key in engine._graphs)
    assert engine._capture.replays > 12 and not engine._capture.unknown
    assert set(steps) == {"draft", "verify", "gather"} and max(steps.values()) <= 4, steps


def test_a_lag_is_read_in_as_few_passes_as_its_length_asks_for() -> None:
    """In front of a draft up to 17 tokens; a longer lag has one pass more. Nothing of it is reported."""
    pair = model_pair("gemma3")  # its passes are transformers' own, which can be counted
    for lag, expected in ((2, [2, 1]), (9, [9, 1]), (17, [17, 1]), (18, [17, 1, 1]), (60, [59, 1, 1])):
        sampler, context = call_of(prompt_of(9).tolist())
        drafter = pair.draft.start(Runner(pair.target), pair.vocabulary, sampler, context)
        with torch.inference_mode():
            drafter.prefill(context)
            for token in prompt_of(lag, seed=2).tolist():
                context.commit([token])
                drafter.crop_to(context.length - 1)
            with count_passes(pair.draft.model) as passes:
                drafter.catch_up(context)
                proposal = drafter.propose(context, 2, None)
        assert passes == expected
        assert len(proposal.choices.ids) == 2 + proposal.choices.already_reported


# --- texts -----------------------------------------------------------------------------------------------------------

PAIRS: dict[str, Callable[[], specdec.Pair]] = {name: make for name, (make, _) in SECOND.items()} | {
    "a draft model": partial(model_pair, agrees=True),
    "another tokenizer": translated_pair,
    "recycling": lambda: specdec.Pair(tiny("llama", 4, vocab_size=32, context=512), specdec.Recycling()),
}
PROMPTS = {"recycling": 32}  # ids of the target; a small vocabulary repeats pairs
SOME = (5, specdec.ConfidenceStop(6, 0.02))
GAMMAS = (*range(1, 17), "auto") if HOURS else (1, 16, "auto", *SOME)
SLOW = ("recurrent state", "a head of a hybrid", "sliding windows", "MTP layers")  # passes of transformers' own


@pytest.mark.parametrize("second", PAIRS)
def test_greedy_text_is_that_of_generate(second: str) -> None:
    alone = PAIRS[second]()
    first = {"early exit": specdec.Suffix(), "MTP layers": specdec.Suffix(), "recycling": COPY}.get(
        second, specdec.PromptLookup()
    )
    prompt_ids, tokens = prompt_of(40, vocab_size=PROMPTS.get(second, 280)), 300 if FULL else 60
    reference = generated(alone.target, prompt_ids, tokens)
    by: Counter[str | None] = Counter()
    for gamma in SOME if second in SLOW and not FULL else GAMMAS:
        for engine in ("eager", "graph") if alone.draft.no_graphs is None and gamma in (5, "auto") else ("eager",):
            pair, params = combined(alone, first, engine), specdec.SamplingParams(max_new_tokens=tokens)
            events = list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params))
            assert ids_of(events) == reference, f"gamma {gamma}, {engine}"
            by.update(event.drafted_by for event in rounds_of(events))
    assert by[first.kind] > 3 and by[alone.draft.kind] > 3, by


def write(pair: specdec.Pair, prompt: tuple[int, ...], params: specdec.SamplingParams, rule: str, by: Counter) -> Any:
    lane = specdec.speculative(pair, torch.tensor(prompt), gamma=2, params=params, acceptance=rule)
    rounds = rounds_of(list(lane))
    by.update(event.drafted_by for event in rounds)
    return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds))


@pytest.mark.parametrize(("acceptance", "engine"), [("lossless", "eager"), ("block", "eager"), ("lossless", "graph")])
def test_sampled_text_has_the_targets_distribution(acceptance: str, engine: str) -> None:
    """Every outcome of every draw, in rounds of both ways."""
    table = random_table(3, 1, seed=0)
    target = table_model(table) if engine == "eager" else tiny("llama", 3, vocab_size=3)
    draft = table_model(random_table(3, 1, seed=1)) if engine == "eager" else noisy_copy(target, 4, 0.3)
    pair = specdec.Pair(target, specdec.Combined(COPY, draft), engine=engine)
    tokens = 4 if engine == "eager" else 3
    prompt, params = (1, 2, 0, 1, 2), specdec.SamplingParams(temperature=1.0, max_new_tokens=tokens, seed=0)
    by: Counter[str | None] = Counter()
    texts, paths = distribution(partial(write, pair, prompt, params, acceptance, by), every=acceptance == "block")
    assert paths > 30 and min(by[COPY.kind], by[DraftModel.kind]) > 5, by
    if engine == "eager":
        assert distance(texts, Target(table, prompt, params).completed({(): 1.0})) < CLOSE
    else:
        eager = replace(pair, engine="eager", draft=None)
        alone, _ = distribution(
            lambda: ids_of(specdec.speculative(eager, torch.tensor(prompt), gamma=0, params=params))
        )
        assert distance(texts, alone) < 1e-5  # two attention kernels


@pytest.mark.parametrize("fault", ["the model's q for a copy", "another temperature"])
def test_a_distribution_that_was_not_drawn_from_is_caught(monkeypatch, fault: str) -> None:
    propose = CombinedDraft.propose

    def faulty(self, context, gamma, stop):
        found = propose(self, context, gamma, stop)
        if found.q is None or not len(found.ids):
            return found
        if fault == "another temperature":
            q = found.q.clamp(min=1e-9).log().div(1.4).softmax(-1)
            return found._replace(q=q) if found.drafted_by == DraftModel.kind else found
        return found._replace(q=torch.full_like(found.q, 1 / 3)) if found.drafted_by == COPY.kind else found

    monkeypatch.setattr(CombinedDraft, "propose", faulty)
    with pytest.raises(AssertionError):
        test_sampled_text_has_the_targets_distribution("lossless", "eager")


def test_a_combination_needs_fewer_passes_than_either_of_its_ways() -> None:
    """On a story the model is right, on digits the text is: a good copy is not worth less than a guess of the model."""
    alone, copy = load_pair(), specdec.PromptLookup(5, 3)
    ways = {"both": specdec.Combined(copy, alone.draft), "model": alone.draft, "copy": copy}
    params, passes = specdec.SamplingParams(max_new_tokens=64, ignore_eos=True), Counter[str]()
    prompts = {item.name: item.prompt for item in read_prompts(EXAMPLES)}
    for name, way in ways.items():
        for prompt in (prompts["Story"], prompts["Digits"]):
            events = list(specdec.speculative(replace(alone, draft=way), prompt, params=params))
            passes[name] += len(rounds_of(events))
    assert passes["both"] < 0.9 * min(passes["model"], passes["copy"]), passes


# --- loading ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    target = target_of()
    for name, model in (("target", target), ("draft", tiny("llama", 2, layers=1))):
        model.save_pretrained(root / name)
        byte_tokenizer().save_pretrained(root / name)
    (root / "head").mkdir()
    (root / "head" / "config.json").write_text(json.dumps(config_of()))
    save_file(dict(head_of(config_of()).state_dict()), root / "head" / "model.safetensors")
    return root


@pytest.mark.parametrize(
    ("rest", "kind", "said"),
    [
        ("{}/draft", "model", "prompt-lookup:2-3 + draft (1 layer"),
        ("{}/head", "eagle3", "prompt-lookup:2-3 + eagle3:head"),
        ("eagle3:{}/head", "eagle3", "prompt-lookup:2-3 + eagle3:head"),
        ("early-exit:2", "early-exit", "prompt-lookup:2-3 + early-exit:2"),
    ],
)
def test_a_text_is_checked_and_loaded(shelf, rest: str, kind: str, said: str) -> None:
    """What drafts in the second way is told by the content of its checkpoint, as elsewhere."""
    draft = f"prompt-lookup:2-3+{rest.format(shelf)}"
    plan = plan_pair(shelf / "target", draft)
    topics = Counter(finding.topic for finding in check_pair(plan))
    assert topics["Copying"] == topics["Cost"] == 1 and max(topics.values()) == 1
    pair = load_pair(shelf / "target", draft)
    assert (pair.draft.first, pair.draft.then.kind) == (COPY, kind)
    assert said in provenance.pair_line(pair.facts())
    params = specdec.SamplingParams(max_new_tokens=12)
    found = specdec.collect(specdec.speculative(pair, "abc abc abc", params=params))
    assert tuple(found.token_ids) == generated(pair.target, pair.encode("abc abc abc")[0], 12)


def test_a_model_of_a_combination_is_rounded_as_one_alone(shelf) -> None:
    names = shelf / "target", f"suffix+{shelf}/draft"
    assert [load_pair(*names, draft_weights=asked).draft.then.rounded for asked in ("auto", "same")] == [True, False]
    native = why_torch(torch.float32, torch.device("cpu")) is None
    for way in ("suffix+early-exit:2", "suffix+recycling"):
        with pytest.raises(InvalidInput, match="'int8', which only a draft model can have"):
            plan_pair(shelf / "target", way, LoadOptions(draft_weights="int8"))
    if native:
        pair = load_pair(*names, draft_weights="int8")
        assert pair.describe()["draft"]["dtype"] == "int8" and "int8)" in provenance.pair_line(pair.describe())
        rounded, whole = (plan_pair(*names, LoadOptions(draft_weights=asked)).weights for asked in ("int8", "same"))
        assert rounded > whole, "the copy in 8 bits takes memory too"


def test_mtp_layers_of_a_combination_are_read_from_the_targets_checkpoint(tmp_path, monkeypatch) -> None:
    # transformers ignores the layers of published depths alone, and would refuse these as unexpected.
    unread = [rf"model\.layers\.{DEPTH}\..*"]
    monkeypatch.setattr(Glm4MoeForCausalLM, "_keys_to_ignore_on_load_unexpected", unread)
    folder = save(tmp_path)
    assert "MTP" not in {finding.topic for finding in check_pair(plan_pair(folder, "suffix+mtp"))}
    pair = load_pair(folder, "suffix+mtp")
    assert pair.draft == specdec.Combined(specdec.Suffix(), specdec.Mtp()) and len(pair.draft.heads) == 1


def test_the_embedded_draft_and_targets_that_do_not_fit(shelf) -> None:
    assert load_pair("embedded", "suffix+embedded").draft.then.models
    with pytest.raises(InvalidInput, match="there is no target for it"):
        plan_pair(None, "suffix+some/model")
    with pytest.raises(specdec.IncompatiblePair, match="names no MTP layers"):
        plan_pair(shelf / "target", "suffix+mtp")


def test_the_terminal_says_which_way_guessed(monkeypatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # a command takes a thread from this process
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        specdec.cli.main(
            ["red, blue, red, blue, red", "--draft", "prompt-lookup:1-3+embedded", "--tokens", "24", "--json"]
        )
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    by = Counter(line["drafted_by"] for line in lines if line["event"] == "round")
    assert by["prompt-lookup"] and by[None]
