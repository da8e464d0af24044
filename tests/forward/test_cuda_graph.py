"""The graph engine writes the eager engine's text, its replays read fixed buffers only, and nothing waits."""

from __future__ import annotations

import dataclasses
import math
import threading
from itertools import zip_longest
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from comparison import FULL
from cuda_standins import Reads, forget_engines, on_meta, reads_on_meta, stand_in_for_captures
from fakes import byte_tokenizer, noisy_copy, prompt_of, shared_tiny, shuffled_tokenizer, tensors, tiny
from pairwise import each_once, few
from torch.utils._python_dispatch import TorchDispatchMode

import specdec
from specdec.forward import cuda_graph, lean_check
from specdec.forward.cuda_graph import GraphEngine
from specdec.forward.lean import LeanModel
from specdec.forward.static_buffers import StaticPassView, StaticPositions, StaticTokenBuffer
from specdec.measure.enumeration import distance, distribution
from specdec.report import provenance

FAMILIES = ("llama", "qwen3", "mistral", "gpt2", "gpt_neox", "phi3")
pytestmark = pytest.mark.usefixtures("torch_passes")  # the stand-in records torch's operators
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"gamma": 4},
    "sampling": {"gamma": 4, "params": {"temperature": 1.0, "seed": 5}},
    "filters and a penalty": {
        "gamma": 3,
        "params": {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "repetition_penalty": 1.2, "seed": 6},
    },
    "no draft": {"gamma": 0},
    "block verification": {"gamma": 4, "acceptance": "block", "params": {"temperature": 1.0, "seed": 9}},
    "top-k acceptance": {"gamma": 4, "acceptance": "top-k", "accept_top_k": 3},
    "early exit": {"gamma": 3, "draft": specdec.EarlyExit(1)},
    "early exit, sampling": {"gamma": 3, "draft": specdec.EarlyExit(1), "params": {"temperature": 1.0, "seed": 7}},
    "prompt lookup": {"gamma": 4, "draft": specdec.PromptLookup()},
    "prompt lookup, sampling": {"gamma": 4, "draft": specdec.PromptLookup(), "params": {"temperature": 0.3, "seed": 8}},
    "confidence stop": {"gamma": specdec.ConfidenceStop(6, 0.5)},
    "a combination": {"gamma": 4, "draft": specdec.Combined(specdec.PromptLookup(), specdec.EarlyExit(1))},
    "token recycling": {"gamma": 4, "draft": specdec.Recycling(), "params": {"temperature": 0.3, "seed": 8}},
}


class Changing:
    """A policy that drafts nothing for some rounds, so that the draft has much to read afterwards."""

    def start(self):
        self._lengths = iter([3, 3, 0, 0, 0, 0, 2, 3, 0, 1, 0, 0, 3] * 20)
        return self

    least_confidence = None

    def length(self) -> int:
        return next(self._lengths)

    def saw(self, event) -> None: ...


def pair_of(family: str = "llama", draft: Any = None, engine: str = "graph") -> specdec.Pair:
    target = shared_tiny(family, 1, layers=3)
    return specdec.Pair(target, draft or noisy_copy(target, 2), byte_tokenizer(), engine=engine)


TOKENS = 40 if FULL else 24


def rounds_of(
    pair: specdec.Pair, prompt: torch.Tensor, mode: dict[str, Any], tokens: int = TOKENS
) -> list[specdec.Round]:
    settings = dict(mode)
    settings.pop("draft", None)
    params = specdec.SamplingParams(max_new_tokens=tokens, ignore_eos=True, **settings.pop("params", {}))
    return [e for e in specdec.speculative(pair, prompt, params=params, **settings) if isinstance(e, specdec.Round)]


def told(rounds: list[specdec.Round]) -> list[tuple]:
    """The content of rounds, without times and values that rounding changes."""
    return [
        (r.committed_ids, r.token_kind, [(t.token_id, t.status) for t in r.draft or ()], [i for i, _ in r.missed])
        for r in rounds
    ]


