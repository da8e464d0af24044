"""llama.cpp's server, by streams that were made by hand after its code."""

from __future__ import annotations

import itertools
import json

import pytest

from specdec.errors import InvalidInput, ServerFailed
from specdec.events import SamplingParams
from specdec.servers.answer import Asked, Counts, Step
from specdec.servers.client import Streamed
from specdec.servers.lane import connect, server_lane
from specdec.servers.llama_cpp import LlamaCpp
from specdec.servers.rounds import spans_of
from specdec.servers.tokens import ServerTokens
from tests.servers.exchanges import replayed
from tests.servers.handmade import Pass, as_text, llama_cpp, passes, steps_of

ENGINE = LlamaCpp()
ROUNDS = [(drafted, accepted) for drafted in (0, 1, 3) for accepted in range(drafted + 1)]


def read(streamed):
    return ENGINE.read(streamed, "one", 100)


def sizes_of(answer) -> list[int]:
    return [piece.tokens for piece in answer.pieces]


@pytest.mark.parametrize("old", [False, True])
def test_every_round_is_found(old) -> None:
    for rounds in itertools.product(ROUNDS, repeat=3):
        made = passes(*rounds)
        answer = read(llama_cpp(made, old=old))
        assert answer.steps == steps_of(made)
        assert sizes_of(answer) == [len(each.ids) for each in made]
        assert answer.ids == tuple(i for each in made for i in each.ids)
        assert [span.step for span in spans_of(sizes_of(answer)[1:], answer.steps) if span.step] == list(answer.steps)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_end_of_the_text_cuts_the_last_round(old, cut) -> None:
    for rounds in itertools.product(ROUNDS, repeat=2):
        made = passes(*rounds, (3, 3), cut=cut)
        answer = read(llama_cpp(made, "eos", old=old))
        assert answer.steps == steps_of(made)
        assert sizes_of(answer) == [len(each.ids) for each in made]
        assert answer.finish_reason == "eos"


def test_unsent_tokens_leave_the_rounds_exact_or_unknown() -> None:
    """Up to three tokens in a row are not sent, at every place. What is told is never wrong."""
    exact = 0
    for rounds in itertools.product(ROUNDS, repeat=3):
        made = passes(*rounds)
        ids = [i for each in made for i in each.ids]
        for start in range(len(ids)):
            for end in range(start + 1, min(start + 4, len(ids) + 1)):
                answer = read(llama_cpp(made, unsent=ids[start:end])) if end - start < len(ids) else None
                if answer is None:
                    continue
                assert answer.ids is None or answer.ids == tuple(ids[:start] + ids[end:])
                assert sum(sizes_of(answer)) == len(ids)
                assert answer.steps in (None, steps_of(made))
                exact += answer.steps is not None
    assert exact > 1000  # inside a round nothing is lost


def test_unsent_tokens_inside_a_round() -> None:
    made = passes((5, 4), (5, 2))
    answer = read(llama_cpp(made, unsent=[102, 103]))
    assert answer.steps == (Step(5, 4), Step(5, 2)) and answer.counts == Counts(2, 10, 6)
    assert sizes_of(answer) == [1, 5, 3] and answer.pieces[1].ids is None and answer.pieces[2].ids == (106, 107, 108)


def test_unsent_tokens_where_a_round_may_have_begun() -> None:
    """The unsent token may be the round's first, or one without guesses before it."""
    made = passes((5, 4), (5, 2))
    answer = read(llama_cpp(made, unsent=[106]))
    assert answer.steps is None and answer.counts is None


def test_unsent_tokens_of_versions_that_count_rounds_at_once() -> None:
    assert read(llama_cpp(passes((5, 4), (5, 2)), unsent=[102], old=True)).steps is None


def test_a_replayed_draft_is_a_step_and_a_single_token() -> None:
    """A recurrent model reads the kept tokens again: two passes, one draft, and one token more."""
    made = [Pass(0, 0, (1,)), Pass(4, 2, (2, 3, 4)), Pass(0, 0, (5,))]
    answer = read(llama_cpp(made))
    assert answer.steps == (Step(4, 2),) and sizes_of(answer) == [1, 3, 1]


@pytest.mark.parametrize(("stop_type", "reason"), [("eos", "eos"), ("limit", "length"), ("word", "stop")])
def test_reasons(stop_type, reason) -> None:
    assert read(llama_cpp(passes((3, 1)), stop_type)).finish_reason == reason


