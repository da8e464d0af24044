"""A race runs lanes one after another, as often as asked, on the same ids and settings."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from fakes import byte_tokenizer, chain, ids_of, noisy_copy, shared_tiny, table_pair, tiny

import specdec
from specdec.engine.policy import Fixed
from specdec.errors import NotNumbers
from specdec.lanes.race import race
from specdec.lanes.table import DEFAULT_KEYS, FREE_DRAFT, LANES, LOOP, Lane, LaneConfig, lane_configs, race_configs
from specdec.measure.metrics import compute_metrics
from specdec.report.recording import Recorder, read_recording

PROMPT = "Once upon a time"
PARAMS = specdec.SamplingParams(max_new_tokens=16, ignore_eos=True)


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 4, layers=3)
    return specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())


def lanes_of(pair: specdec.Pair, **settings) -> list[list]:
    """The events of a race: one list for each lane, in the order of the runs."""
    lanes: list[list] = []
    for batch in race(pair, PROMPT, **{"params": PARAMS} | settings):
        for event in batch:
            if isinstance(event, specdec.Started):
                lanes.append([])
            lanes[-1].append(event)
    return lanes


KEYS = [lane.key for lane in LANES if lane.key != FREE_DRAFT]  # that one needs a grammar


def test_every_lane_runs_under_its_own_name(pair) -> None:
    """Every lane is complete. All lanes write the target's greedy text but the draft alone, which writes its own."""
    lanes = lanes_of(pair, lanes=KEYS, gamma=3)
    assert [(events[0].lane, events[0].gamma) for events in lanes] == [
        ("generate", 0), ("speculative", 3), ("speculative", 0), ("assisted", 3), ("prompt-lookup", 3),
        ("transformers-lookup", 3), ("draft-alone", 0),
    ]  # fmt: skip
    assert all(isinstance(events[-1], specdec.Finished) for events in lanes)
    texts = dict(zip(KEYS, map(ids_of, lanes), strict=True))
    alone = specdec.Pair(target=pair.draft.model, tokenizer=pair.tokenizer)
    assert texts.pop("draft-alone") == ids_of(specdec.generate(alone, PROMPT, params=PARAMS))
    assert set(map(tuple, texts.values())) == {tuple(texts["generate"])}
    assert all(not r.draft for r in lanes[KEYS.index(LOOP.key)][1:-1])
    assert lanes[KEYS.index("prompt-lookup")][0].pair["draft"]["kind"] == "prompt-lookup"


def test_at_gamma_0_the_loop_runs_once(pair) -> None:
    """Speculative decoding at gamma 0 is our loop without a draft, so it runs once."""
    assert list(race_configs(KEYS[:3], 0)) == ["generate", "speculative"]
    assert len(lanes_of(pair, lanes=KEYS[:3], gamma=0)) == 2


@pytest.mark.parametrize("gamma", [0, Fixed(0)])
def test_at_gamma_0_a_lane_under_another_name_is_left_out(pair, gamma) -> None:
    """Prompt lookup at gamma 0 is our loop again, so it is left out unless it is the only lane."""
    assert list(race_configs(KEYS, gamma)) == [
        "generate",
        "speculative",
        "assisted",
        "transformers-lookup",
        "draft-alone",
    ]
    assert list(race_configs(("prompt-lookup", LOOP.key, "speculative"), gamma)) == ["speculative"]
    assert list(race_configs(("generate", "prompt-lookup"), gamma)) == ["generate", "prompt-lookup"]
    assert len(lanes_of(pair, lanes=(*DEFAULT_KEYS, "prompt-lookup"), gamma=gamma)) == 2


def test_a_race_encodes_its_prompt_once(pair, monkeypatch) -> None:
    """The prompt is encoded once, however many lanes, warm-ups and repeats there are."""
    encoded, encode = [], specdec.Pair.encode
    monkeypatch.setattr(
        specdec.Pair, "encode", lambda self, prompt: encoded.append(isinstance(prompt, str)) or encode(self, prompt)
    )
    lanes_of(pair, lanes=KEYS, runs=2)
    assert encoded.count(True) == 1


