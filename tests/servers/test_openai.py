"""Servers that speak OpenAI's protocol and tell no more: text and speed."""

from __future__ import annotations

import json

import pytest

from specdec.errors import BadSetting, ServerFailed
from specdec.events import SamplingParams
from specdec.servers.answer import Asked
from specdec.servers.client import Client, Streamed, base_of
from specdec.servers.engines import engine_of
from specdec.servers.lane import Server, connect, server_lane
from specdec.servers.openai import OpenAI
from specdec.servers.probe import Probe
from specdec.servers.tokens import ServerTokens
from tests.servers.exchanges import send, serving

ENGINE = OpenAI()
WORDS = [" a", " little", " girl", " named", " Lily", "."]


def completion(words, finish="length", usage=None) -> list[dict]:
    records = [{"choices": [{"index": 0, "text": word}]} for word in words]
    records.append({"choices": [{"index": 0, "text": "", "finish_reason": finish}]})
    return records if usage is None else [*records, {"choices": [], "usage": {"completion_tokens": usage}}]


def chat(words, name="content") -> list[dict]:
    records = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    records += [{"choices": [{"index": 0, "delta": {name: word}}]} for word in words]
    return [*records, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def read(records, most=40):
    return ENGINE.read([Streamed(0.1 * at, record) for at, record in enumerate(records, start=1)], "one", most)


def lane_of(records, asked=None) -> tuple[list, ServerTokens]:
    class Silent:
        name = "one"

        def text(self, *_):
            return None

        def stream(self, *_):
            return (Streamed(0.1 * at, record) for at, record in enumerate(records, start=1))

    tokens = ServerTokens()
    asked = asked or Asked("Once upon a time", SamplingParams(max_new_tokens=40))
    return list(server_lane(Server(Silent(), ENGINE, "m", None, None), asked, tokens, "speculative")), tokens


def text_of(events, tokens) -> str:
    return b"".join(tokens(i) for each in events[1:-1] for i in each.committed_ids).decode()


def test_a_piece_is_a_token_where_nothing_else_is_told() -> None:
    events, tokens = lane_of(completion(WORDS))
    started, *rounds, finished = events
    assert text_of(events, tokens) == "".join(WORDS) and [len(each.committed_ids) for each in rounds] == [1] * 6
    assert started.pair["server"] | {"model": ""} == {
        "engine": ENGINE.name, "version": None, "model": "", "speculation": None, "guesses": None, "exact": "speed",
        "ids": False,
    }  # fmt: skip
    assert all(each.draft is None and each.token_id is None for each in rounds[1:])
    assert [each.elapsed_seconds for each in rounds] == pytest.approx([0.1 * at for at in range(1, 7)])
    assert finished.finish_reason == "length" and finished.elapsed_seconds == pytest.approx(0.7)


@pytest.mark.parametrize("usage", [6, 7, 12, 23])
def test_the_sum_of_tokens_is_the_servers_own(usage) -> None:
    events, tokens = lane_of(completion(WORDS, usage=usage))
    assert sum(len(each.committed_ids) for each in events[1:-1]) == usage
    assert text_of(events, tokens) == "".join(WORDS)


def test_equal_texts_have_equal_ids() -> None:
    answers = [read(completion(WORDS)) for _ in range(2)]
    assert answers[0].text == answers[1].text == "".join(WORDS) and answers[0].ids is None


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning"])
def test_a_chat_with_its_thoughts(name) -> None:
    answer = read(chat(WORDS, name))
    assert answer.text == "".join(WORDS) and len(answer.pieces) == 6 and answer.finish_reason == "eos"


def test_a_thought_under_both_names_counts_once() -> None:
    records = chat(["a"])
    records[1]["choices"][0]["delta"] = {"reasoning": "hm", "reasoning_content": "hm", "content": None}
    assert read(records).text == "hm"


@pytest.mark.parametrize(
    ("finish", "more", "reason"),
    [
        ("length", {}, "length"),
        ("stop", {}, "eos"),
        ("stop", {"stop_reason": "park"}, "stop"),
        ("stop", {"stop_reason": 2}, "eos"),
        ("stop", {"matched_stop": "park"}, "stop"),
        ("eos_token", {}, "eos"),
        ("stop_sequence", {}, "stop"),
    ],
)
def test_how_texts_end(finish, more, reason) -> None:
    records = completion(WORDS, finish)
    records[-1]["choices"][0] |= more
    assert read(records).finish_reason == reason


def test_what_is_asked() -> None:
    """Only fields of OpenAI's own protocol, because some servers refuse others."""
    params = SamplingParams(max_new_tokens=9, temperature=0.5, top_p=0.9, seed=3, stop=("x",))
    path, body = ENGINE.request(Asked("Once", params), "m")
    assert path == "/v1/completions"
    assert body == {
        "model": "m", "prompt": "Once", "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["x"],
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    path, body = ENGINE.request(Asked(({"role": "user", "content": "Hi"},), SamplingParams()), "m")
    assert path == "/v1/chat/completions" and body["messages"] == [{"role": "user", "content": "Hi"}]
    assert body["temperature"] == 0 and "top_p" not in body


@pytest.mark.parametrize("setting", [{"top_k": 5}, {"min_p": 0.1}, {"ignore_eos": True}, {"repetition_penalty": 1.1}])
def test_settings_that_it_may_not_know_are_refused(setting) -> None:
    with pytest.raises(BadSetting, match=f"^{next(iter(setting))} is set"):
        ENGINE.request(Asked("Once", SamplingParams(temperature=1.0, **setting)), "m")


@pytest.mark.parametrize(
    ("probe", "name", "version"),
    [
        (Probe("m", "vllm", {"/version": [{"version": "0.32.0"}]}), "vLLM", "0.32.0"),
        (Probe("m", "", {}, {"vllm:num_requests_running": 0.0}), "vLLM", None),
        (Probe("m", "llamacpp", {}), "llama.cpp", None),
        (Probe("m", "someone", {"/props": [{"build_info": "b9251"}]}), "llama.cpp", "b9251"),
        (Probe("m", "tensorrt_llm", {"/version": [{"version": "1.2"}]}), ENGINE.name, None),
        (Probe("m", "library", {}), ENGINE.name, None),
    ],
)
def test_engines_are_recognised_by_their_own_words(probe, name, version) -> None:
    engine, found = engine_of(probe)
    assert (engine.name, found) == (name, version)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://a.example/v1/", "https://a.example"),
        (" http://[::1]:8/some/v1 ", "http://[::1]:8/some"),
        ("http://b\u00fccher.example", "http://xn--bcher-kva.example"),
        ("http://a.example/\u00fc", "http://a.example/%C3%BC"),
        ("http://a.example:80", "http://a.example"),
        ("https://a.example:443/v1", "https://a.example"),
        ("https://a.example:80", "https://a.example:80"),
    ],
)
def test_addresses(url, base) -> None:
    assert base_of(url) == base


def test_a_key_is_sent_and_shown_nowhere() -> None:
    seen = []

    def answer(handler, body) -> None:
        seen.append(handler.headers.get("Authorization"))
        said = f"wrong key {handler.headers.get('Authorization')}"  # as some servers repeat it
        send(handler, 401, "application/json", json.dumps({"error": said}).encode())

    with serving(answer) as url:
        sentence = (
            "status 401: wrong key Bearer \u2026. Set its key in the environment variable SPECDEC_KEY_MY_ONE, and name"
        )
        with pytest.raises(ServerFailed, match=sentence) as caught:
            connect("my-one", url, key="secret-1")
    assert set(seen) == {"Bearer secret-1"} and "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="characters that no key has"):
        Client("one", "http://127.0.0.1:1", "a\nb")


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ServerFailed, match="The server one cannot be reached"):
        connect("one", "http://127.0.0.1:1")
