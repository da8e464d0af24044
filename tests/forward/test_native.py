"""Native passes: the logits of ``forward`` up to rounding, and a row's the same whatever runs beside it."""

from __future__ import annotations

import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakKeyDictionary

import pytest
import torch
from enumeration import OfModel
from fakes import noisy_copy, prompt_of, rounds_of, shared_tiny, tiny
from lean_models import CLOSE, MODELS, UNEVEN, WINDOWS, differences_at, logits, with_config
from transformers.activations import QuickGELUActivation

import specdec
from specdec.drafters.draft_model import DraftModel
from specdec.forward import kv_buffer, lean_check
from specdec.forward.lean import LeanModel
from specdec.forward.native import passes
from specdec.forward.native.availability import why_torch
from specdec.forward.native.passes import MOST, NativePass
from specdec.measure.enumeration import CLOSE as CLOSE_CHANCES
from specdec.measure.enumeration import distance, distribution
from specdec.report import provenance
from specdec.runtime.sampling import chance_of
from specdec.runtime.stopping import DraftStop, watch_of

EVERY = {name: make for name, make in (MODELS | WINDOWS).items() if "gpt2" not in name}
THREADS = (1, 2, 3, 7)


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lean models are built anew, on a machine that can compile."""
    if (reason := why_torch(torch.float32, torch.device("cpu"))) is not None:
        assert "no C compiler was found" in reason, reason  # our own C file must compile
        pytest.skip(reason)
    monkeypatch.setattr(lean_check, "_stacks", WeakKeyDictionary())


@pytest.fixture
def threads() -> None:
    """torch uses as many threads as before again after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def lean_of(model) -> LeanModel:
    found = lean_check.lean_model(model)
    assert isinstance(found, LeanModel) and found.why_torch is None, found
    return found


# --- what they compute -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY | UNEVEN)
def test_logits_differ_from_those_of_forward_by_rounding(name: str) -> None:
    model = (EVERY | UNEVEN)[name]()
    lean_of(model)
    assert max(differences_at(model, (0, 1, 7, 100, 700), (1, 2, 6, 17))) <= CLOSE


@pytest.mark.parametrize("name", [*UNEVEN, "llama", "qwen3", "phi3 with windows"])
def test_a_row_is_the_same_whatever_runs_beside_it(name: str, threads) -> None:
    """To the last bit: alone, beside up to 16 others, and with any number of threads."""
    lean, ids = lean_of((EVERY | UNEVEN)[name]()), prompt_of(2 * MOST)
    torch.set_num_threads(1)
    alone = logits(lean, ids, 1, context=MOST)
    for count in THREADS:
        torch.set_num_threads(count)
        for rows in range(1, MOST + 1):
            assert torch.equal(logits(lean, ids, rows, context=MOST), alone), (count, rows)


def test_a_text_longer_than_its_buffers() -> None:
    """Buffers and scratch grow with it; what was read stays."""
    lean, ids = lean_of(MODELS["qwen2"]()), prompt_of(900)
    torch.testing.assert_close(logits(lean, ids, 16)[-20:], logits(lean, ids, 6, context=880), rtol=0, atol=1e-4)


def test_the_text_is_that_of_generate_and_the_events_say_so() -> None:
    target = shared_tiny("llama", 1, layers=3)
    pair = specdec.Pair(target, noisy_copy(target, 1))
    params = specdec.SamplingParams(max_new_tokens=40, ignore_eos=True)
    plain = specdec.collect(specdec.generate(pair, prompt_of(7), params=params)).token_ids
    events = list(specdec.speculative(pair, prompt_of(7), gamma=4, params=params))
    assert specdec.collect(iter(events)).token_ids == plain and len(rounds_of(events)) < 40
    facts = events[0].pair
    assert facts["target"]["torch_passes"] is None is facts["draft"]["torch_passes"]
    assert provenance.passes(facts).endswith("Passes over few rows run in C.")