# --- a stand-in for the capture --------------------------------------------------------------------------------------


@pytest.fixture
def captured(monkeypatch) -> None:
    """Engines whose steps are captured by the stand-in."""
    forget_engines(monkeypatch.setattr)
    stand_in_for_captures(monkeypatch.setattr)


@pytest.mark.parametrize("mode", MODES)
def test_replays_write_what_the_eager_engine_writes(mode: str, captured) -> None:
    """Calls with different texts over one engine: a graph keeps nothing of an earlier call."""
    settings = MODES[mode]
    graph = pair_of(draft=settings.get("draft"))
    eager = dataclasses.replace(graph, engine="eager")
    assert graph.describe()["engine"] == {"name": "graph", "reason": None}
    for seed, length in enumerate((5, 9, 3) if FULL else (5, 3)):
        prompt = prompt_of(length, seed=seed)
        ours = told(rounds_of(graph, prompt, settings))
        if mode == "confidence stop":  # the eager draft ends early, and its last guess is reported as missed
            ours, theirs = ([r[:3] for r in found] for found in (ours, told(rounds_of(eager, prompt, settings))))
        else:
            theirs = told(rounds_of(eager, prompt, settings))
        assert ours == theirs
    ((engine,),) = cuda_graph._free.values()
    assert engine._capture.replays > 6 and not engine._capture.unknown, engine._capture.unknown


@pytest.mark.parametrize("family", few(FAMILIES, 3))
def test_each_family_and_a_text_that_outgrows_its_bound(family: str, captured, monkeypatch) -> None:
    """Graphs of one bound are not replayed beyond it."""
    monkeypatch.setattr("specdec.forward.static_buffers.SMALLEST", 32)
    graph = pair_of(family)
    eager = dataclasses.replace(graph, engine="eager")
    prompt = prompt_of(6)
    assert told(rounds_of(graph, prompt, MODES["greedy"], 66)) == told(rounds_of(eager, prompt, MODES["greedy"], 66))
    ((engine,),) = cuda_graph._free.values()
    assert {bound for bound, *_ in engine._graphs} == {32, 64, 128}
    assert engine._capture.replays > 12 and not engine._capture.unknown


def test_rounds_without_a_draft_or_with_another_length_between_replays(captured) -> None:
    graph = pair_of()
    eager = dataclasses.replace(graph, engine="eager")
    ours, theirs = (rounds_of(pair, prompt_of(6), {"gamma": Changing()}, 80) for pair in (graph, eager))
    assert told(ours) == told(theirs) and max(len(r.missed) for r in ours) > 3


def test_a_graph_is_not_replayed_with_other_settings(captured) -> None:
    """Calls over one engine which differ in the sampler alone, then in the rule alone."""
    graph = pair_of()
    eager = dataclasses.replace(graph, engine="eager")
    hot, cold = ({"temperature": t, "seed": 5} for t in (1.0, 0.3))
    for params, rule in ((hot, "lossless"), (cold, "lossless"), (cold, "block"), (hot, "lossless")):
        mode = {"gamma": 4, "params": params, "acceptance": rule}
        assert told(rounds_of(graph, prompt_of(5), mode, 16)) == told(rounds_of(eager, prompt_of(5), mode, 16))
    ((engine,),) = cuda_graph._free.values()
    assert engine._capture.replays > 6 and len({settings for _, _, settings, _ in engine._graphs}) == 3


