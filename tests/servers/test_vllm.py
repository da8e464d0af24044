"""vLLM: what real servers said, replayed; or what live ones say, where the environment has their addresses.

    SPECDEC_LIVE_PLAIN=URL SPECDEC_LIVE_DRAFT=URL python -m pytest -n 0 tests/servers/test_vllm.py

``record.py`` has the lines that start them; a third is SPECDEC_LIVE_NGRAM. They may serve any pair: where it is not the
embedded one, SPECDEC_LIVE_TARGET is the folder of the target. Nobody else may use them meanwhile, because their
counters are compared.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
import torch

import specdec
from specdec.errors import InvalidInput
from specdec.events import MAX_GAMMA, Round
from specdec.servers.answer import Asked, Step, sums_of
from specdec.servers.client import Streamed
from specdec.servers.lane import Server, connect, server_lane
from specdec.servers.probe import difference
from specdec.servers.tokens import ServerTokens
from specdec.servers.vllm import Vllm
from tests.servers.cases import CASES, SAMPLED, fifty
from tests.servers.exchanges import read, replayed

NAMES = ("plain", "draft", "ngram")
TARGET = os.environ.get("SPECDEC_LIVE_TARGET")
LIVE = {name: url for name in NAMES if (url := os.environ.get(f"SPECDEC_LIVE_{name.upper()}"))}


@pytest.fixture
def servers() -> Iterator[dict[str, Server]]:
    """The live servers, or all recorded ones."""
    found = {}
    replays = []
    for name in LIVE or NAMES:
        if not LIVE:
            replays.append(replayed(read(f"vllm_{name}")))
        found[name] = connect(name, LIVE.get(name) or replays[-1].__enter__())
    yield found
    for server in found.values():
        server.client.close()
    for replay in replays:
        replay.__exit__(None, None, None)


@pytest.fixture(params=NAMES)
def server(request, servers) -> Server:
    if request.param not in servers:
        pytest.skip("no address of such a live server")
    return servers[request.param]


def told(server: Server, asked: Asked, monkeypatch, tokens: ServerTokens | None = None) -> tuple[list, list[dict]]:
    """The events of a lane, and the records of the stream that they come from."""
    records: list[dict] = []
    stream = server.client.stream

    def spied(*arguments) -> Iterator[Streamed]:
        for each in stream(*arguments):
            records.append(each.record)
            yield each

    with monkeypatch.context() as patch:
        patch.setattr(server.client, "stream", spied)
        return list(server_lane(server, asked, tokens or ServerTokens(), "speculative")), records


def lists_of(records: list[dict]) -> tuple[list[int], list[int]]:
    found = records[-1].get("metrics", {}).get("speculative_decoding", {})
    return found.get("per_step_drafted") or [], found.get("per_step_accepted") or []


def choices_of(records: list[dict]) -> list[dict]:
    return [record["choices"][0] for record in records if record["choices"]]


def steps_in(rounds: list[Round]) -> list[tuple[int, int]]:
    """The drafted and accepted guesses of the rounds with guesses. A cut round shows only what was written."""
    return [(len(each.draft), sum(token.status == "accepted" for token in each.draft)) for each in rounds if each.draft]


@pytest.mark.parametrize("name", CASES)
def test_the_rounds_are_those_that_the_engine_lists(server, name, monkeypatch) -> None:
    tokens = ServerTokens()
    (started, *rounds, finished), records = told(server, CASES[name], monkeypatch, tokens)
    drafted, accepted = lists_of(records)
    ids = [i for choice in choices_of(records) for i in choice["token_ids"]]
    assert [i for each in rounds for i in each.committed_ids] == ids
    assert len(ids) == records[-1]["usage"]["completion_tokens"]
    assert started.pair["server"]["ids"]
    require_text(tokens, ids, records, finished)
    if name == "stop string" and not drafted:
        # vLLM 0.32 lists no steps of a text that a stop string ends. Its counters have their sums.
        assert started.pair["server"]["exact"] in ("counts", "rounds")
        return
    assert started.pair["server"]["exact"] == "rounds"
    # All steps but the last are whole; the end of the text may cut that one.
    shown = steps_in(rounds)
    assert [made for made, _ in shown] == drafted
    assert [kept for _, kept in shown[:-1]] == accepted[:-1]
    whole = [each for each in rounds if each.draft]
    for each, kept in zip(whole[:-1], accepted, strict=False):
        assert len(each.committed_ids) == kept + 1
    if whole:
        assert 1 <= len(whole[-1].committed_ids) <= accepted[-1] + 1
        assert len(whole[-1].committed_ids) == accepted[-1] + 1 or whole[-1] is rounds[-1]
    assert all(len(each.committed_ids) == 1 for each in rounds if not each.draft)


def require_text(tokens, ids, records, finished) -> None:
    """The bytes of the ids are the answer's text, which leaves out the end-of-text token and the stop string."""
    # A text may end inside a character, which servers show as a sign in its place or leave out.
    text = "".join(choice["text"] for choice in choices_of(records)).rstrip("\ufffd")
    joined = b"".join(map(tokens, ids)).decode(errors="replace").rstrip("\ufffd")
    assert joined == text if finished.finish_reason == "length" else joined.startswith(text)