@pytest.mark.parametrize("vocabulary", [320, 333])  # with and without a tail
def test_a_chain_ends_where_the_probabilities_say(vocabulary: int) -> None:
    """In C as in ``Watch``: by the chance of a guess, and by that of all so far, at each place."""
    lean = lean_of(tiny("llama", 3, vocab_size=vocabulary))
    ids, count = prompt_of(9), 8
    rows, chosen = lean.greedy(ids, lean.new_buffer(), 0, count)
    chances = chance_of(rows[len(ids) - 1 :], chosen).tolist()
    survival = list(itertools.accumulate(chances, lambda a, b: a * b))
    stops = [DraftStop(least_chance=least) for least in (0.0, sorted(chances)[count // 2], 1.0)]
    for place in range(count):  # the product falls, so a bound between two places ends the draft at the second
        stops.append(DraftStop(least_survival=(0.0,) * place + (1.0,)))
        stops.append(DraftStop(least_survival=(0.99 * survival[place],) * count))
    stops += [DraftStop(least_survival=(0.3,) * count, slope=slope, bias=bias) for slope, bias in ((0.5, 3), (2, -1))]
    for stop in stops:
        watch = watch_of(stop, blocks_host=False)
        made = next((n for n, chance in enumerate(chances, start=1) if watch.ends(chance)), count)
        logits_, found = lean.greedy(ids, lean.new_buffer(), 0, count, stop)
        assert found.tolist() == chosen[:made].tolist(), stop
        assert torch.equal(logits_, rows[: len(ids) + made - 1])
    assert len({next((n for n, c in enumerate(survival, 1) if c < 0.99 * survival[k]), 0) for k in range(count)}) > 2


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "qwen2 with windows in some layers"])
def test_a_greedy_chain_is_that_of_passes_one_by_one(name: str) -> None:
    """Its logits, its choices and what it leaves in the buffer, for one and for two unread ids."""
    lean, ids = lean_of(EVERY[name]()), prompt_of(12)
    for unread in (1, 2):
        together, apart = lean.new_buffer(), lean.new_buffer()
        for buffer in (together, apart):
            lean.forward(ids[:-unread], buffer, 0, None)
        found, chosen = lean.greedy(ids[-unread:], together, 12 - unread, 5)
        fed, start, rows, choices = ids[-unread:], 12 - unread, [], []
        for _ in range(5):
            rows.append(lean.forward(fed, apart, start, None))
            start, fed = start + len(fed), rows[-1][-1:].argmax(-1)
            choices.append(fed)
        assert torch.equal(found, torch.cat(rows)) and torch.equal(chosen, torch.cat(choices))
        after = [lean.forward(ids[:1], buffer, start, None) for buffer in (together, apart)]
        assert torch.equal(*after)


def test_the_first_of_equal_logits_is_chosen_as_torch_chooses() -> None:
    model = tiny("llama")
    lean = lean_of(model)
    head = model.get_output_embeddings().weight.data
    head[:] = head[7]
    assert lean.greedy(prompt_of(3), lean.new_buffer(), 0, 2)[1].tolist() == [0, 0]
    head[:5] = 0
    logits_ = lean.forward(prompt_of(3), lean.new_buffer(), 0, 1)
    assert lean.greedy(prompt_of(3), lean.new_buffer(), 0, 1)[1].tolist() == logits_.argmax(-1).tolist()


def test_a_chain_where_torch_runs_passes_is_left_to_the_loop() -> None:
    lean = lean_of(tiny("llama"))
    lean.use_torch("This is a test.")
    assert lean.greedy(prompt_of(3), lean.new_buffer(), 0, 2) is None


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("acceptance", ["lossless", "block"])
def test_sampled_text_has_the_targets_distribution(acceptance: str, rounded: bool) -> None:
    """Every outcome of every draw; also with a draft whose weights are read in 8 bits."""
    target = with_config("llama", vocab_size=3)
    lean_of(target)
    pair = specdec.Pair(target, DraftModel(noisy_copy(target, 1, 0.1), rounded=rounded))
    prompt, params = (1, 2, 1), specdec.SamplingParams(temperature=1.5, max_new_tokens=3, seed=0, ignore_eos=True)

    def write() -> tuple[int, ...]:
        lane = specdec.speculative(pair, torch.tensor(prompt), gamma=2, params=params, acceptance=acceptance)
        return tuple(itertools.chain.from_iterable(event.committed_ids for event in rounds_of(list(lane))))

    texts, paths = distribution(write, every=acceptance == "block")
    assert paths > 20
    assert distance(texts, OfModel(target, prompt, params).completed({(): 1.0})) < CLOSE_CHANCES


# --- what they must not change ---------------------------------------------------------------------------------------


def test_weights_that_move_while_a_text_is_written_are_followed() -> None:
    """``share_memory`` does that, so a process that hands a model to another one does too."""
    target = tiny("llama")
    pair = specdec.Pair(target, noisy_copy(target, 1))
    params = specdec.SamplingParams(max_new_tokens=30, ignore_eos=True)
    expected = specdec.collect(specdec.speculative(pair, prompt_of(7), gamma=3, params=params)).token_ids
    events = specdec.speculative(pair, prompt_of(7), gamma=3, params=params)
    begun = [next(events), next(events), next(events)]
    target.share_memory()
    assert specdec.collect(itertools.chain(begun, events)).token_ids == expected


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_the_default_type_of_the_process_changes_nothing(kind: torch.dtype) -> None:
    """transformers sets it while it loads a model, which another thread may do."""
    lean, ids = lean_of(tiny("llama")), prompt_of(9)
    expected, chain = logits(lean, ids, 3), lean.greedy(ids, lean.new_buffer(), 0, 3)
    torch.set_default_dtype(kind)
    try:
        buffer = lean.new_buffer()
        assert torch.equal(lean.forward(ids, buffer, 0, None), logits(lean, ids, 9))
        assert torch.equal(logits(lean, ids, 3), expected)
        assert all(map(torch.equal, lean.greedy(ids, lean.new_buffer(), 0, 3), chain))
    finally:
        torch.set_default_dtype(torch.float32)


def pruned_mlp(model) -> None:
    mlp = model.model.layers[1].mlp
    for name in ("gate_proj", "up_proj"):
        module = getattr(mlp, name)
        module.weight = torch.nn.Parameter(module.weight.detach()[:8].clone())
    mlp.down_proj.weight = torch.nn.Parameter(mlp.down_proj.weight.detach()[:, :8].clone())


def one_number_for_a_norm(model) -> None:
    model.model.norm.weight = torch.nn.Parameter(torch.ones(1))


@pytest.mark.parametrize("change", [pruned_mlp, one_number_for_a_norm])
def test_weights_of_another_shape_are_left_to_torch(change) -> None:
    """C relies on one shape for all layers."""
    model = tiny("llama")
    change(model)
    lean = lean_check.lean_model(model)
    assert isinstance(lean, str) or lean.why_torch == passes.OTHER_SHAPE


def test_a_config_that_does_not_fit_the_weights_crashes_nothing() -> None:
    model = tiny("llama")
    model.config.num_key_value_heads *= 64
    assert isinstance(lean_check.lean_model(model), str)


def test_ids_of_another_type_and_no_rows_to_keep() -> None:
    lean, ids = lean_of(tiny("llama")), prompt_of(5)
    expected = lean.forward(ids, lean.new_buffer(), 0, None)
    assert torch.equal(lean.forward(ids.int(), lean.new_buffer(), 0, 0), expected)


def test_a_buffer_that_could_not_grow_is_not_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    lean, ids = lean_of(tiny("llama")), prompt_of(400)
    buffer = lean.new_buffer()
    lean.forward(ids[:5], buffer, 0, None)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(kv_buffer, "angles", interrupted)
        buffer.reserve(400)
    start = 0
    for part in ids.split(16):
        found, start = lean.forward(part, buffer, start, None), start + len(part)
    assert torch.equal(found, logits(lean, ids, 16)[-len(found) :])


def test_weights_changed_in_place_are_read() -> None:
    model, ids = tiny("llama"), prompt_of(5)
    before = logits(lean_of(model), ids, 5)
    model.model.layers[0].mlp.down_proj.weight.data.mul_(2)  # unseen by torch's count of changes
    after = logits(lean_of(model), ids, 5)
    assert not torch.equal(before, after)
    assert float(lean_check.share_apart(after, model(ids[None]).logits[0].detach())) < CLOSE


def test_small_numbers_of_the_process_stay(threads) -> None:
    """A library that is linked with -ffast-math makes every thread of the process compute them as zero."""
    torch.set_num_threads(3)
    lean = lean_of(tiny("llama"))
    logits(lean, prompt_of(3), 3)
    assert float(torch.tensor(1e-40) * 1.0) > 0


@pytest.mark.parametrize("nan", [float("nan"), torch.tensor([0x7FC00001]).int().view(torch.float32).item()])
@pytest.mark.parametrize("place", ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])
def test_nan_in_a_weight_reaches_the_logits(place: str, nan: float) -> None:
    """Nothing on the way may swallow it, so that it is told and not decoded."""
    model = tiny("llama")
    lean = lean_of(model)
    layer = model.model.layers[0]
    getattr(layer.self_attn if hasattr(layer.self_attn, place) else layer.mlp, place).weight.data.fill_(nan)
    assert logits(lean, prompt_of(4), 4).isnan().all()


