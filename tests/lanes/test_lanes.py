"""The lanes of transformers' own decoding, and ``driven``, which runs any lane on the decoding thread."""

from __future__ import annotations

import copy
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from fakes import (
    byte_tokenizer,
    chain,
    count_passes,
    generated,
    ids_of,
    isolated_rng,
    noisy_copy,
    prompt_of,
    random_table,
    rounds_of,
    shared_tiny,
    table_model,
    table_pair,
    tiny,
)
from transformers import GenerationConfig, StopStringCriteria

import specdec
from specdec.lanes import decoding_thread

LANES = ("generate", "assisted", "speculative")
COUNT_UP = chain([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0])
SKIP = chain([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1])
ZERO = torch.tensor([0])


def lane_of(name: str, pair: specdec.Pair, prompt, gamma: int = 4, **settings):
    params = specdec.SamplingParams(**({"max_new_tokens": 30} | settings))
    if name == "generate":
        return specdec.generate(pair, prompt, params=params)
    return getattr(specdec, name)(pair, prompt, gamma=gamma, params=params)


def drive(lane, **options) -> list:
    return [event for batch in specdec.driven(lane, **options) for event in batch]


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 4, layers=3)
    return specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())


@pytest.fixture
def tables() -> specdec.Pair:
    target = random_table(12, 3, seed=0, scale=2.0)
    return table_pair(target, target + random_table(12, 3, seed=1))


# --- the transformers lanes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [1.0, 1.3])
@pytest.mark.parametrize("lane", LANES)
def test_greedy_lanes_write_what_generate_writes(lane: str, penalty: float, pair) -> None:
    """Every lane writes the target's own greedy text."""
    events = list(lane_of(lane, pair, prompt_of(12), repetition_penalty=penalty))
    assert ids_of(events) == generated(pair.target, prompt_of(12), 30, repetition_penalty=penalty)
    assert events[-1].finish_reason == "length"


@pytest.mark.parametrize("lane", ["generate", "assisted"])
def test_sampling_equals_generate_under_the_same_seed(lane: str, pair) -> None:
    """The baseline samples exactly as transformers does with these settings and this seed."""
    settings = {"temperature": 0.8, "top_k": 20, "top_p": 0.9}
    events = list(lane_of(lane, pair, prompt_of(12), seed=21, **settings))
    with isolated_rng(21):
        if lane == "generate":
            assert ids_of(events) == generated(pair.target, prompt_of(12), 30, do_sample=True, **settings)
    assert ids_of(events) == ids_of(list(lane_of(lane, pair, prompt_of(12), seed=21, **settings)))
    assert ids_of(events) != ids_of(list(lane_of(lane, pair, prompt_of(12), seed=22, **settings)))


@pytest.mark.parametrize("lane", LANES)
def test_stream_of_each_lane(lane: str, pair) -> None:
    """All lanes have one format: Started, round 0 with the first token, and Finished at the end."""
    events = list(lane_of(lane, pair, prompt_of(12)))
    started, rounds, finished = events[0], rounds_of(events), events[-1]
    assert isinstance(started, specdec.Started) and isinstance(finished, specdec.Finished)
    assert started.lane == lane
    assert started.prompt_ids == tuple(prompt_of(12).tolist())
    assert started.params.seed is not None
    assert [r.index for r in rounds] == list(range(len(events) - 2))
    assert all(r.committed_ids for r in rounds)
    stamps = [0.0, *[r.elapsed_seconds for r in rounds], finished.elapsed_seconds]
    assert stamps == sorted(stamps)
    assert finished.prefill_seconds == rounds[0].elapsed_seconds
    assert 0 < finished.cpu_seconds < 1.1 * finished.elapsed_seconds
    if lane == "generate":
        assert all(r.draft == () and r.token_kind == "target" for r in rounds)
        assert all(r.committed_ids == (r.token_id,) for r in rounds)
    if lane == "assisted":  # it streams accepted ids only; what cannot be observed is None
        assert all(r.draft is None and r.token_kind is None and r.draft_seconds is None for r in rounds[1:])