def test_a_draft_that_ignores_the_grammar_has_a_lane_of_its_own(pair) -> None:
    """Its text is that of the others, and it keeps fewer guesses."""
    end = pair.target.config.vocab_size - 1
    own = specdec.Pair(target=tiny("llama", 4, layers=3, eos=end), draft=pair.draft.model, tokenizer=pair.tokenizer)
    params = specdec.SamplingParams(24, grammar=specdec.Grammar.function(lambda ids: range(2 + len(ids) % 7, end, 7)))
    found = {events[0].lane: events for events in lanes_of(own, params=params, lanes=(*DEFAULT_KEYS[:2], FREE_DRAFT))}
    assert ids_of(found[FREE_DRAFT]) == ids_of(found["generate"])
    kept = [compute_metrics(found[lane]).alpha for lane in (FREE_DRAFT, "speculative")]
    assert kept[0] < kept[1]
    with pytest.raises(specdec.InvalidInput, match="for calls with a grammar, and this one has none"):
        lanes_of(pair, lanes=("generate", FREE_DRAFT))


def test_the_order_rotates_from_run_to_run(pair) -> None:
    lanes = lanes_of(pair, lanes=("generate", "speculative", "speculative:0"), runs=3)
    assert [(events[0].lane, events[0].gamma) for events in lanes] == [
        ("generate", 0), ("speculative", 5), ("speculative", 0),
        ("speculative", 5), ("speculative", 0), ("generate", 0),
        ("speculative", 0), ("generate", 0), ("speculative", 5),
    ]  # fmt: skip


def test_all_lanes_share_one_seed(pair) -> None:
    """A missing seed is drawn once for all lanes, so that the race can be run again unchanged."""
    params = specdec.SamplingParams(max_new_tokens=4, temperature=1.0)
    seeds = [{events[0].params.seed for events in lanes_of(pair, params=params, runs=2)} for _ in range(2)]
    assert len(seeds[0]) == len(seeds[1]) == 1
    assert seeds[0] != seeds[1]