def test_a_layernorm_whose_variance_overflows_gives_nan() -> None:
    model = MODELS["gpt_neox"]()
    lean = lean_of(model)
    model.gpt_neox.embed_in.weight.data.mul_(1e25)
    assert logits(lean, prompt_of(3), 3).isnan().all() and model(prompt_of(3)[None]).logits.isnan().all()


def test_ids_that_there_are_not_are_refused() -> None:
    """As torch does. C would read past the end of a table."""
    lean = lean_of(tiny("llama"))
    for wrong in (320, -1):
        with pytest.raises(IndexError, match="not in 0 to 319"):
            lean.forward(torch.tensor([1, wrong]), lean.new_buffer(), 0, None)


# --- where they run --------------------------------------------------------------------------------------------------


def test_early_exits_and_taps() -> None:
    lean, ids, found = lean_of(tiny("llama", layers=4)), prompt_of(9), {}
    for how in ("native", "torch"):
        if how == "torch":
            lean.use_torch("This is a test.")
        taps = dict.fromkeys((0, 2, 4), torch.empty(0))
        with torch.inference_mode():
            whole = lean.forward(ids, lean.new_buffer(), 0, 3, taps)
            early = lean.first(2).forward(ids, lean.new_buffer(), 0, None)
        found[how] = [whole, early, *taps.values()]
    assert [len(part) for part in found["native"]] == [3, 9, 9, 9, 9]
    for ours, theirs in zip(*found.values(), strict=True):
        assert float(lean_check.share_apart(ours, theirs)) < CLOSE