@pytest.mark.parametrize("lane", LANES)
def test_finish_reasons(lane: str) -> None:
    """Every lane tells EOS from length, also when EOS is the last allowed token."""
    with_eos = table_pair(COUNT_UP, COUNT_UP, eos=7)
    for length, reason in ((20, "eos"), (7, "eos"), (6, "length"), (1, "length")):
        events = list(lane_of(lane, with_eos, ZERO, max_new_tokens=length))
        assert ids_of(events) == tuple(range(1, min(length, 7) + 1))
        assert events[-1].finish_reason == reason
    assert len(ids_of(list(lane_of(lane, with_eos, ZERO, max_new_tokens=11, ignore_eos=True)))) == 11


@pytest.mark.parametrize("gamma", [1, 4, 7])
@pytest.mark.parametrize("lane", LANES)
def test_stop_strings_in_each_lane(lane: str, gamma: int) -> None:
    """The token that completes a stop string is the last; assisted generation overshoots and is cut there."""
    tokenizer = byte_tokenizer()
    cycle = tokenizer.convert_tokens_to_ids(list("abcdefghij"))
    table = torch.zeros(336, 336)
    for now, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        table[now, following] = 9.0
    pair = specdec.Pair(target=table_model(table), draft=table_model(table), tokenizer=tokenizer)
    prompt_ids = torch.tensor(cycle[:1])
    events = list(lane_of(lane, pair, prompt_ids, gamma=gamma, stop=("def", "xyz")))
    assert specdec.collect(iter(events), tokenizer).text == "bcdef"
    assert ids_of(events) == generated(pair.target, prompt_ids, 30, tokenizer=tokenizer, stop_strings=["def", "xyz"])
    assert events[-1].finish_reason == "stop"


@pytest.mark.parametrize("lane", LANES)
def test_stop_strings_cost_every_lane_the_same(lane: str, monkeypatch) -> None:
    """Stop strings are prepared before the clock starts and searched once a token.

    Else the baseline would look slow.
    """
    looks, made = [], []
    look, make = StopStringCriteria.__call__, StopStringCriteria.__init__
    monkeypatch.setattr(StopStringCriteria, "__call__", lambda self, *a, **k: looks.append(1) or look(self, *a, **k))
    monkeypatch.setattr(StopStringCriteria, "__init__", lambda self, *a, **k: made.append(1) or make(self, *a, **k))
    target = shared_tiny("llama", 4)
    pair = specdec.Pair(target, noisy_copy(target, 4), tokenizer=byte_tokenizer())
    events = lane_of(lane, pair, "Once", gamma=3, max_new_tokens=9, stop=("no such",), ignore_eos=True)
    assert made == [1]
    assert len(ids_of(list(events))) == 9 and made == [1] and len(looks) == 9


@pytest.mark.parametrize("gamma", [1, 5, 9])
def test_assisted_keeps_the_draft_length_when_all_is_accepted(gamma: int) -> None:
    """``generate(num_assistant_tokens=...)`` is ignored and its default schedule grows.

    Our lane keeps the length fixed.
    """
    pair = table_pair(COUNT_UP, COUNT_UP)
    new_tokens = 4 * (gamma + 1)
    with count_passes(pair.target) as target_fed, count_passes(pair.draft.model) as draft_fed:
        events = list(lane_of("assisted", pair, ZERO, gamma=gamma, max_new_tokens=new_tokens))
    assert len(ids_of(events)) == new_tokens
    assert [len(r.committed_ids) for r in rounds_of(events)] == [gamma + 1] * 4
    assert len(target_fed) == 4 and len(draft_fed) == 4 * gamma


