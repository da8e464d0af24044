"""Heads that were trained for a target obey a grammar too, and their texts stay those of the target under it."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import block_heads
import drafting
import torch
from comparison import FULL
from enumeration import OfModel
from fakes import byte_tokenizer, generated, prompt_of, rounds_of, tiny
from pairwise import each_once

import specdec
from specdec.measure.enumeration import CLOSE, distance, distribution
from tests.drafters import test_dflash, test_dspark, test_gemma4_assistant, test_mtp, test_qwen_mtp
from tests.grammar.grammars import GRAMMARS, Afresh

END, ONE, TWO = range(3)
PROMPT = (ONE, TWO, ONE)


def turns(text: tuple[int, ...]) -> list[int]:
    """A one is followed by a two, later also by the end; a two by anything but a third two."""
    if text[-1:] == (ONE,):
        return [TWO] if len(text) < 2 else [END, TWO]
    return [ONE, *([TWO] if text[-2:] != (TWO, TWO) else []), *([END] if text else [])]


def eagle(known: int | None = None, **options: Any) -> specdec.Pair:
    """An EAGLE-3 head for three tokens, of which it knows all or ``known``."""
    options |= {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "draft_vocab_size": known}
    head = drafting.head_of(drafting.config_of(vocab_size=3, **options))
    return specdec.Pair(tiny("llama", seed=3, layers=2, vocab_size=3), specdec.Eagle3(head))


SMALL: dict[str, Any] = {
    "EAGLE-3": eagle,
    "EAGLE-3, two tokens": lambda: eagle(2),
    "P-EAGLE": lambda: eagle(num_hidden_layers=2, mask_token_id=1),
    "P-EAGLE, two tokens": lambda: eagle(2, num_hidden_layers=2, mask_token_id=1),
    "MTP": lambda: test_mtp.pair_of("deepseek_v3", 2, vocabulary=3),
    "Qwen MTP": lambda: test_qwen_mtp.pair_of("qwen3_5_text", vocabulary=3),
    "DFlash": test_dflash.small_pair,
    "DFlash, hybrid target": lambda: test_dflash.small_pair("qwen3_5_text"),
    "DSpark": lambda: test_dspark.small_pair("llama", draft_vocab_size=3),
    "DSpark, two tokens": lambda: test_dspark.small_pair("llama", draft_vocab_size=2),
    "Gemma 4 assistant": lambda: test_gemma4_assistant.small_pair("all tokens"),
    "Gemma 4 assistant, groups": test_gemma4_assistant.small_pair,
}


def apart(monkeypatch: Any, which: str, **settings: Any) -> tuple[float, int]:
    """How far the chance of a text is from the target's own under the grammar, and how many paths there are."""
    pair, acceptance = SMALL[which](), settings.pop("acceptance", "lossless")
    monkeypatch.setattr(pair.target.generation_config, "eos_token_id", END)
    settings = {"temperature": 1.5, "max_new_tokens": 4, "seed": 0, "grammar": turns} | settings
    params = specdec.SamplingParams(**settings)

    def write() -> tuple[int, ...]:
        lane = specdec.speculative(pair, torch.tensor(PROMPT), gamma=2, params=params, acceptance=acceptance)
        return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(list(lane))))

    texts, paths = distribution(write, every=acceptance == "block")
    alone = OfModel(pair.target, PROMPT, params)
    alone.eos = frozenset({END})
    return distance(texts, alone.completed({(): 1.0})), paths


WAYS: dict[str, dict[str, Any]] = {
    "lossless": {},
    "block": {"acceptance": "block", "max_new_tokens": 3},
    "penalty": {"repetition_penalty": 1.4},
}  # fmt: skip


@each_once(which=tuple(SMALL), way=tuple(WAYS), draft_mask=(True, False))
def test_sampling_is_exact(monkeypatch, which: str, way: str, draft_mask: bool) -> None:
    error, paths = apart(monkeypatch, which, draft_mask=draft_mask, **WAYS[way])
    assert paths > 5 and error < CLOSE


EOS, TOKENS, LONG = 1, 50, prompt_of(9)
NAMES = ("person", "one of objects", "enum of kinds", "letters beyond ASCII", "/same beginnings/", "/phone/", "/up to/")


def eagle_of(**options: Any) -> specdec.Pair:
    return specdec.Pair(block_heads.target_of(), specdec.Eagle3(drafting.head_of(drafting.config_of(**options))))


def block_of(config: dict[str, Any], family: str = "llama") -> specdec.Pair:
    return block_heads.pair_of(block_heads.target_of(family), block_heads.head_of(config))


def assistant_of(**options: Any) -> specdec.Pair:
    head = test_gemma4_assistant.head_of(test_gemma4_assistant.config_of(**options))
    return specdec.Pair(test_gemma4_assistant.target_of(), specdec.Gemma4Assistant(head))


LARGE: dict[str, Any] = {
    "EAGLE-3": eagle_of,
    "EAGLE-3, some tokens": lambda: eagle_of(draft_vocab_size=200),
    "P-EAGLE": lambda: eagle_of(num_hidden_layers=2, mask_token_id=7),
    "MTP": lambda: test_mtp.pair_of("deepseek_v3", 2),
    "MTP, one layer": lambda: test_mtp.pair_of("glm4_moe", 1),
    "Qwen MTP": lambda: test_qwen_mtp.pair_of("qwen3_5_text"),
    "Qwen MTP, experts": lambda: test_qwen_mtp.pair_of("qwen3_next"),
    "DFlash": lambda: block_of(block_heads.zlab()),
    "DFlash, hybrid target": lambda: block_of(block_heads.zlab(), "qwen3_5_text"),
    "DSpark": lambda: block_of(block_heads.deepspec(**block_heads.CONFIDENT)),
    "Gemma 4 assistant": assistant_of,
    "Gemma 4 assistant, groups": lambda: assistant_of(**test_gemma4_assistant.grouped()),
}


@functools.cache
def pair_of(which: str) -> specdec.Pair:
    pair = LARGE[which]()
    return specdec.Pair(pair.target, pair.draft, byte_tokenizer())


@functools.cache
def expected(which: str, name: str) -> tuple[int, ...]:
    target = pair_of(which).target
    rule = Afresh(GRAMMARS[name], byte_tokenizer(), pair_of(which).vocabulary, [EOS], len(LONG))
    return generated(target, LONG, TOKENS, eos_token_id=EOS, pad_token_id=0, logits_processor=[rule])


@each_once(which=tuple(LARGE), draft_mask=(True, False))
def test_greedy_text_is_that_of_generate(monkeypatch, which: str, draft_mask: bool) -> None:
    """One schema or expression for each draft length; with ``--full`` all lengths, each kind of head with all."""
    pair, turn = pair_of(which), [*LARGE].index(which) + draft_mask
    monkeypatch.setattr(pair.target.generation_config, "eos_token_id", EOS)
    for at, gamma in enumerate((*range(17), "auto") if FULL else (3, "auto")):
        name = NAMES[(at + turn) % len(NAMES)]
        params = specdec.SamplingParams(max_new_tokens=TOKENS, grammar=GRAMMARS[name], draft_mask=draft_mask)
        events = specdec.speculative(pair, LONG, gamma=gamma, params=params)
        assert tuple(specdec.collect(events).token_ids) == expected(which, name), (name, gamma)