@pytest.mark.parametrize("gamma", [0, 3])
def test_the_prompt_is_never_captured_even_if_it_is_one_token(gamma: int, captured, monkeypatch) -> None:
    """Its pass has other rows than that of a round, or the same ones by chance."""
    pair, steps, run = pair_of(), [], GraphEngine.run
    assert pair.uses_graphs  # which runs the passes of the check
    monkeypatch.setattr(GraphEngine, "run", lambda *args: (steps.append(args[1:3]), run(*args))[1])
    for length in (1, 5):
        steps.clear()
        rounds_of(pair, prompt_of(length), {"gamma": gamma}, 12)
        assert steps[:2] == [("verify", None), ("gather", None)] and all(key for _, key in steps[2:])


def test_a_graph_of_one_draft_is_not_replayed_for_another(captured, monkeypatch) -> None:
    """A deleted object may pass its ``id`` to the next one, so here all objects have the same ``id``."""
    monkeypatch.setattr("specdec.drafters.draft_model.id", lambda thing: 1, raising=False)
    target = shared_tiny("llama", 1, layers=3)
    for layers in (1, 2):
        graph = pair_of(draft=specdec.EarlyExit(layers))
        eager = specdec.Pair(target, specdec.EarlyExit(layers), byte_tokenizer(), engine="eager")
        settings = {"gamma": 3}
        assert told(rounds_of(graph, prompt_of(5), settings)) == told(rounds_of(eager, prompt_of(5), settings))


def test_a_dropped_call_may_end_where_an_engine_is_being_chosen() -> None:
    """The garbage collector ends a dropped call in any thread, also in one that holds the lock on the engines."""
    call = specdec.speculative(pair_of(), prompt_of(5), params=specdec.SamplingParams(8))
    next(call), next(call)

    def collect() -> None:
        with cuda_graph._lock:
            call.close()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_changed_weights_of_a_draft_are_captured_anew(captured) -> None:
    graph = pair_of(draft=tiny("llama", 8))
    eager = dataclasses.replace(graph, engine="eager")
    (draft,) = graph.draft.models
    for seed in (1, 2):
        draft.model.norm.weight = torch.nn.Parameter(torch.rand(len(draft.model.norm.weight)) * seed - 0.5)
        assert told(rounds_of(graph, prompt_of(5), {"gamma": 3})) == told(rounds_of(eager, prompt_of(5), {"gamma": 3}))


@pytest.mark.parametrize("hidden", [False, True])
def test_changed_angles_are_read_by_the_next_call(hidden: bool, captured) -> None:
    """A captured graph reads a table of them. A change by ``data`` shows nowhere but in the values."""
    target = tiny("llama", 1, layers=3)
    graph = specdec.Pair(target, specdec.PromptLookup(), engine="graph")
    eager = dataclasses.replace(graph, engine="eager")
    before = told(rounds_of(graph, prompt_of(6), MODES["greedy"]))
    frequencies = target.model.rotary_emb.inv_freq
    (frequencies.data if hidden else frequencies).mul_(0.3)
    after = told(rounds_of(graph, prompt_of(6), MODES["greedy"]))
    assert after == told(rounds_of(eager, prompt_of(6), MODES["greedy"])) and after != before


def test_what_was_found_while_weights_held_nan_is_not_kept(monkeypatch) -> None:
    forget_engines(monkeypatch.setattr)
    pair = specdec.Pair(tiny("llama", 1), engine="graph")
    whole = pair.target.lm_head.weight.data.clone()
    stack = lean_check.lean_model(pair.target)
    pair.target.lm_head.weight.data[3] = math.nan
    assert "NaN" in pair.describe()["engine"]["reason"] and lean_check.lean_model(pair.target) is stack
    pair.target.lm_head.weight.data.copy_(whole)
    assert pair.describe()["engine"] == {"name": "graph", "reason": None}


def test_too_many_graphs_are_dropped_with_their_pool(captured, monkeypatch) -> None:
    """Too many graphs are dropped together with their memory pool, which CUDA does not reuse for new graphs."""
    pair = pair_of()
    rounds_of(pair, prompt_of(6), MODES["greedy"])
    ((engine,),) = cuda_graph._free.values()
    pool, engine_graphs = engine._capture, len(engine._graphs)
    monkeypatch.setattr(cuda_graph, "MOST_GRAPHS", engine_graphs - 1)
    rounds_of(pair, prompt_of(6), MODES["greedy"])
    ((after,),) = cuda_graph._free.values()
    assert after is engine and after._capture is not pool and len(after._graphs) == engine_graphs