def test_a_stream_without_its_end_is_refused() -> None:
    with pytest.raises(ServerFailed, match="without a reason"):
        read(llama_cpp(passes((3, 1)))[:-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predicted_n": 1, "draft_n": 3, "draft_n_accepted": 1}, "contradict"),
        ({"predicted_n": 4, "draft_n": 2, "draft_n_accepted": 3}, "contradict"),
        ({"predicted_n": 4, "draft_n": -1, "draft_n_accepted": 0}, "no count"),
        ({"predicted_n": "4"}, "no count"),
        ({}, "no count"),
        (None, "without timings"),
    ],
)
def test_counts_that_cannot_be(change, message) -> None:
    streamed = llama_cpp(passes((3, 1)))
    streamed[-1] = Streamed(1.0, streamed[-1].record | {"timings": change})
    with pytest.raises(ServerFailed, match=message):
        read(streamed)


def test_more_tokens_than_were_asked_for() -> None:
    with pytest.raises(ServerFailed, match="more than the 2 tokens"):
        ENGINE.read(llama_cpp(passes((3, 3))), "one", 2)


def test_every_sampler_is_named() -> None:
    path, body = ENGINE.request(Asked("a", SamplingParams(max_new_tokens=7)), "m")
    assert path == "/completion" and body["temperature"] == 0 and body["n_predict"] == 7
    assert body["samplers"] == ["temperature", "top_k", "top_p", "min_p"]
    assert body["seed"] == -1 and body["cache_prompt"] is False and body["stop"] == []
    body = ENGINE.request(Asked("a", SamplingParams(temperature=1.0, seed=2**40 + 3)), "m")[1]
    assert 0 <= body["seed"] < 2**32 - 1


def test_a_window_of_penalties_is_no_repetition_penalty() -> None:
    with pytest.raises(InvalidInput, match="repetition_penalty"):
        ENGINE.request(Asked("a", SamplingParams(repetition_penalty=1.2)), "m")


def exchange(path: str, answer, body=None) -> dict:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    kind = "text/event-stream" if isinstance(answer, str) else "application/json"
    method = "GET" if body is None else "POST"
    return {"method": method, "path": path, "body": body, "status": 200, "type": kind, "text": text}


PAGES = [
    exchange("/v1/models", {"object": "list", "data": [{"id": "gguf", "owned_by": "llamacpp"}]}),
    exchange("/props", {"build_info": "b9251-e2b129e1b"}),
    exchange("/slots", [{"id": 0, "speculative": True}]),
]


def test_a_chat_goes_through_the_servers_own_template() -> None:
    params = SamplingParams(max_new_tokens=9)
    chat = ({"role": "user", "content": "Hi"},)
    body = ENGINE.request(Asked("<user>Hi", params), "gguf")[1]
    ids = [100, 101, 102, 103, 104, 105]
    pieces = [{"id": i, "piece": f" {i}"} for i in ids[:-1]] + [{"id": 105, "piece": [32, 0xC3]}]
    spelled = {"model": "gguf", "content": "".join(f" {i}" for i in ids), "add_special": False}
    tokenize = {"model": "gguf", "content": "<user>Hi", "add_special": True, "parse_special": True}
    exchanges = [
        *PAGES,
        exchange("/apply-template", {"prompt": "<user>Hi"}, {"model": "gguf", "messages": list(chat)}),
        exchange("/tokenize", {"tokens": [7, 8]}, tokenize),
        exchange("/completion", as_text(llama_cpp(passes((3, 3), (2, 0))), done=False), body),
        exchange("/tokenize", {"tokens": pieces}, spelled | {"parse_special": False, "with_pieces": True}),
    ]
    with replayed(exchanges) as url, connect("one", url).client:
        server = connect("one", url)
        assert (server.engine.name, server.version, server.speculation) == ("llama.cpp", "b9251-e2b129e1b", True)
        started, *rounds, finished = server_lane(server, Asked(chat, params), ServerTokens(), "speculative")
        server.client.close()
    assert started.prompt_ids == (7, 8) and started.pair["server"]["exact"] == "rounds"
    assert [len(each.draft) for each in rounds] == [0, 3, 2]
    assert [each.committed_ids for each in rounds] == [(100,), (101, 102, 103, 104), (105,)]
    assert finished.finish_reason == "length"
