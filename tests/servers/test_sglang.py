"""SGLang, by streams that were made by hand after its code."""

from __future__ import annotations

import itertools

import pytest

from specdec.errors import ServerFailed
from specdec.events import SamplingParams
from specdec.servers.answer import Asked, Counts
from specdec.servers.engines import engine_of
from specdec.servers.probe import Probe
from specdec.servers.sglang import SGLang
from tests.servers.handmade import passes, sglang, steps_of

ENGINE = SGLang()
KEPT = [(3, accepted) for accepted in range(4)]


def read(streamed):
    return ENGINE.read(streamed, "one", 100)


def test_every_round_is_found_where_each_step_is_a_chunk() -> None:
    for rounds in itertools.product(KEPT, repeat=3):
        made = passes(*rounds)
        answer = read(sglang(made))
        assert answer.steps == steps_of(made) and answer.most_guesses == 3
        assert answer.counts == Counts(3, 9, sum(accepted for _, accepted in rounds))
        assert answer.prompt_ids == (1, 2, 3, 4)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_end_of_the_text_cuts_the_last_round(cut) -> None:
    for rounds in itertools.product(KEPT, repeat=2):
        made = passes(*rounds, (3, 3), cut=cut)
        answer = read(sglang(made, finish="stop"))
        assert answer.steps == steps_of(made) and answer.finish_reason == "eos"


@pytest.mark.parametrize("interval", [2, 3])
def test_merged_chunks_leave_the_sums(interval) -> None:
    for rounds in itertools.product(KEPT, repeat=4):
        answer = read(sglang(passes(*rounds), interval))
        assert answer.steps is None
        assert answer.counts == Counts(4, 12, sum(accepted for _, accepted in rounds))


def test_a_number_of_guesses_that_changes_leaves_the_sums() -> None:
    answer = read(sglang(passes((3, 1), (3, 2)), proposed=5))
    assert answer.steps is None and answer.most_guesses is None and answer.counts == Counts(2, 5, 3)


def test_steps_without_guesses_leave_the_sums() -> None:
    """Chunks and steps are then not one to one."""
    answer = read(sglang(passes((3, 1), (0, 0), (3, 2))))
    assert answer.steps is None and answer.counts == Counts(2, 6, 3)


def test_a_histogram_of_other_steps_leaves_the_sums() -> None:
    streamed = sglang(passes((3, 1), (3, 2)))
    streamed[-2].record["sglext"]["spec_tokens_details"]["spec_correct_drafts_histogram"] = [1, 0, 0, 1]
    assert read(streamed).steps is None


def test_counts_that_contradict_each_other_are_refused() -> None:
    streamed = sglang(passes((3, 1), (3, 2)))
    streamed[-2].record["sglext"]["spec_tokens_details"]["spec_num_correct_drafts"] = 7
    with pytest.raises(ServerFailed, match="contradict"):
        read(streamed)


def test_versions_that_tell_nothing() -> None:
    streamed = [each for each in sglang(passes((3, 1))) if "sglext" not in each.record]
    answer = read(streamed)
    assert answer.steps is None and answer.counts is None and answer.exact == "speed"


def test_a_stop_string_is_no_end_of_text() -> None:
    streamed = sglang(passes((3, 1)), finish="stop")
    choices = [choice for each in streamed for choice in each.record["choices"]]
    choices[-1]["matched_stop"] = "park"
    assert read(streamed).finish_reason == "stop"


@pytest.mark.parametrize(
    ("pages", "version", "speculation", "in_order"),
    [
        ({"/server_info": [{"version": "0.6.1", "speculative_algorithm": None}]}, "0.6.1", False, True),
        ({"/get_server_info": [{"version": "0.5.9", "speculative_algorithm": "EAGLE3"}]}, "0.5.9", True, True),
        ({"/server_info": [{"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 8}]}, None, True, False),
        ({"/server_info": [{"speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}]}, None, True, True),
        ({}, None, None, True),
    ],
)
def test_what_it_tells_of_itself(pages, version, speculation, in_order) -> None:
    probe = Probe("m", "sglang", pages)
    engine, found = engine_of(probe)
    assert engine.name == "SGLang" and found == version
    assert (engine.speculation(probe), engine.in_order(probe)) == (speculation, in_order)


def test_every_setting_is_named() -> None:
    path, body = ENGINE.request(Asked("a", SamplingParams(max_new_tokens=7)), "m")
    assert path == "/v1/completions" and body["top_k"] == -1 and body["temperature"] == 0 and body["min_p"] == 0
    assert body["return_token_ids"] and body["return_spec_tokens_details"]