def test_lossy_acceptance_reaches_the_lanes_that_accept(pair) -> None:
    lanes = lanes_of(pair, acceptance="top-k", accept_top_k=4)
    assert [events[0].acceptance for events in lanes] == ["lossless", "top-k", "lossless"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lanes": ("generate", "nobody")}, "no lane 'nobody'"),
        ({"lanes": ()}, "at least one"),
        ({"lanes": ("generate", "generate")}, "each once"),
        ({"runs": 0}, "runs is 0"),
        ({"gamma": "auto", "lanes": ("assisted",)}, "fixed number"),
        ({"gamma": False}, "gamma is False"),
        ({"gamma": 0.0}, "gamma is 0.0"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_does(pair, settings: dict, said: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=said):
        race(pair, PROMPT, params=PARAMS, **settings)


def test_a_pair_without_a_draft_model_has_no_draft_alone(pair) -> None:
    lookup = specdec.Pair(target=pair.target, draft=specdec.PromptLookup(), tokenizer=pair.tokenizer)
    with pytest.raises(specdec.IncompatiblePair, match="no draft model"):
        race(lookup, PROMPT, params=PARAMS, lanes=("draft-alone",))


def test_lanes_run_only_at_lengths_that_they_take() -> None:
    """In a benchmark gamma 0 is the loop for every lane, and lanes with fixed lengths take no auto."""
    assert lane_configs(["generate", "speculative", "assisted"], [0, 4, "auto"]) == (
        ("generate", None), ("speculative", 4), ("speculative", "auto"), ("assisted", 4), LOOP,
    )  # fmt: skip
    assert [config.label for config in (LOOP, LaneConfig("speculative", 4), LaneConfig("generate"))] == [
        "Our loop, no draft", "Speculative, \u03b3 4", "Plain",
    ]  # fmt: skip


def test_a_lane_is_one_row(pair, request) -> None:
    """A toy lane, which decodes with our loop at gamma 1, needs one row of the table to race and to be measured."""
    from specdec.engine.decode import decode
    from specdec.measure.plan import Plan
    from specdec.measure.prompts import PromptItem
    from specdec.measure.summary import summary_rows
    from specdec.measure.trials import trials
    from specdec.report.race_verdict import race_verdict
    from specdec.ui.jobs.race_settings import RaceSettings
    from specdec.ui.script_tables import lane_list

    toy = Lane("toy", "Toy lane", "a toy lane", lambda request, gamma, *acceptance: decode(request, 1), sign="star")
    request.addfinalizer(lambda: LANES.remove(toy))
    LANES.append(toy)

    lanes = lanes_of(pair, lanes=(*DEFAULT_KEYS, "toy"))
    assert lanes[-1][0].lane == "toy" and ids_of(lanes[-1]) == ids_of(lanes[0])
    run = dict(zip(RaceSettings(PROMPT, lanes=(*DEFAULT_KEYS, "toy")).keys, lanes, strict=True))
    assert "Toy lane" in [row[0] for row in race_verdict([run]).lanes["rows"]]
    assert '"label": "Toy lane"' in lane_list()

    plan = Plan(
        (PromptItem("a", "a", PROMPT),), lane_configs(["generate", "toy"], [2]), replace(PARAMS, max_new_tokens=32), 1
    )
    found = [trial for trial in trials(pair, plan) if trial]
    assert [(row["lane"], row["same_text"]) for row in summary_rows(found)] == [("generate", 1), ("toy", 1)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("whose", ["target", "draft"])
def test_a_race_over_broken_numbers_ends_in_their_error(whose: str, temperature: float) -> None:
    """A race whose lanes meet broken numbers ends in their error, as there is no gain to report."""
    table = chain([1, 2, 3, 4, 5, 0])
    table[4] = math.nan
    good = chain([1, 2, 3, 4, 5, 0])
    pair = table_pair(table, good) if whose == "target" else table_pair(good, table)
    params = specdec.SamplingParams(max_new_tokens=40, temperature=temperature, seed=1)
    seen = []
    with pytest.raises(NotNumbers):
        for batch in race(pair, torch.tensor([0]), gamma=3, params=params, lanes=("generate", "speculative")):
            seen += batch
    assert len([event for event in seen if isinstance(event, specdec.Finished)]) == (whose == "draft")


def test_a_verdict_is_made_of_a_race_in_batches_of_kept_events_and_of_a_recording(pair) -> None:
    """The same events give the same verdict, however they come; the runs of a race are told apart by their lanes."""
    params = specdec.SamplingParams(max_new_tokens=12, ignore_eos=True)
    batches = list(specdec.race(pair, "Once upon", gamma=3, params=params, runs=3))
    verdict = specdec.verdict(batches)
    events = list(itertools.chain.from_iterable(batches))
    recorder = Recorder(pair.tokenizer)
    assert specdec.verdict(events) == verdict == specdec.verdict(read_recording(map(recorder.line, events)))
    assert verdict.same and verdict.runs == 3 and len(verdict.lanes["rows"]) == 3
    assert str(verdict).splitlines() == [verdict.sentence, *(note.text for note in verdict.notes)]
    alone = specdec.verdict(specdec.race(pair, "Once upon", gamma=0, params=params))
    assert alone.kind == "no_guesses" and alone.caption == "\u03b3 0, 12 new tokens, greedy"
    lanes = [list(lane) for lane in split(events)]
    sorted_lanes = [event for lane in sorted(lanes, key=lambda lane: (lane[0].lane, lane[0].gamma)) for event in lane]
    assert specdec.verdict(sorted_lanes).runs == 3, "one lane thrice, then the next one thrice"
    cut = specdec.verdict(events[:-3])
    assert cut.notes[0].kind == "stopped" and cut.runs == 2


def test_a_verdict_of_other_events_is_refused_in_a_sentence(pair) -> None:
    params = specdec.SamplingParams(max_new_tokens=4)
    plain = list(specdec.generate(pair, "Once", params=params))
    ours = list(specdec.speculative(pair, "Once", params=params))
    others = list(specdec.speculative(pair, "Twice", params=params))
    for events, said in (
        ([], "there are no events of a whole lane"),
        (plain, "needs the lane speculative; the events are of generate"),
        ([*plain, *others], "differ in prompt, settings"),
        (plain[1:], "there are no events of a whole lane"),
        ([*ours[1:], *plain, *ours], "begin in the middle of a lane"),
        ([*plain, *ours, *specdec.speculative(pair, "Once", gamma=2, params=params)], "differ in .* draft length"),
        ([*plain, *ours, *specdec.speculative(pair, "Once", params=params, acceptance="block")], "acceptance"),
        (5, "The lane is 5"),
    ):
        with pytest.raises(specdec.InvalidInput, match=said):
            specdec.verdict(events)
    with pytest.raises(specdec.InvalidInput, match="tokenizer is 'tok'"):
        specdec.verdict([*plain, *ours], "tok")


def test_a_race_whose_plain_lane_was_cut_compares_nothing(pair) -> None:
    """Not even if the speculative lane ran first and ended."""
    params = specdec.SamplingParams(max_new_tokens=20, ignore_eos=True)
    plain = list(specdec.generate(pair, "Once", params=params))
    ours = list(specdec.speculative(pair, "Once", params=params))
    for events in ([*ours, *plain[:12]], [*plain[:12], *ours]):
        verdict = specdec.verdict(events)
        assert verdict.sentence == "Stopped at 11 of 20 tokens in the plain lane." and verdict.figures is None


def split(events: list) -> list[list]:
    lanes: list[list] = []
    for event in events:
        if isinstance(event, specdec.Started):
            lanes.append([])
        lanes[-1].append(event)
    return lanes
