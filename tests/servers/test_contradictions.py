"""Servers that contradict themselves or each other: no figure and no sentence rests on what cannot be true."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import specdec
from specdec.errors import InvalidInput, ServerFailed
from specdec.events import Finished, SamplingParams, Started
from specdec.measure.metrics import compute_metrics
from specdec.measure.plan import Plan
from specdec.measure.prompts import Choice, PromptItem
from specdec.measure.result import LaneEvents
from specdec.report.court import finding_sentence
from specdec.report.load import load_rows, load_verdict
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import Recorder
from specdec.servers import deadlines
from specdec.servers.answer import Answer, Asked, Counts, Piece, Step, require_one_prompt
from specdec.servers.bench import server_trials, servers_plan
from specdec.servers.client import Streamed
from specdec.servers.court import Drawn, draws, greedy_court, samples_of
from specdec.servers.lane import Server, server_lane
from specdec.servers.load import LoadRun, _Call, warmed_up
from specdec.servers.openai import OpenAI
from specdec.servers.probe import Probe, difference, probe
from specdec.servers.race import race_on_servers
from specdec.servers.sglang import SGLang
from specdec.servers.tokens import ServerTokens
from specdec.servers.vllm import COUNTERS, Vllm

GREEDY = Asked("hi", SamplingParams(max_new_tokens=64), 5.0)
WORDS = [" a", " little", " girl"]


def answer(
    words: Sequence[str], ids: Sequence[int] | None = None, prompt: tuple[int, ...] | None = None, **more: Any
) -> Answer:
    """A word in each piece, 10 ms apart."""
    told = [None] * len(words) if ids is None else [(i,) for i in ids]
    pieces = [Piece(0.01 * at, word, its) for at, (word, its) in enumerate(zip(words, told, strict=True), start=1)]
    return Answer(prompt, tuple(pieces), "length", 0.01 * len(words), **more)


def speller(name: str, tokens: dict[int, str], told: Callable[[Asked], Answer], engine: Any = None) -> Server:
    """A server that answers so, and spells a text by its own vocabulary."""

    class Telling(OpenAI):
        def token_bytes(self, client, model, text):
            return [(i, word.encode()) for i, word in tokens.items() if word in text]

    class Ready(Server):
        def ask(self, asked: Asked) -> Answer:
            return told(asked)

    return Ready(SimpleNamespace(name=name, json=lambda *_: None), engine or Telling(), name, None, None)  # type: ignore[arg-type]


def race(*servers: Server) -> tuple[LaneEvents, Callable[[int], str]]:
    tokens = ServerTokens()
    lanes = dict(zip(("generate", "speculative"), servers, strict=True))
    return {lane: list(server_lane(each, GREEDY, tokens, lane)) for lane, each in lanes.items()}, Recorder(
        tokens
    ).text_of


def text_of(events: Sequence[Any], spell: Callable[[int], str]) -> str:
    return "".join(spell(i) for each in events[1:-1] for i in each.committed_ids)


def read(records: Sequence[dict], most: int = 64) -> Answer:
    return OpenAI().read([Streamed(0.1 * at, record) for at, record in enumerate(records, start=1)], "one", most)


def completion(*texts: str, **usage: Any) -> list[dict]:
    records: list[dict] = [{"choices": [{"index": 0, "text": text}]} for text in texts]
    records.append({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
    return [*records, {"choices": [], "usage": usage}]


def test_one_id_for_two_words_is_shown_as_each_server_wrote_it() -> None:
    one = speller("plain", {7: "apple", 8: " tart"}, lambda _: answer(["apple", " tart"], [7, 8]))
    two = speller("spec", {7: "zebra", 8: " tart"}, lambda _: answer(["zebra", " tart"], [7, 8]))
    run, spell = race(one, two)
    assert [text_of(lane, spell) for lane in run.values()] == ["apple tart", "zebra tart"]
    verdict = race_verdict([run], text_of=spell)
    assert not verdict.same and "same" not in {figure["name"] for figure in verdict.figures or ()}
    said = " ".join(verdict.below)
    assert "First difference at character 1" in said and "name different models (plain and spec)" in said


def test_a_server_that_spells_single_ids_only_is_asked_where_its_text_contradicts_them() -> None:
    def lone(name: str, words: dict[int, str]) -> Server:
        def page(path: str, body: dict, _: float) -> dict | None:
            return {"text": "".join(words[i] for i in body["tokens"])} if path == "/detokenize" else None

        server = speller(name, {}, lambda _: answer(list(words.values()), list(words)), SGLang())
        server.client.json = page  # type: ignore[method-assign]
        return server

    run, spell = race(lone("plain", {7: "apple", 8: " tart"}), lone("spec", {7: "zebra", 8: " tart"}))
    assert [text_of(lane, spell) for lane in run.values()] == ["apple tart", "zebra tart"]
    assert not race_verdict([run], text_of=spell).same


@pytest.mark.parametrize("spelled", [True, False])
def test_ids_that_nobody_spells_stay_ids(spelled) -> None:
    """A gateway may pass on the calls alone. Nothing is known then, so nothing is contradicted, in any run."""
    words = {7: "a", 8: " b"} if spelled else {}
    both = [speller(name, words, lambda _: answer(["a", " b"], [7, 8], (5,))) for name in ("plain", "spec")]
    tokens = ServerTokens()
    for _ in range(3):
        for each in both:
            started, *_ = server_lane(each, GREEDY, tokens, "speculative")
            assert isinstance(started, Started) and started.pair["server"]["ids"]


def test_a_server_is_asked_once_for_each_id() -> None:
    """SGLang spells single ids only, and a parser of thoughts leaves tokens out of the text."""
    asked: list[int] = []

    def page(path: str, body: dict, _: float) -> dict | None:
        asked.extend(body["tokens"][:1])
        return {"text": " w" * len(body["tokens"])} if path == "/detokenize" else None

    server = speller("one", {}, lambda _: answer([" w", "", " w"], [7, 9, 8]), SGLang())
    server.client.json = page  # type: ignore[method-assign]
    tokens = ServerTokens()
    counts = []
    for _ in range(4):
        list(server_lane(server, GREEDY, tokens, "speculative"))
        counts.append(len(asked))
    assert counts[1] == counts[2] == counts[3]


def test_a_token_that_ends_a_text_is_no_other_vocabulary() -> None:
    both = [speller(name, {7: "a", 8: " b"}, lambda _: answer(["a", " b", ""], [7, 8, 2])) for name in ("m", "m")]
    run, spell = race(*both)
    verdict = race_verdict([run], text_of=spell)
    assert verdict.same and verdict.figures and verdict.figures[-1]["value"] == "3 of 3"


def test_prompts_that_are_read_as_other_tokens_are_refused() -> None:
    told = {"plain": answer(WORDS, [1, 2, 3], (5, 6)), "spec": answer(WORDS, [1, 2, 3], (9, 5, 6))}
    with pytest.raises(ServerFailed, match=r"plain and spec read the prompt as other tokens \(2 and 3 of them\)"):
        require_one_prompt(told)
    require_one_prompt(told | {"spec": answer(WORDS)})  # it does not tell
    with pytest.raises(ServerFailed, match="read the prompt as other tokens"):
        list(greedy_court(*[speller(name, {}, lambda _, its=its: its) for name, its in told.items()], [("a", GREEDY)]))


def court(mine: Answer, theirs: Answer, likely: Sequence[tuple[int, float]] = ()) -> Any:
    engine = SimpleNamespace(likely=lambda *_: list(likely))
    plain, other = (speller(name, {}, lambda _, its=its: its, engine) for name, its in (("p", mine), ("s", theirs)))
    (found,) = greedy_court(plain, other, [("a", GREEDY)])
    return found


def test_a_plain_server_that_leaves_its_own_choice_accuses_nobody() -> None:
    found = court(answer(WORDS, [77, 2, 3], (5,)), answer(WORDS, [8, 2, 3], (5,)), [(8, -0.01), (50, -5.5)])
    assert (found.verdict, found.rank) == ("unknown", 1)
    said = "p left the token that it tells as its own clear choice, and s wrote that."
    assert finding_sentence(found, "p", "s").endswith(said)


def test_equal_ids_of_other_words_are_not_the_same_text() -> None:
    found = court(answer(["apple"], [7]), answer(["zebra"], [7]))
    told = [answer([words], [7], (5,)) for words in ("apple", "<think>apple")]
    assert court(*told).verdict == "same", "one tokenizer read the prompt, so the ids are one model's"
    assert (found.verdict, found.at, found.ids) == ("unknown", 0, False)
    assert court(answer(["apple"], [7]), answer([" apple"], [7])).verdict == "same", "a space in front may be left out"


def test_empty_texts_are_texts_in_a_court() -> None:
    empty = read([{"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}])
    assert court(empty, empty).verdict == "same"
    found = court(empty, answer(WORDS))
    assert (found.at, found.plain, found.other) == (0, "", " a little girl")


def test_more_tokens_than_were_asked_for_are_refused() -> None:
    with pytest.raises(ServerFailed, match="says that it wrote 100,000 tokens; 64 were asked for at most"):
        read(completion(*WORDS, completion_tokens=100_000))


def test_parts_of_a_token_are_joined_to_the_sum_that_is_told() -> None:
    """The first token came with its first part."""
    found = read(completion(*"abcdefgh", completion_tokens=3))
    assert found.sizes == [1, 1, 1] and found.text == "abcdefgh"
    assert [found.pieces[at].seconds for at in (0, -1)] == pytest.approx([0.1, 0.8])


def chat(field: str, count: int, **usage: Any) -> list[dict]:
    """A chat whose words come under ``field``, one an event."""
    records: list[dict] = [{"choices": [{"index": 0, "delta": {field: f" w{at}"}}]} for at in range(count)]
    records.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*records, {"choices": [], "usage": usage}]


def thoughts(tokens: int) -> dict:
    return {"completion_tokens_details": {"reasoning_tokens": tokens}}


@pytest.mark.parametrize(
    ("records", "tokens"),
    [
        (chat("content", 10, completion_tokens=50, **thoughts(40)), 10),  # not sent
        (chat("reasoning_content", 10, completion_tokens=50, **thoughts(45)), 50),  # sent, in pieces of several
        (chat("content", 20, completion_tokens=20, **thoughts(18)), 20),  # sent within the text
        (chat("reasoning_content", 10, completion_tokens=60, **thoughts(40)), 60),  # sent, in pieces of several
        (chat("reasoning_content", 40, completion_tokens=5), 40),  # sent and not counted
        (
            chat("content", 10, completion_tokens=10, prompt_tokens=7, total_tokens=57, **thoughts(40)),
            10,
        ),  # in the total
        (chat("content", 10, completion_tokens=10, prompt_tokens=7, total_tokens=10**30), 10),
    ],
)
def test_thoughts_are_counted_where_they_are_sent(records, tokens) -> None:
    assert sum(read(records).sizes) == tokens


def usages(*counts: int | tuple[int, ...] | None) -> list[dict]:
    """A word an event, each with what the server says of its tokens there."""
    records = []
    for at, count in enumerate(counts):
        first, *more = count if isinstance(count, tuple) else (count,)
        told = {} if first is None else {"usage": {"completion_tokens": first}}
        records.append({"choices": [{"index": 0, "text": f" w{at}"}]} | told)
    records[-1]["choices"][0]["finish_reason"] = "length"
    return [*records, *({"choices": [], "usage": {"completion_tokens": each}} for each in more)]


@pytest.mark.parametrize(
    ("counts", "tokens"),
    [
        ((4, 8, 12, 16), 16),  # all so far
        ((4, 4, 4, 4), 4),  # of each event: no sum
        ((1, None, None, None), 4),  # before the text
        ((None, None, None, (16, 16)), 16),  # with the end, and once more behind it
        (((5, 5),), 5),
        ((None, None, None, 3), 4),  # one too few at the limit of the length
        ((None,) * 9 + (2,), 10),  # too few to be the pieces of so many
    ],
)
def test_a_count_that_cannot_be_that_of_the_text_is_not_believed(counts, tokens) -> None:
    found = read(usages(*counts))
    assert sum(found.sizes) == tokens and found.pieces[0].seconds == pytest.approx(0.1)


def test_pieces_that_tell_their_tokens_keep_them_beside_one_that_does_not() -> None:
    pieces = [Piece(0.1 * at, " w w w w", (1, 2, 3, 4)) for at in range(1, 5)]
    flush = Piece(0.5, " end", None)
    assert Answer(None, (*pieces, flush), "length", 0.5).sizes == [4, 4, 4, 4, 1]
    assert Answer(None, (*pieces, flush), "length", 0.5, tokens=19).sizes == [4, 4, 4, 4, 3]


def test_ids_of_the_prompt_stand_beside_a_choice_or_in_it() -> None:
    record = {"choices": [{"index": 0, "text": " a", "finish_reason": "length"}], "prompt_token_ids": None}
    assert read([record]).prompt_ids is None
    record["choices"][0]["prompt_token_ids"] = [5, 6]
    assert read([record]).prompt_ids == (5, 6)
    del record["choices"][0]["prompt_token_ids"]
    assert read([record | {"prompt_token_ids": [5]}]).prompt_ids == (5,)


def test_a_character_in_two_halves_is_one() -> None:
    assert read(completion("a\ud83d", "\ude00 b")).text == "a\U0001f600 b"
    assert read(completion("a", "\ud83d")).text == "a\ufffd", "the text ends inside it"
    assert read(completion("\ude00 b")).text == "\ufffd b"


def test_samples_are_letters_if_one_of_them_has_no_ids() -> None:
    """An empty text says nothing about ids."""
    ids = {"plain": [Drawn((1, 2), "a b"), Drawn((), "")], "spec": [Drawn((1, 3), "a c")]}
    assert samples_of(ids) == {"plain": [(1, 2), ()], "spec": [(1, 3)]}
    letters = samples_of(ids | {"spec": [Drawn((), ""), Drawn(None, "a c")]})
    assert letters == {"plain": [tuple(map(ord, "a b")), ()], "spec": [(), tuple(map(ord, "a c"))]}


def test_load_counts_the_tokens_that_a_server_tells() -> None:
    call = _Call(0.0, 1.0, answer(["four words of text"] * 8, tokens=32))
    assert call.tokens_between(0.0, 1.0) == 32 and call.tokens_between(0.04, 0.06) == 8
    runs = [LoadRun(name, 1, 0, 32, 1.0, (0.1,), (0.1,), None, told=name == "plain") for name in ("plain", "spec")]
    said = (
        "spec tells neither token ids nor a number of tokens that fits its text, so a piece of its text counts as one "
        "token."
    )
    assert said in load_verdict(load_rows(runs, ("plain", "spec")), {})


def test_the_line_for_vllm_is_for_vllm() -> None:
    told = answer(WORDS, [1, 2, 3], most_guesses=5)
    servers = [speller(name, {}, lambda _: told, Vllm()) for name in ("plain", "spec")]
    assert warmed_up(servers, GREEDY) == {"plain": 0, "spec": 5}
    assert warmed_up([servers[0], speller("spec", {}, lambda _: told)], GREEDY) == {}


def test_counters_that_cannot_be_are_none() -> None:
    before = Counts(100, 500, 100)
    assert difference(before, Counts(104, 520, 110)) == Counts(4, 20, 10)
    for after in (Counts(120, 510, 400), Counts(120, 510, 105), Counts(99, 600, 200)):
        assert difference(before, after) is None


def test_a_page_without_counters_of_the_engine_says_nothing_of_speculation() -> None:
    engine = Vllm()
    for metrics, found in (
        ({}, None), ({"python_info": 1.0}, None), ({"vllm:requests": 1.0}, False), ({COUNTERS[0]: 1.0}, True),
    ):  # fmt: skip
        assert engine.speculation(Probe("m", "vllm", {}, metrics)) is found


class Streaming:
    """A client that streams these records."""

    name = "one"

    def __init__(self, records: Sequence[dict], counters: str = "") -> None:
        self.records, self.counters = records, counters

    def stream(self, *_: Any) -> Any:
        return (Streamed(0.1 * at, record) for at, record in enumerate(self.records, start=1))

    def text(self, *_: Any) -> str:
        return self.counters

    def json(self, *_: Any) -> None:
        return None


def vllm_chunks(*sizes: int) -> list[dict]:
    found = [{"choices": [{"index": 0, "text": " w" * size, "token_ids": [7] * size}]} for size in sizes]
    found[-1]["choices"][0]["finish_reason"] = "length"
    return found


@pytest.mark.parametrize(("sizes", "exact"), [((1, 1, 1), "rounds"), ((1, 4, 4), "speed")])
def test_counters_that_stand_still_are_believed_only_of_single_tokens(sizes, exact) -> None:
    page = "".join(f"{name} 5\n" for name in COUNTERS)
    server = Server(Streaming(vllm_chunks(*sizes), page), Vllm(), "m", None, True)  # type: ignore[arg-type]
    (started, *_) = server_lane(server, GREEDY, ServerTokens(), "speculative")
    assert isinstance(started, Started) and started.pair["server"]["exact"] == exact


def test_steps_that_are_told_outweigh_a_page_that_says_there_are_none() -> None:
    lists = {"num_spec_tokens": 3, "per_step_drafted": [3, 3], "per_step_accepted": [3, 3]}
    records = [*vllm_chunks(1, 4, 4), {"choices": [], "metrics": {"speculative_decoding": lists}}]
    server = Server(Streaming(records), Vllm(), "m", None, False)  # type: ignore[arg-type]
    started, *_, finished = server_lane(server, GREEDY, ServerTokens(), "speculative")
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert started.gamma == 3 and started.pair["server"]["speculation"] is True and started.pair["draft"] is not None


def test_steps_in_the_first_piece_have_no_seconds_and_no_speed() -> None:
    """The first piece holds a whole step, as where the client reads late. Its tokens took no time after it."""
    lists = {"num_spec_tokens": 4, "per_step_drafted": [4] * 4, "per_step_accepted": [3, 4, 4, 4]}
    records = [*vllm_chunks(5, 5, 5, 5), {"choices": [], "metrics": {"speculative_decoding": lists}}]
    server = Server(Streaming(records), Vllm(), "m", None, True)  # type: ignore[arg-type]
    events = list(server_lane(server, GREEDY, ServerTokens(), "speculative"))
    found = compute_metrics(events)
    assert found is not None and (found.new_tokens, found.decode_tokens, found.target_passes) == (20, 15, 3)
    assert found.accepted == 12 and events[1].draft == ()


def test_a_plain_server_whose_answers_show_guesses_is_refused() -> None:
    """Some servers tell nothing of it before their first answer."""
    tokens = dict(enumerate(WORDS, start=1))
    guessing = speller("plain", tokens, lambda _: answer(WORDS, [1, 2, 3], steps=(Step(3, 1),)))
    servers = [guessing, speller("spec", tokens, lambda _: answer(WORDS, [1, 2, 3]))]
    said = "The first server, plain, is the plain one of a race, but it speculates; name spec first"
    plan = Plan(prompts=(PromptItem("one", "", "one"),), configs=(), chosen=Choice(), params=GREEDY.params, runs=1)
    sampled = replace(GREEDY, params=SamplingParams(max_new_tokens=4, temperature=1.0))
    for measure in (
        lambda: list(race_on_servers(servers, GREEDY, ServerTokens())),
        lambda: servers_plan(servers, plan, 5.0),
        lambda: warmed_up(servers, GREEDY),
        lambda: list(draws(servers, sampled, 1, 0)),
    ):
        with pytest.raises(InvalidInput, match=said):
            measure()


def test_a_verdict_reads_kept_events_of_servers_that_differ() -> None:
    """One tells ids and the other none, and each names the model its own way."""
    long = WORDS * 4
    tokens = dict(enumerate(WORDS, start=1))
    run, _ = race(
        speller("plain", tokens, lambda _: answer(long, [1, 2, 3] * 4, (5, 6))),
        speller("spec", tokens, lambda _: answer(long)),
    )
    events = [event for lane in run.values() for event in lane]
    assert specdec.verdict(events).sentence
    other = replace(run["generate"][0], prompt_ids=(7,))
    with pytest.raises(InvalidInput, match="differ in prompt"):
        specdec.verdict([*events, other, *run["generate"][1:]])


def test_counters_that_fail_do_not_lose_the_answer() -> None:
    class Silent(Streaming):
        def text(self, *_: Any) -> str:
            raise ServerFailed("The server one did not answer before the deadline.")

    server = Server(Silent(vllm_chunks(1, 1)), Vllm(), "m", None, True)  # type: ignore[arg-type]
    assert server.ask(GREEDY).text == " w w" and server.ask(GREEDY).counts is None


def test_one_answer_without_ids_is_compared_by_letters_and_the_others_are_not() -> None:
    """llama.cpp sends no token that ends inside a character, so one prompt's answer can lack the ids of one server."""

    def told(ids: bool) -> Callable[[Asked], Answer]:
        return lambda asked: answer(WORDS, None if asked.prompt == "two" and not ids else [1, 2, 3])

    tokens = dict(enumerate(WORDS, start=1))
    servers = [speller("plain", tokens, told(True)), speller("spec", tokens, told(False))]
    items = tuple(PromptItem(name, "", name) for name in ("one", "two"))
    plan = servers_plan(servers, Plan(prompts=items, configs=(), chosen=Choice(), params=GREEDY.params, runs=1), 5.0)
    trials = {(trial.prompt, trial.lane): trial.token_ids for trial in server_trials(servers, plan, 5.0)}
    letters = tuple(map(ord, "".join(WORDS)))
    assert trials == {
        ("one", "generate"): (1, 2, 3), ("one", "speculative"): (1, 2, 3),
        ("two", "generate"): letters, ("two", "speculative"): letters,
    }  # fmt: skip