def test_assisted_keeps_the_draft_length_when_nothing_is_accepted() -> None:
    """The default schedule would shorten the draft after each rejection."""
    pair = table_pair(COUNT_UP, SKIP)
    with count_passes(pair.target) as target_fed:
        events = list(lane_of("assisted", pair, ZERO, gamma=3, max_new_tokens=12))
    assert ids_of(events) == (*range(1, 12), 0)
    assert target_fed[0] == 1 + 3
    assert target_fed[1:] == [1 + min(3, remaining - 1) for remaining in range(11, 0, -1)]


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_assisted_drafts_from_the_whole_text(ignore_eos: bool) -> None:
    """The draft also reads an id that is used for padding.

    If it did not, a copy of the target would guess wrong after it.
    """
    target = tiny("llama", 4, eos=0)
    pair = specdec.Pair(target=target, draft=copy.deepcopy(target))
    prompt_ids = prompt_of(20)
    prompt_ids[[3, 9, 17]] = 0
    events = list(lane_of("assisted", pair, prompt_ids, max_new_tokens=20, ignore_eos=ignore_eos))
    assert [len(r.committed_ids) for r in rounds_of(events)] == [5] * 4


def test_assisted_keeps_drafting_when_unsure() -> None:
    """An unsure draft still proposes gamma tokens, though transformers' default threshold would end it early."""
    unsure = COUNT_UP * 0.05
    pair = table_pair(unsure, unsure)
    with count_passes(pair.draft.model) as draft_fed:
        list(lane_of("assisted", pair, ZERO, gamma=5, max_new_tokens=12))
    assert len(draft_fed) == 10


def test_assisted_ignores_the_generation_config_of_the_draft(pair) -> None:
    """Settings of the draft's checkpoint are ignored: its own penalty or EOS would make it draft worse."""
    common = list(dict.fromkeys(generated(pair.target, prompt_of(12), 30)))
    strange = copy.deepcopy(pair.draft.model)
    strange.generation_config = GenerationConfig(
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        suppress_tokens=common[:4],
        eos_token_id=common[4:8],
        do_sample=True,
        top_k=2,
        pad_token_id=0,
    )
    blocks = []
    for draft in (pair.draft.model, strange):
        events = list(lane_of("assisted", specdec.Pair(pair.target, draft, pair.tokenizer), prompt_of(12)))
        blocks.append([r.committed_ids for r in rounds_of(events)])
    assert blocks[1] == blocks[0]


@pytest.mark.parametrize("rows", [304, 368])
def test_assisted_with_padding_of_unequal_size(rows: int, pair) -> None:
    """Models that differ in rows only, as Qwen2.5 7B and 0.5B, give the same text or a clear refusal."""
    unequal = specdec.Pair(pair.target, shared_tiny("llama", 9, layers=1, vocab_size=rows), pair.tokenizer)
    try:
        events = list(lane_of("assisted", unequal, prompt_of(12)))
    except specdec.SpecdecError as refusal:
        assert str(rows) in str(refusal)
    else:
        assert ids_of(events) == generated(pair.target, prompt_of(12), 30)


