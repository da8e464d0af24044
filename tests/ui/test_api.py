"""The page's endpoints, called by a program as ``examples/client.py`` does."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from gradio_client import Client
from gradio_client.exceptions import AppError
from test_examples import example

import specdec
from specdec.lanes.table import LANES, Lane
from specdec.report import recording
from specdec.ui.page import Page

PROMPT = "Once upon a time"
pytestmark = pytest.mark.xdist_group("api")  # one server


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    from specdec.models.loading import plan_pair
    from specdec.models.pair_slot import Slot
    from specdec.ui.page import build

    torch.set_num_threads(1)
    page = build(Slot(plan_pair(None, None)))
    yield page
    page.close()


@pytest.fixture(scope="module")
def address(page: Page) -> str:
    from specdec.ui.server.launch import serve

    return serve(page, quiet=True)


@pytest.fixture(scope="module")
def client(address: str) -> Client:
    return Client(address, verbose=False)


def decoded(client: Client, **settings) -> list:
    lines = [line for part in client.submit(PROMPT, api_name="/decode", **settings) for line in part.splitlines()]
    return list(recording.read_recording(lines))


@pytest.mark.full
def test_the_example_runs(address: str, capsys) -> None:
    example("client").main(address)
    out = capsys.readouterr().out
    assert "/decode: 48 tokens" in out and "plain generate" in out.partition("/race: ")[2]


@pytest.mark.parametrize("lane", ["speculative", "generate", "assisted"])
def test_decode_streams_the_recording(client: Client, lane: str) -> None:
    """/decode streams the events of the same call in Python."""
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=24)
    events = decoded(client, max_new_tokens=24, lane=lane)
    settings = {} if lane == "generate" else {"gamma": 5}
    expected = specdec.collect(getattr(specdec, lane)(pair, PROMPT, params=params, **settings))
    assert events[0].lane == lane and isinstance(events[-1], specdec.Finished)
    assert specdec.collect(events).token_ids == expected.token_ids


def test_every_lane_of_the_table_decodes(client: Client, request: pytest.FixtureRequest) -> None:
    """Every row of the lane table can be decoded, and its events have its name."""
    from specdec.engine.decode import decode

    toy = Lane("toy", "Toy lane", "a toy lane", lambda request, gamma, *acceptance: decode(request, 1))
    request.addfinalizer(lambda: LANES.remove(toy))
    LANES.append(toy)
    asked = {"gamma": 2, "max_new_tokens": 4, "grammar": "regex:[a-z ]+"}  # one lane is for grammars alone
    started = [decoded(client, lane=lane.key, **asked)[0] for lane in LANES]
    assert [event.lane for event in started] == [lane.name for lane in LANES]


def test_a_program_is_told_of_every_lane(client: Client) -> None:
    endpoints = client.view_api(return_format="dict")["named_endpoints"]
    for name, parameter, lanes in (
        ("/decode", "lane", LANES), ("/race", "further_lanes", [lane for lane in LANES if not lane.race])
    ):  # fmt: skip
        assert all(f"{lane.key} ({lane.choice})" in endpoints[name]["description"] for lane in lanes), parameter


def test_every_setting_of_decode_arrives(client: Client) -> None:
    settings = {
        "max_new_tokens": 6, "temperature": 0.7, "top_k": 9, "top_p": 0.8, "min_p": 0.01, "repetition_penalty": 1.2,
        "seed": 5, "stop": ["zebra", "."], "ignore_eos": True,
    }  # fmt: skip
    started = decoded(client, gamma="auto", **settings)[0]
    assert started.params == specdec.SamplingParams(**settings) and "auto" in str(started.gamma)


def test_a_text_of_an_endpoint_obeys_its_grammar(client: Client) -> None:
    schema = '{"enum": ["a cat", "a dog"]}'
    events = decoded(client, grammar=f"json-schema:{schema}", max_new_tokens=12)
    assert events[0].params.grammar == specdec.Grammar("json-schema", schema)
    said = client.predict(PROMPT, grammar="regex:(red|green)", max_new_tokens=12, api_name="/race")
    assert said["results"]["speculative"]["text"].removesuffix("<|endoftext|>") in ("red", "green")
    with pytest.raises(Exception, match="cannot be read as a regular expression"):
        client.predict(PROMPT, grammar="regex:(((", api_name="/race")


def test_race_returns_the_verdict(client: Client) -> None:
    said = client.predict(PROMPT, max_new_tokens=12, runs=2, further_lanes=["assisted"], api_name="/race")
    assert said["runs"] == 2 and said["same"] and len(said["figures"]) == 4
    assert [row[0] for row in said["lanes"]["rows"]] == [
        "Plain", "Speculative", "Our loop, no draft", "transformers assisted",
    ]  # fmt: skip
    json.dumps(said)


def test_race_returns_what_each_lane_wrote(client: Client) -> None:
    """Text, counts, rates and seconds of each lane of the run that is shown. Its rates give the verdict's gain."""
    said = client.predict(PROMPT, max_new_tokens=12, runs=2, further_lanes=["assisted"], api_name="/race")
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=12)
    expected = specdec.collect(specdec.speculative(pair, PROMPT, params=params), pair.tokenizer)
    assert {"generate", "speculative", "speculative:0", "assisted"} == set(said["results"])
    for result in said["results"].values():
        assert (result["text"], result["finish_reason"]) == (expected.text, "length")
        assert result["metrics"]["new_tokens"] == 12 and result["metrics"]["prefill_seconds"] > 0
    plain, lane = (said["results"][name]["metrics"]["tokens_per_second"] for name in ("generate", "speculative"))
    assert lane / plain == pytest.approx(said["gain"])
    assert said["results"]["speculative"]["metrics"].keys() == {field.name for field in fields(specdec.Metrics)}


