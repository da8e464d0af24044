"""Token recycling: the table walks what the target ranked first, also after guesses that were not kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from comparison import FULL
from enumeration import Target
from fakes import chain, generated, ids_of, noisy_copy, prompt_of, random_table, rounds_of, table_model, tiny

import specdec
from specdec.drafters.draft_model import ModelDraft
from specdec.drafters.prompt_lookup import LookupDraft
from specdec.drafters.recycling import RecyclingDraft, RecyclingIndex
from specdec.engine import decode
from specdec.measure.conformance import DrafterConformance
from specdec.measure.enumeration import CLOSE, distance, distribution
from specdec.models.loading import EMBEDDED


class TestRecycling(DrafterConformance):
    method = specdec.Recycling()

    def pair(self) -> specdec.Pair:
        return specdec.load_pair(EMBEDDED / "draft", self.method)  # a smaller target


# --- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "noted", "walked"),
    [
        ([1, 2, 3], {}, []),  # nothing followed 3
        ([1, 2, 3, 1], {}, [2, 3, 1, 2, 3]),  # the prompt's own pairs, round and round
        ([1, 2, 1, 3, 1], {}, [3, 1, 3, 1, 3]),  # the latest pair
        ([1, 2, 3, 1], {3: 7}, [2, 3, 7]),  # the target's choice, after which nothing is known
        ([1, 2, 3, 1], {1: 1}, [1, 1, 1, 1, 1]),
        ([9], {9: 4, 4: 5}, [4, 5]),
    ],
)
def test_a_draft_walks_from_each_token_to_the_one_after_it(prompt: list[int], noted: dict, walked: list[int]) -> None:
    index = RecyclingIndex()
    index.read(prompt)
    index.note(list(noted), list(noted.values()))
    assert index.continuation(prompt, 5) == walked and index.continuation(prompt, 2) == walked[:2]


def test_the_latest_choice_counts_and_the_text_itself_teaches_nothing() -> None:
    index = RecyclingIndex()
    index.read([1, 2, 1])
    index.note([1, 3, 1], [5, 6, 7])
    assert index.continuation([1, 2, 1], 1) == [7]
    index.read([1, 2, 1, 4, 1, 4, 1])  # sampled perhaps, so not what the target ranked first
    assert index.continuation([1, 2, 1, 4, 1], 3) == [7]


# --- what it is told -------------------------------------------------------------------------------------------------


@torch.inference_mode()
def ranked_first(target, text: list[int]) -> int:
    return int(target(input_ids=torch.tensor([text])).logits[0, -1].argmax())


def require_true_choices(monkeypatch, gamma: Any = 4, temperature: float = 0.0) -> None:
    """What the table is told is what the target ranks first after each token of each pass, read anew from the start."""
    target, told = tiny("llama", 3), []
    propose, note = RecyclingDraft.propose, RecyclingDraft.note_choices

    def proposing(self, context, *rest):
        self.text = list(context.tokens)
        return propose(self, context, *rest)

    def noting(self, tokens, choices):
        told.append((getattr(self, "text", None), tokens, choices))
        note(self, tokens, choices)

    with monkeypatch.context() as patched:
        patched.setattr(RecyclingDraft, "propose", proposing)
        patched.setattr(RecyclingDraft, "note_choices", noting)
        params = specdec.SamplingParams(max_new_tokens=24, temperature=temperature, seed=1)
        pair = specdec.Pair(target, specdec.Recycling())
        rounds = rounds_of(list(specdec.speculative(pair, prompt_of(9), gamma=gamma, params=params)))
    assert told[0] == (None, [int(prompt_of(9)[-1])], [ranked_first(target, prompt_of(9).tolist())])
    for event, (text, tokens, choices) in zip(rounds[1:], told[1:], strict=True):
        assert tokens == [text[-1], *(token.token_id for token in event.draft)]
        assert choices == [ranked_first(target, text + tokens[1 : 1 + row]) for row in range(len(tokens))]
    assert {token.status for event in rounds[1:] for token in event.draft} >= {"rejected", "discarded"}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_table_is_told_the_choices_of_every_row(monkeypatch, temperature: float) -> None:
    require_true_choices(monkeypatch, temperature=temperature)


@pytest.mark.parametrize("fault", ["rows shifted by one", "the corrections alone", "kept rows alone"])
def test_a_wrong_choice_is_caught(monkeypatch, fault: str) -> None:
    observe = decode.observe_round

    def faulty(*given):
        seen = observe(*given)
        if fault == "rows shifted by one":
            return seen._replace(choices=seen.choices[1:] + seen.choices[:1])
        rows = len(seen.choices)
        if fault == "the corrections alone":
            return seen._replace(choices=[seen.token_id] * rows)
        return seen._replace(choices=seen.choices[: seen.accepted + 1])

    monkeypatch.setattr(decode, "observe_round", faulty)
    with pytest.raises((AssertionError, ValueError)):
        require_true_choices(monkeypatch)


def accepted(following: list[int], prompt: list[int], tokens: int) -> int:
    pair = specdec.Pair(table_model(chain(following)), specdec.Recycling())
    found = list(specdec.speculative(pair, torch.tensor(prompt), params=specdec.SamplingParams(tokens)))
    assert tuple(ids_of(found)) == tuple(itertools.islice(walk(following, prompt[-1]), tokens))
    return sum(token.status == "accepted" for event in rounds_of(found) for token in event.draft or ())


def walk(following: list[int], token: int) -> Iterator[int]:
    while True:
        yield (token := following[token])


@pytest.mark.parametrize("learns", ["all", "what was kept", "nothing"])
def test_rejected_and_discarded_guesses_teach_what_the_text_does_not_say(monkeypatch, learns: str) -> None:
    """The text visits each of 48 tokens once, so its own pairs never help. The prompt's wrong pairs are read, and the
    target says what follows each of them."""
    order = torch.randperm(48, generator=torch.Generator().manual_seed(1)).tolist()
    following = [order[(order.index(token) + 1) % 48] for token in range(48)]
    note = RecyclingIndex.note
    if learns == "nothing":
        monkeypatch.setattr(RecyclingIndex, "note", lambda self, tokens, choices: None)
    elif learns == "what was kept":
        monkeypatch.setattr(RecyclingIndex, "note", lambda self, tokens, choices: note(self, tokens[:1], choices[:1]))
    found = accepted(following, [*prompt_of(48, 48, seed=3).tolist(), 0], 44)
    assert found > 12 if learns == "all" else found < 5


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 3, 16, "auto", specdec.ConfidenceStop(6, 0.5)], ids=str)
def test_greedy_text_is_that_of_generate(gamma: Any) -> None:
    target = tiny("llama", context=512)
    prompt_ids, tokens = torch.cat([prompt_of(12), prompt_of(12)]), 300 if FULL else 60
    lane = specdec.speculative(
        specdec.Pair(target, specdec.Recycling()), prompt_ids, gamma=gamma, params=specdec.SamplingParams(tokens)
    )
    assert ids_of(lane) == generated(target, prompt_ids, tokens)


def test_a_draft_that_is_cut_on_the_device_has_no_choices_beyond_its_end(monkeypatch) -> None:
    """The graph engine cuts a draft at an unsure guess after the target has read all of it."""
    told, target = [], tiny("llama", 3)
    monkeypatch.setattr(ModelDraft, "note_choices", lambda self, *given: told.append([*map(len, given)]))
    pair = specdec.Pair(target, noisy_copy(target, 1), engine="graph")
    params, policy = specdec.SamplingParams(max_new_tokens=24), specdec.ConfidenceStop(6, 0.3)
    rounds = rounds_of(list(specdec.speculative(pair, prompt_of(5), gamma=policy, params=params)))
    assert told == [[1 + len(event.draft)] * 2 for event in rounds] and len({len(event.draft) for event in rounds}) > 2


def write(pair: specdec.Pair, prompt: tuple[int, ...], params: specdec.SamplingParams, rule: str) -> tuple[int, ...]:
    lane = specdec.speculative(pair, torch.tensor(prompt), gamma=2, params=params, acceptance=rule)
    return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(list(lane))))


@pytest.mark.parametrize(("acceptance", "engine"), [("lossless", "eager"), ("block", "eager"), ("lossless", "graph")])
def test_sampled_text_has_the_targets_distribution(acceptance: str, engine: str) -> None:
    table = random_table(3, 1, seed=0)
    pair = specdec.Pair(table_model(table), specdec.Recycling(), engine=engine)
    prompt, params = (1, 2, 0, 1), specdec.SamplingParams(temperature=1.0, max_new_tokens=4, seed=0)
    texts, paths = distribution(partial(write, pair, prompt, params, acceptance), every=acceptance == "block")
    assert paths > 20
    assert distance(texts, Target(table, prompt, params).completed({(): 1.0})) < CLOSE


def test_a_distribution_that_was_not_drawn_from_is_caught(monkeypatch) -> None:
    whole = LookupDraft._proposal

    def faulty(self, context, count):
        found = whole(self, context, count)
        return found._replace(q=0.9 * found.q + 0.1 / found.q.shape[1])

    monkeypatch.setattr(LookupDraft, "_proposal", faulty)
    with pytest.raises(AssertionError):
        test_sampled_text_has_the_targets_distribution("lossless", "eager")