def test_the_stand_in_catches_a_step_that_reads_a_changing_address(captured, monkeypatch) -> None:
    """The stand-in catches a step that slices at an index known to Python only."""
    monkeypatch.setattr(
        "specdec.forward.static_buffers.StaticTokenBuffer.ids", lambda self, start, end: self._ids[start:end]
    )
    graph = pair_of()
    eager = dataclasses.replace(graph, engine="eager")
    prompt = prompt_of(6)
    assert told(rounds_of(graph, prompt, MODES["greedy"])) != told(rounds_of(eager, prompt, MODES["greedy"]))


# --- without a capture ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", few([2, specdec.ConfidenceStop(2, 0.4)], 1), ids=str)
def test_sampled_text_has_the_distribution_of_the_eager_engine(gamma: Any) -> None:
    """Both engines have the same exact distribution, up to the rounding of two attention kernels.

    Also with a confidence stop, where their texts differ on a CPU: see below.
    """
    target = tiny("llama", 3, vocab_size=4)
    pairs = [specdec.Pair(target, noisy_copy(target, 4, 0.3), engine=engine) for engine in ("graph", "eager")]
    params = specdec.SamplingParams(max_new_tokens=3, temperature=1.3, ignore_eos=True)
    prompt = prompt_of(3, vocab_size=4)

    def text(pair: specdec.Pair) -> tuple[int, ...]:
        return tuple(specdec.collect(specdec.speculative(pair, prompt, gamma=gamma, params=params)).token_ids)

    (ours, paths), (theirs, _) = (distribution(lambda pair=pair: text(pair)) for pair in pairs)
    assert paths > len(ours) == 4**3
    assert distance(ours, theirs) < 1e-5


@pytest.mark.parametrize("waits", [False, True])
def test_a_confidence_stop_while_sampling_is_the_one_mode_in_which_texts_differ(waits: bool, monkeypatch) -> None:
    """The eager engine on a CPU stops drawing at the unsure token. On a GPU it draws the whole draft too."""
    graph = pair_of()
    eager = dataclasses.replace(graph, engine="eager")
    monkeypatch.setattr("specdec.runtime.tokens.TokenBuffer.blocks_host", waits)
    settings = {"gamma": specdec.ConfidenceStop(6, 0.5), "params": {"temperature": 1.0, "seed": 5}}
    texts = [[r.committed_ids for r in rounds_of(pair, prompt_of(5), settings)] for pair in (graph, eager)]
    assert (texts[0] == texts[1]) is waits