@pytest.mark.parametrize("name", ["/decode", "/race"])
def test_a_stop_string_ends_the_text(client: Client, name: str) -> None:
    settings = {"max_new_tokens": 40, "stop": ["zebra", "."], "api_name": name}
    if name == "/decode":
        *_, last = decoded(client, max_new_tokens=40, stop=["zebra", "."])
        assert last.finish_reason == "stop"
    else:
        results = client.predict(PROMPT, **settings)["results"].values()
        assert all(lane["text"].endswith(".") and lane["finish_reason"] == "stop" for lane in results)


@pytest.mark.parametrize("name", ["/decode", "/race"])
def test_chat_sends_a_message(client: Client, page: Page, monkeypatch, name: str) -> None:
    """The prompt goes through the chat template of the target's tokenizer. A target without one refuses it."""
    with pytest.raises(AppError, match="the target's tokenizer has no chat template; write the prompt as text"):
        client.predict(PROMPT, chat=True, api_name=name)
    tokenizer = page.jobs.slot.pair.tokenizer
    monkeypatch.setattr(tokenizer, "chat_template", "{% for m in messages %}Two {{ m.content }}:{% endfor %}")
    pair = specdec.load_pair()
    if name == "/decode":
        started = decoded(client, chat=True, max_new_tokens=4)[0]
        ids = pair.tokenizer(f"Two {PROMPT}:", add_special_tokens=False).input_ids
        assert started.prompt_ids == tuple(ids)
    else:
        texts = [
            {
                lane["text"]
                for lane in client.predict(words, chat=chat, max_new_tokens=12, api_name=name)["results"].values()
            }
            for words, chat in ((PROMPT, True), (f"Two {PROMPT}:", False), (PROMPT, False))
        ]
        assert texts[0] == texts[1] != texts[2]


def test_a_program_is_told_of_every_parameter(client: Client) -> None:
    """Gradio's description and the table of the guide have each parameter of both endpoints."""
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
    table = guide.partition("| Parameter | Of |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    for name, endpoint in client.view_api(return_format="dict")["named_endpoints"].items():
        parameters = [parameter["parameter_name"] for parameter in endpoint["parameters"]]
        described = re.findall(r"^ {4}(\w+): ", endpoint["description"].partition("Returns:")[0], re.MULTILINE)
        assert described == parameters and parameters[-3:] == ["chat", "stop", "grammar"]
        listed = {
            word for names, of in rows if of.strip() in ("both", f"`{name}`") for word in re.findall(r"\w+", names)
        }
        assert listed == set(parameters)


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("/decode", {"gamma": 40}, "gamma is 40; give 0 to 16"),
        ("/decode", {"gamma": False}, "gamma is False"),
        ("/decode", {"max_new_tokens": 5000}, "max_new_tokens is 5000; .*at most 2048"),
        ("/decode", {"max_new_tokens": 10**300}, "max_new_tokens is 10+[.]+0+; .*at most 2048"),
        ("/race", {"max_new_tokens": 10**300}, "max_new_tokens is 10+[.]+0+; .*at most 2048"),
        ("/race", {"further_lanes": ["assisted"] * 100}, "further_lanes has 100 names"),
        ("/race", {"temperature": -1}, "temperature is -1"),
        ("/race", {"gamma": 40}, "^gamma is 40; give 0 to 16"),
        ("/race", {"runs": 26}, "runs is 26; .*at most 25"),
        ("/race", {"runs": "2"}, "runs is '2'"),
        ("/race", {"further_lanes": "assisted"}, "further_lanes is 'assisted'"),
        ("/decode", {"lane": "nobody"}, "no lane 'nobody'; choose from generate, "),
        ("/race", {"further_lanes": ["nobody"]}, "no lane 'nobody'"),
        ("/race", {"further_lanes": [["assisted"]]}, "further_lanes is .*; give a list of strings"),
        *(
            (name, {setting: value}, f"{setting} is .*; give {wanted}")
            for name in ("/decode", "/race")
            for setting, wanted, values in (
                ("chat", "true or false", ("true", 1, None, [True])),
                ("stop", "a list of strings", ("end", 5, False, {"a": "b"}, ["a", 5], ["a", None], [["a"]], [[[]]])),
                ("stop", "strings that are not empty", ([""], ["a", ""])),
            )
            for value in values
        ),
    ],
)
def test_a_refusal_is_a_sentence(client: Client, name: str, settings: dict, said: str) -> None:
    with pytest.raises(AppError, match=said):
        client.predict(PROMPT, api_name=name, **settings)


@pytest.mark.parametrize("name", ["/decode", "/race"])
def test_only_text_is_a_prompt(client: Client, name: str) -> None:
    """Chat messages are refused, as they would bypass the limit of a public page."""
    with pytest.raises(AppError, match="prompt is"):
        client.predict([{"role": "user", "content": "hi"}], api_name=name)


@pytest.mark.parametrize("name", ["/decode", "/race"])
def test_a_client_that_leaves_ends_its_work(client: Client, name: str) -> None:
    """A cancelled call frees the machine for the next one, long before it would have ended."""
    settings = {"ignore_eos": True} if name == "/decode" else {"runs": 20}
    job = client.submit(PROMPT, max_new_tokens=2000, api_name=name, **settings)
    next(iter(job))
    job.cancel()
    began = time.monotonic()
    client.predict(PROMPT, max_new_tokens=4, api_name="/decode")
    assert time.monotonic() - began < 30  # the whole call would take minutes


def test_the_page_itself_is_no_endpoint(client: Client) -> None:
    assert set(client.view_api(return_format="dict")["named_endpoints"]) == {"/decode", "/race"}