def test_a_prompt_of_a_set_that_is_read_as_other_tokens_is_refused_by_name() -> None:
    def told(ids: tuple[int, ...]) -> Callable[[Asked], Answer]:
        return lambda asked: answer(WORDS, [1, 2, 3], ids if asked.prompt == "two" else (5,))

    tokens = dict(enumerate(WORDS, start=1))
    servers = [speller("plain", tokens, told((7, 8))), speller("spec", tokens, told((9, 7, 8)))]
    items = tuple(PromptItem(name, "", name) for name in ("one", "two"))
    plan = servers_plan(servers, Plan(prompts=items, configs=(), chosen=Choice(), params=GREEDY.params, runs=1), 5.0)
    found = []
    with pytest.raises(ServerFailed, match="Prompt 'two': the servers read it as other tokens"):
        found += server_trials(servers, plan, 5.0)


def test_a_server_that_does_not_tell_how_it_read_a_prompt_is_measured() -> None:
    tokens = dict(enumerate(WORDS, start=1))
    told = [answer(WORDS, [1, 2, 3], (5,)), answer(WORDS, [1, 2, 3])]
    servers = [speller(name, tokens, lambda _, its=its: its) for name, its in zip(("plain", "spec"), told, strict=True)]
    items = (PromptItem("one", "", "one"),)
    plan = servers_plan(servers, Plan(prompts=items, configs=(), chosen=Choice(), params=GREEDY.params, runs=1), 5.0)
    assert len(list(server_trials(servers, plan, 5.0))) == 2


def test_a_model_may_be_named_as_messages_name_it() -> None:
    listed = {"data": [{"id": "/models/a"}, {"id": "/models/b"}, {"id": "c"}]}
    client = SimpleNamespace(
        name="one", json=lambda path, **_: listed if path == "/v1/models" else None, text=lambda *_: ""
    )
    for given, asked in (("a", "/models/a"), ("/models/b", "/models/b"), ("c", "c"), ("d", "d")):
        assert probe(client, given).model == asked  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"several models \(a, b, c\)"):
        probe(client)  # type: ignore[arg-type]


def test_a_link_local_address_keeps_its_interface(monkeypatch) -> None:
    found = [(0, 0, 0, "", ("fe80::1", 80, 0, 3)), (0, 0, 0, "", ("::1", 80, 0, 0)), (0, 0, 0, "", ("10.0.0.1", 80))]
    monkeypatch.setattr(deadlines.socket, "getaddrinfo", lambda *_, **__: found)
    assert deadlines._addresses("a", 80, 1.0) == ["fe80::1%3", "::1", "10.0.0.1"]