def test_lanes_leave_the_models_as_they_were(pair) -> None:
    """Every lane leaves the settings, weights and modes of the shared models unchanged."""

    def state(model):
        return model.generation_config.to_dict(), model.config.to_dict(), model.training, model.generation_config

    weights = [copy.deepcopy(m.state_dict()) for m in (pair.target, pair.draft.model)]
    before = [state(m) for m in (pair.target, pair.draft.model)]
    for lane in LANES:
        for gamma in (2, 6):
            list(lane_of(lane, pair, prompt_of(5), gamma=gamma))
            lane_events = lane_of(lane, pair, prompt_of(5), gamma=gamma, temperature=1.0)
            next(lane_events), next(lane_events)
            assert [state(m) for m in (pair.target, pair.draft.model)] == before, "nor while it runs"
            lane_events.close()
    assert [state(m) for m in (pair.target, pair.draft.model)] == before
    assert pair.draft.model.generation_config is before[1][3]
    for model, old in zip((pair.target, pair.draft.model), weights, strict=True):
        assert all(torch.equal(old[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("lane", LANES)
def test_global_random_state_is_put_back(lane: str, temperature: float, pair) -> None:
    """``generate`` draws from torch's global generator, whose state is put back for the caller."""
    torch.manual_seed(77)
    expected = torch.rand(4)
    torch.manual_seed(77)
    list(lane_of(lane, pair, prompt_of(5), temperature=temperature))
    drive(lane_of(lane, pair, prompt_of(5), temperature=temperature, seed=3))
    lane_events = lane_of(lane, pair, prompt_of(5), temperature=temperature)
    next(lane_events), next(lane_events)
    lane_events.close()
    assert torch.equal(torch.rand(4), expected)


def test_assisted_refuses_no_draft(pair) -> None:
    """Assisted generation is refused without a draft or with a draft length of 0."""
    with pytest.raises(specdec.SpecdecError, match="0"):
        list(lane_of("assisted", pair, prompt_of(5), gamma=0))
    alone = specdec.Pair(target=pair.target, draft=None, tokenizer=pair.tokenizer)
    with pytest.raises(specdec.SpecdecError, match="draft"):
        list(lane_of("assisted", alone, prompt_of(5)))


# --- driven ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"temperature": 1.0, "seed": 8}])
@pytest.mark.parametrize("lane", LANES)
def test_driven_gives_the_same_events(lane: str, settings: dict, pair) -> None:
    """A lane gives the same events on the decoding thread and off it."""
    direct = list(lane_of(lane, pair, prompt_of(12), **settings))
    for interval in (0.0, 0.01):
        events = drive(lane_of(lane, pair, prompt_of(12), **settings), interval=interval)
        assert ids_of(events) == ids_of(direct)
        assert [type(event) for event in events] == [type(event) for event in direct]
        assert events[-1].finish_reason == direct[-1].finish_reason


def test_batches_are_never_empty(tables) -> None:
    """Every batch holds at least one event, as a page sends one update for each batch."""
    for lane in LANES:
        batches = list(specdec.driven(lane_of(lane, tables, ZERO), interval=0.005))
        assert all(isinstance(batch, list) and batch for batch in batches)


def test_all_lanes_decode_on_one_thread(tables) -> None:
    """All lanes decode on one thread, because CPU kernels keep a team of threads for each calling thread."""
    threads = set()
    handle = tables.target.register_forward_pre_hook(lambda *_: threads.add(threading.get_ident()))
    for lane in LANES:
        drive(lane_of(lane, tables, ZERO))
    handle.remove()
    assert len(threads) == 1 and threads != {threading.get_ident()}


@contextmanager
def held_after_ten_passes(model) -> Iterator[Callable[[], None]]:
    """The model's next pass waits until well after the function that is handed out was called."""
    fed, release = [], threading.Event()

    def hold(*_) -> None:
        fed.append(1)
        if len(fed) > 10:
            assert release.wait(60)

    def release_soon() -> None:
        threading.Timer(0.3, release.set).start()

    handle = model.register_forward_pre_hook(hold)
    try:
        yield release_soon
    finally:
        release.set()
        handle.remove()


@pytest.mark.parametrize("started", [0, 1, 3])
@pytest.mark.parametrize("lane", LANES)
def test_closing_driven_stops_the_lane(lane: str, started: int, tables) -> None:
    """Stop ends the work within a round, nothing keeps running after it, and the next run is right."""
    expected = ids_of(list(lane_of(lane, tables, ZERO)))
    with held_after_ten_passes(tables.target) as release_soon, count_passes(tables.target) as fed:
        batches = specdec.driven(lane_of(lane, tables, ZERO, max_new_tokens=150))
        for _ in range(started):
            next(batches)
        release_soon()
        batches.close()
        at_close = len(fed)
        time.sleep(0.05)
        assert len(fed) == at_close <= 12
    assert ids_of(drive(lane_of(lane, tables, ZERO))) == expected


@pytest.mark.parametrize("started", [0, 1, 3])
@pytest.mark.parametrize("lane", LANES)
def test_closing_a_lane_stops_it(lane: str, started: int, tables) -> None:
    """A closed lane stops without ``driven`` too, whether it had begun or not."""
    with held_after_ten_passes(tables.target) as release_soon, count_passes(tables.target) as fed:
        events = lane_of(lane, tables, ZERO, max_new_tokens=150)
        for _ in range(started):
            next(events)
        release_soon()
        events.close()
        at_close = len(fed)
        with pytest.raises(StopIteration):
            next(events)
        assert len(fed) == at_close <= 12


@pytest.mark.parametrize("lane", LANES)
def test_an_abandoned_lane_stops(lane: str, tables) -> None:
    """A ``break`` in the consumer's loop stops the lane like a close."""
    expected = ids_of(list(lane_of(lane, tables, ZERO, max_new_tokens=5)))
    with held_after_ten_passes(tables.target) as release_soon, count_passes(tables.target) as fed:
        for event in lane_of(lane, tables, ZERO, max_new_tokens=150):
            if isinstance(event, specdec.Round):
                release_soon()
                break
        gc.collect()
        again = ids_of(list(lane_of(lane, tables, ZERO, max_new_tokens=5)))
        assert len(fed) <= 12 + 5
    assert again == expected


def test_an_abandoned_lane_may_be_collected_in_its_own_thread(pair, monkeypatch) -> None:
    """A cycle holds it until the collector runs. In the decoding thread the lane would wait for its own end."""
    of_this_test = ThreadPoolExecutor(1, decoding_thread._THREAD_NAME)
    monkeypatch.setattr(decoding_thread, "_decoding_thread", of_this_test)
    dropped, ended = threading.Event(), threading.Event()

    def lane() -> Iterator[specdec.events.Event]:
        try:
            for event in specdec.speculative(pair, "Once", params=specdec.SamplingParams(8)):
                yield event
                assert dropped.wait(20)
                gc.collect()
        finally:
            ended.set()

    held: list = [specdec.driven(lane())]
    next(held[0])
    held.append(held)
    del held
    dropped.set()
    assert ended.wait(20)


@pytest.mark.parametrize("lane", LANES)
def test_deadline_ends_a_lane(lane: str, tables) -> None:
    """At the time limit a lane keeps what it has written, and its finish reason says so."""
    whole = ids_of(list(lane_of(lane, tables, ZERO, max_new_tokens=200)))
    events = drive(lane_of(lane, tables, ZERO, max_new_tokens=200), max_seconds=0.0)
    assert events[-1].finish_reason == "deadline"
    assert 0 < len(ids_of(events)) < 200
    assert ids_of(events) == whole[: len(ids_of(events))]
    assert ids_of(drive(lane_of(lane, tables, ZERO, max_new_tokens=200), max_seconds=600)) == whole


@pytest.mark.parametrize("through_driven", [True, False])
@pytest.mark.parametrize("lane", LANES)
def test_an_error_in_the_lane_reaches_the_consumer(lane: str, through_driven: bool, tables) -> None:
    """The consumer gets the earlier events and then the error.

    The thread keeps working and random state is put back.
    """
    calls = []

    def fail(*_) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise ZeroDivisionError("third pass")

    state = torch.random.get_rng_state()
    expected = ids_of(list(lane_of(lane, tables, ZERO)))
    handle = tables.target.register_forward_pre_hook(fail)
    seen = []
    with pytest.raises(ZeroDivisionError, match="third pass"):
        events = lane_of(lane, tables, ZERO)
        for batch in specdec.driven(events) if through_driven else ([event] for event in events):
            seen += batch
    handle.remove()
    assert len(rounds_of(seen)) == 2
    assert torch.equal(torch.random.get_rng_state(), state)
    assert ids_of(drive(lane_of(lane, tables, ZERO))) == expected


def test_lanes_may_be_pulled_in_turns(tables) -> None:
    """Two lanes that one consumer pulls in turns both finish."""
    alone = {lane: ids_of(list(lane_of(lane, tables, ZERO))) for lane in LANES}
    lanes = {lane: lane_of(lane, tables, ZERO) for lane in LANES}
    seen: dict[str, list] = {lane: [] for lane in LANES}
    for _ in range(40):
        for lane, events in lanes.items():
            seen[lane] += [event for event in [next(events, None)] if event is not None]
    assert {lane: ids_of(events) for lane, events in seen.items()} == alone