def test_a_plain_server_writes_one_token_a_round(servers, monkeypatch) -> None:
    if "plain" not in servers:
        pytest.skip("no address of such a live server")
    for asked in [*CASES.values(), SAMPLED]:
        (started, *rounds, finished), _ = told(servers["plain"], asked, monkeypatch)
        assert started.gamma == 0 and started.pair["draft"] is None
        assert {len(each.committed_ids) for each in rounds} == {1} and not any(each.draft for each in rounds)


def test_how_texts_end(server, monkeypatch) -> None:
    reasons = {"end of text": "eos", "stop string": "stop", "length": "length", "one token": "length"}
    for name, reason in reasons.items():
        (_, *rounds, finished), records = told(server, CASES[name], monkeypatch)
        text = "".join(choice["text"] for choice in choices_of(records))
        if LIVE and CASES[name].params.max_new_tokens == sum(len(each.committed_ids) for each in rounds):
            reason = "length"  # another pair writes on where the embedded one ends
        assert finished.finish_reason == reason, text


def test_the_counters_are_the_sums_of_the_rounds(server, monkeypatch) -> None:
    """Read before each call, they have counted the call before. A cut step counts in full."""
    if server.speculation is False:
        assert server.ask(CASES["length"]).counts is None
        return
    counted = []
    read = Server.counted
    monkeypatch.setattr(Server, "counted", lambda self, end: counted.append(read(self, end)) or counted[-1])
    asked = [(len(counted), server.ask(each)) for each in CASES.values()]
    for (before, answer), (after, _) in itertools.pairwise(asked):
        assert difference(counted[before], counted[after]) == answer.counts
        assert answer.steps is None or sums_of(answer.steps) == answer.counts


def test_speculation_leaves_greedy_text_as_it_is(servers) -> None:
    if "plain" not in servers:
        pytest.skip("no address of such a live server")
    for asked in CASES.values():
        ids = {name: server.ask(asked).ids for name, server in servers.items()}
        if not LIVE:  # of a live one, ``test_fifty_prompts`` looks at each difference
            assert len(set(ids.values())) == 1