class Operators(TorchDispatchMode):
    """The operators of a step with the shapes of their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append((str(func), [tuple(t.shape) for t in tensors(args, kwargs)]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", few(MODES, 5))
def test_steps_of_one_key_run_the_same_operators(mode: str, monkeypatch) -> None:
    traces: dict[Any, list] = {}
    counts: dict[Any, int] = {}
    run = GraphEngine.run

    def traced(self, name, key, step):
        with Operators() as seen:
            found = run(self, name, key, step)
        if key is not None:
            key = self._place.bound, name, key
            assert traces.setdefault(key, seen.calls) == seen.calls
            counts[key] = counts.get(key, 0) + 1
        return found

    monkeypatch.setattr(GraphEngine, "run", traced)
    rounds_of(pair_of(draft=MODES[mode].get("draft")), prompt_of(6), MODES[mode])
    assert max(counts.values()) > 5


@pytest.fixture
def reads(monkeypatch) -> Reads:
    """Run models on "meta", where draws need no generator."""
    return reads_on_meta(monkeypatch.setattr)


def reads_by_round(reads: Reads, pair: specdec.Pair, mode: dict[str, Any]) -> set[int]:
    """How often the host read in each round after the first."""
    settings = dict(mode)
    settings.pop("draft", None)
    params = specdec.SamplingParams(max_new_tokens=12, ignore_eos=True, **settings.pop("params", {}))
    counts = []
    prompt = torch.zeros(6, dtype=torch.long)  # the host will read zeros, so that prompt lookup finds them
    with reads:
        for event in specdec.speculative(pair, prompt, params=params, **settings):
            if isinstance(event, specdec.Round):
                counts.append(reads.count)
    assert len(counts) > 4
    return {after - before for before, after in zip(counts, counts[1:], strict=False)}


@each_once(mode=few((*MODES, "auto"), 6), engine=("graph", "eager"))
def test_the_host_reads_once_a_round(engine: str, mode: str, reads) -> None:
    """The host reads once a round with every draft method. The device "meta" has no values, so other reads fail."""
    settings = MODES.get(mode, {"gamma": "auto"})
    target, draft = on_meta(shared_tiny("llama", 1, layers=3)), settings.get("draft") or on_meta(shared_tiny("llama"))
    pair = specdec.Pair(target, draft, byte_tokenizer(), engine=engine)
    assert pair.describe()["engine"]["name"] == engine
    assert reads_by_round(reads, pair, settings) == {1}


@pytest.mark.parametrize(("mode", "expected"), [("sampling", 1), ("greedy", 2), ("confidence stop", 2)])
def test_greedy_drafts_of_another_tokenizer_read_on_the_host(mode: str, expected: int, reads) -> None:
    """In greedy decoding the draft's ids are read before the target's pass, because a tokenizer runs on the host."""
    target, draft = (on_meta(shared_tiny("llama", 1, layers=layers)) for layers in (3, 2))
    other, _ = shuffled_tokenizer(byte_tokenizer(), 20)
    pair = specdec.Pair(target, draft, byte_tokenizer(), other, engine="graph")
    assert pair.describe()["engine"]["name"] == "eager" and "tokenizer" in pair.describe()["engine"]["reason"]
    assert max(reads_by_round(reads, pair, MODES[mode])) == expected


def test_the_engine_is_chosen_and_reported(capsys) -> None:
    """``auto`` is eager on a CPU. ``graph`` uses graphs where possible, else eager with the reason."""
    pairs = {name: specdec.load_pair(engine=name) for name in ("auto", "eager", "graph")}
    names = {name: pair.describe()["engine"]["name"] for name, pair in pairs.items()}
    assert names == {"auto": "eager", "eager": "eager", "graph": "graph"}
    assert "not captured" in provenance.engine(pairs["graph"].describe())
    own = specdec.Pair(tiny("gemma2"), specdec.PromptLookup(), engine="graph").describe()["engine"]
    assert own["name"] == "eager" and "lean forward" in own["reason"]
    with pytest.raises(specdec.InvalidInput, match="fast"):
        specdec.load_pair(engine="fast")


def test_a_failed_capture_leaves_the_text_and_says_so_afterwards(monkeypatch) -> None:
    """If a capture fails, the call finishes without it, and the next call uses the eager engine."""

    def refuse(step, rng):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    for name in ("_free", "_reasons"):
        monkeypatch.setattr(cuda_graph, name, WeakKeyDictionary())
    pair = pair_of()
    assert pair.describe()["engine"]["name"] == "graph"
    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: refuse)
    eager = dataclasses.replace(pair, engine="eager")
    assert told(rounds_of(pair, prompt_of(6), MODES["sampling"])) == told(
        rounds_of(eager, prompt_of(6), MODES["sampling"])
    )
    found = pair.describe()["engine"]
    assert found["name"] == "eager" and "not permitted" in found["reason"] and "more" not in found["reason"]


@pytest.mark.parametrize(("error", "then"), [(RuntimeError, "eager"), (torch.OutOfMemoryError, "graph")])
def test_a_capture_fails_in_a_call_that_fails(error: type[Exception], then: str, monkeypatch) -> None:
    """The call after a failed capture is eager, also if the step then failed by itself. Full memory is another matter.

    On a GPU torch itself fails there: it leaves a generator in the capture, whose next draw is refused.
    """
    forget_engines(monkeypatch.setattr)
    pair = pair_of()
    assert pair.describe()["engine"]["name"] == "graph"

    def refuse(step, rng):
        monkeypatch.setattr(LeanModel, "forward", lambda self, *rest: (_ for _ in ()).throw(error("no more")))
        raise error("refused")

    forward = LeanModel.forward
    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: refuse)
    with pytest.raises(error, match="no more|refused"):
        rounds_of(pair, prompt_of(6), MODES["sampling"])
    monkeypatch.setattr(LeanModel, "forward", forward)
    assert pair.describe()["engine"]["name"] == then


def test_logits_that_differ_at_the_check_leave_the_eager_engine(monkeypatch) -> None:
    monkeypatch.setattr(cuda_graph, "_reasons", WeakKeyDictionary())
    write = StaticPassView.write
    monkeypatch.setattr(StaticPassView, "write", lambda self, held, states: write(self, held, states * 1.01))
    assert "differ" in pair_of().describe()["engine"]["reason"]


def test_an_error_does_not_leave_its_buffers_to_the_next_call(monkeypatch) -> None:
    """An error leaves no values for the next call: NaN in a slot would survive the mask."""
    monkeypatch.setattr(cuda_graph, "_free", WeakKeyDictionary())
    pair = pair_of()
    rounds_of(pair, prompt_of(6), MODES["greedy"])
    ((kept,),) = cuda_graph._free.values()
    forward = LeanModel.forward
    monkeypatch.setattr(LeanModel, "forward", lambda self, *rest: forward(self, *rest) * math.nan)
    with pytest.raises(specdec.SpecdecError):
        rounds_of(pair, prompt_of(6), MODES["greedy"])
    monkeypatch.setattr(LeanModel, "forward", forward)
    rounds_of(pair, prompt_of(6), MODES["greedy"])
    ((after,),) = cuda_graph._free.values()
    assert after is not kept


def test_two_calls_at_once_have_buffers_of_their_own() -> None:
    pair = pair_of()
    params = specdec.SamplingParams(max_new_tokens=30, ignore_eos=True)
    prompts = prompt_of(5), prompt_of(7, seed=9)
    alone = [specdec.collect(specdec.speculative(pair, prompt, params=params)).token_ids for prompt in prompts]
    calls = [specdec.speculative(pair, prompt, params=params) for prompt in prompts]
    events = [[], []]
    for both in zip_longest(*calls):
        for found, event in zip(events, both, strict=True):
            found += [event] if event is not None else []
    assert [specdec.collect(found).token_ids for found in events] == alone


def test_a_call_in_inference_mode_leaves_buffers_for_one_outside(monkeypatch) -> None:
    monkeypatch.setattr(cuda_graph, "_free", WeakKeyDictionary())
    pair = pair_of()
    with torch.inference_mode():
        inside = told(rounds_of(pair, prompt_of(6), MODES["greedy"]))
    assert told(rounds_of(pair, prompt_of(6), MODES["greedy"])) == inside


def test_a_kept_row_may_be_longer_than_the_room() -> None:
    """A synthetic draft's text goes on after a short call."""
    buffers, prompt = torch.zeros(2, 8, dtype=torch.long), torch.arange(3)
    context = StaticTokenBuffer(prompt, buffers, StaticPositions(prompt.device, 8))
    row = context.keep(torch.arange(20))
    assert context.part(row, 3, 6).tolist() == [3, 4, 5]