def test_torch_runs_under_autocast_and_over_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    lean = lean_of(tiny("llama"))
    monkeypatch.setattr(NativePass, "logits", None)  # would fail
    logits(lean, prompt_of(MOST + 1), MOST + 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits(lean, prompt_of(3), 3)


def test_a_pass_that_computes_something_else_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = NativePass.logits
    monkeypatch.setattr(NativePass, "logits", lambda *given: right(*given) + torch.linspace(0, 1, 320))
    model = tiny("llama")
    lean = lean_check.lean_model(model)
    assert lean.why_torch == "Its native passes would give other logits than transformers."
    assert torch.equal(logits(lean, prompt_of(4), 4), model(prompt_of(4)[None]).logits[0])


def test_gpt2_is_left_to_torch() -> None:
    """Its weights are stored transposed. In C a pass over one row of them took longer than in torch."""
    assert "rotary angles" in lean_check.lean_model(MODELS["gpt2"]()).why_torch


def test_an_unknown_activation_is_named() -> None:
    model = tiny("llama")
    for layer in model.model.layers:
        layer.mlp.act_fn = QuickGELUActivation()
    assert "QuickGELUActivation" in lean_check.lean_model(model).why_torch


def test_other_numbers_than_float32_are_left_to_torch() -> None:
    assert "float32 weights on a CPU" in why_torch(torch.bfloat16, torch.device("cpu"))
    assert "float32 weights on a CPU" in why_torch(torch.float32, torch.device("cuda"))


def test_each_model_is_named_where_they_differ() -> None:
    model = {"name": "a", "layers": 1, "dtype": "float32", "bits": None, "own_forward": None}
    facts = {"target": model | {"torch_passes": None}, "draft": model | {"torch_passes": "It is."}}
    said = "Passes of the target over few rows run in C. Passes of the draft run in torch. It is."
    assert provenance.passes(facts).endswith(f"those of transformers. {said}")


# --- threads and processes -------------------------------------------------------------------------------------------


def test_calls_at_the_same_time(threads) -> None:
    """One of them has the threads, and the others run alone; the logits are the same."""
    torch.set_num_threads(3)
    lean, ids = lean_of(MODELS["llama"]()), prompt_of(300)
    expected, begin = logits(lean, ids, 3), threading.Barrier(4)

    def again() -> bool:
        begin.wait()
        return all(torch.equal(logits(lean, ids, 3), expected) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: again(), range(4)))


def test_a_forked_process_has_threads_of_its_own(threads) -> None:
    torch.set_num_threads(3)
    lean, ids = lean_of(MODELS["llama"]()), prompt_of(4)
    buffer = lean.new_buffer()  # the forked process uses it again, because torch's own threads do not survive a fork
    expected = lean.forward(ids, buffer, 0, None)
    child = os.fork()
    if not child:
        os._exit(0 if all(torch.equal(lean.forward(ids, buffer, 0, None), expected) for _ in range(20)) else 1)
    assert os.waitpid(child, 0)[1] == 0