@pytest.mark.parametrize("many", [2, 3, 100])
def test_merged_chunks_have_the_same_rounds(server, many, monkeypatch) -> None:
    """A client that reads late gets several steps in a chunk."""
    for name, asked in CASES.items():
        (_, *rounds, _), records = told(server, asked, monkeypatch)
        later = [record for record in records if record["choices"]][1:]
        merged = [records[0]]
        for at in range(0, len(later), many):
            parts = [record["choices"][0] for record in later[at : at + many]]
            joined = {key: [i for part in parts for i in part["token_ids"]] for key in ("token_ids",)}
            joined |= {"text": "".join(part["text"] for part in parts)}
            merged.append({"choices": [parts[-1] | joined]})
        merged += [record for record in records if not record["choices"]]
        with monkeypatch.context() as patch:
            streamed = [Streamed(0.1 * at, record) for at, record in enumerate(merged, start=1)]
            patch.setattr(server.client, "stream", lambda *_, streamed=streamed: (each for each in streamed))
            (started, *others, _) = server_lane(server, asked, ServerTokens(), "speculative")
        # Single tokens may stand at another place, if steps without guesses were merged with others. Then it is not
        # known either how much of the last step the end of the text has cut: it kept one guess or all that are listed.
        found, expected = steps_in(others), steps_in(rounds)
        assert found[:-1] == expected[:-1] and len(found) == len(expected), name
        if found and found != expected:
            drafted, accepted = (each[-1] for each in lists_of(records))
            assert any(not each.draft for each in rounds[1:]), name
            assert all(made == drafted and 1 <= kept <= accepted for made, kept in (found[-1], expected[-1])), name
        assert [i for each in others for i in each.committed_ids] == [i for each in rounds for i in each.committed_ids]
        told_all = all(each.draft is not None for each in rounds)
        if told_all and all(each.draft for each in rounds[1:]):
            assert [each.committed_ids for each in others] == [each.committed_ids for each in rounds]
        if not any(each.draft for each in rounds) and len(others) < len(rounds):
            # Counters that did not move may be those of another process, so several tokens in a chunk are no proof.
            assert {each.draft for each in others[1:]} == {None}, name


def read_lists(drafted, accepted, sizes, most=5) -> specdec.events.Started:
    pieces = [{"index": 0, "text": " a" * size, "token_ids": [7] * size, "finish_reason": None} for size in sizes]
    pieces[-1]["finish_reason"] = "length"
    spec = {"num_spec_tokens": most, "per_step_drafted": drafted, "per_step_accepted": accepted}
    end = {"choices": [], "metrics": {"speculative_decoding": spec}}
    records = [*({"choices": [piece]} for piece in pieces), end]
    return [Streamed(0.1 * at, record) for at, record in enumerate(records, start=1)]


class Silent:
    """A client of a server that answers this stream, and nothing else."""

    name = "one"

    def __init__(self, streamed) -> None:
        self.streamed = streamed

    def stream(self, *_):
        yield from self.streamed

    def json(self, *_, **__):
        return None

    def text(self, *_, **__):
        return None


def lane_of(streamed, speculation=True, in_order=True) -> list:
    server = Server(Silent(streamed), Vllm(), "m", None, speculation, in_order)
    return list(server_lane(server, CASES["length"], ServerTokens(), "speculative"))


def test_how_exact_a_lane_is() -> None:
    streamed = read_lists([5, 5], [2, 1], [1, 3, 2])
    assert lane_of(streamed)[0].pair["server"]["exact"] == "rounds"
    assert lane_of(streamed, in_order=False)[0].pair["server"]["exact"] == "counts"
    # Lists that do not fit the stream make no rounds.
    assert lane_of(read_lists([5, 5], [3, 1], [1, 3, 2]))[0].pair["server"]["exact"] == "counts"
    summary = read_lists(None, None, [1, 3, 2])
    summary[-1].record["metrics"]["speculative_decoding"] |= {
        "num_spec_steps": 2, "num_draft_tokens": 10, "num_accepted_draft_tokens": 3
    }  # fmt: skip
    assert lane_of(summary)[0].pair["server"]["exact"] == "counts"
    assert lane_of(streamed[:-1])[0].pair["server"]["exact"] == "speed"
    started, *rounds, _ = lane_of(streamed[:-1])
    assert started.gamma == "engine" and all(each.draft is None for each in rounds[1:])


def test_nothing_is_known_of_a_guess_that_was_not_kept() -> None:
    _, first, second, third, _ = lane_of(read_lists([5, 3], [2, 3], [1, 3, 4]))
    assert first.draft == () and first.token_kind == "target"
    assert [token.status for token in second.draft] == ["accepted"] * 2 + ["rejected"] + ["discarded"] * 2
    assert [token.token_id for token in second.draft] == [7, 7, None, None, None]
    assert second.token_kind == "correction" and third.token_kind == "bonus"
    assert all(token.draft_prob is None and token.draw is None for token in second.draft)


def test_a_cut_step_tells_nothing_of_the_guesses_after_the_end() -> None:
    _, _, cut, _ = lane_of(read_lists([5], [4], [1, 2]))
    assert [token.status for token in cut.draft] == ["accepted"] * 2 + ["discarded"] * 3
    assert cut.token_id is None and cut.token_kind is None and len(cut.committed_ids) == 2


@pytest.mark.parametrize("most", [MAX_GAMMA + 1, 64])
def test_more_guesses_than_a_round_can_show_are_refused(most) -> None:
    with pytest.raises(InvalidInput, match=f"up to {most} guesses a step; {MAX_GAMMA} are shown at most"):
        lane_of(read_lists([5], [1], [1, 2], most=most))
    with pytest.raises(InvalidInput, match=f"up to {most} guesses a step"):
        lane_of(read_lists([most], [1], [1, 2]))


@pytest.mark.skipif("plain" not in LIVE or len(LIVE) < 2, reason="needs live servers: SPECDEC_LIVE_PLAIN and another")
def test_fifty_prompts(servers, monkeypatch, capsys) -> None:
    """Rounds, counters and greedy text of fifty prompts, the text against transformers' ``generate``."""
    weights = (TARGET, specdec.PromptLookup()) if TARGET else ()
    pair = specdec.load_pair(*weights, device="cpu", dtype="float32", draft_dtype="float32")
    steps = cut = 0
    ties: list[tuple[float, str]] = []
    for asked in fifty():
        assert isinstance(asked.prompt, str)
        expected, prompt_ids = greedy(pair, asked)
        for name, server in servers.items():
            before = server.counted()
            (started, *rounds, _), records = told(server, asked, monkeypatch)
            counted = difference(before, server.counted())
            drafted, accepted = lists_of(records)
            assert started.prompt_ids == prompt_ids
            if name != "plain":
                assert counted == sums_of([Step(*step) for step in zip(drafted, accepted, strict=True)])
                assert [kept for _, kept in steps_in(rounds)[:-1]] == accepted[:-1]
                steps += len(drafted)
                whole = [each for each in rounds if each.draft]
                cut += bool(whole) and len(whole[-1].committed_ids) < accepted[-1] + 1
            ids = tuple(i for each in rounds for i in each.committed_ids)
            if ids != expected:
                ties.append((margin(pair, prompt_ids, ids, expected), name))
    with capsys.disabled():
        print(f"\n50 prompts: {steps} steps as the engine lists and counts them, {cut} last steps cut by the end.")
        texts = f"{len(ties)} of {50 * len(servers)} texts"
        print(f"{texts} differ from generate, by margins of {sorted(ties)} in logits.")
    assert all(gap < 1e-3 for gap, _ in ties)


def greedy(pair, asked: Asked) -> tuple[tuple[int, ...], tuple[int, ...]]:
    events = list(specdec.generate(pair, asked.prompt, params=asked.params))
    return tuple(i for each in events[1:-1] for i in each.committed_ids), tuple(events[0].prompt_ids)


def margin(pair, prompt_ids, ids, expected) -> float:
    """The gap between the target's logits for the two tokens where the texts part."""
    at = next(i for i, (one, two) in enumerate(zip(ids, expected, strict=False)) if one != two)
    with torch.no_grad():
        logits = pair.target(torch.tensor([[*prompt_ids, *expected[:at]]])).logits[0, -1]
    return abs(float(logits[ids[at]] - logits[expected[at]]))
