"""The lean forward gives the logits of a model's own ``forward``. Where it could not, ``forward`` runs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import re
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from accelerate import cpu_offload
from fakes import byte_tokenizer, prompt_of, shared_tiny, tiny
from lean_models import CLOSE, LAST_BIT, MODELS, WINDOWS, differences_at, with_config
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import register_parametrization
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import specdec
from specdec.drafters.early_exit import first_layers
from specdec.forward import lean_check, weights
from specdec.forward.lean import LeanForward, LeanModel
from specdec.forward.runner import Runner
from specdec.report import provenance

pytestmark = pytest.mark.usefixtures("torch_passes")


def differences(model: PreTrainedModel, rows: tuple[int, ...]) -> list[float]:
    """The difference of logits as a share of their range, in successive passes of these numbers of rows."""
    ids, cache, runner = prompt_of(sum(rows)), DynamicCache(config=model.config), Runner(model)
    assert isinstance(runner._passes, LeanForward), lean_check.lean_model(model)
    found, start = [], 0
    with torch.inference_mode():
        for count in rows:
            fed = ids[start : start + count]
            own = model(input_ids=fed[None], past_key_values=cache).logits[0]
            ours = runner.forward(fed)
            found.append(float((own.float() - ours).abs().max() / (own.max() - own.min())))
            start += count
    return found


CONTEXTS, COUNTS = (0, 1, 2, 16, 100, 500, 2000), (1, 2, 3, 6, 9, 17)


def test_every_family_is_compared() -> None:
    assert {type(make()).__name__ for make in MODELS.values()} == set(weights.FAMILIES)


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_forward_to_the_last_bit(name: str) -> None:
    assert max(differences_at(MODELS[name](), CONTEXTS, COUNTS)) == LAST_BIT


@pytest.mark.parametrize("name", WINDOWS)
def test_logits_beyond_a_sliding_window_differ_by_rounding_only(name: str) -> None:
    """Beyond a sliding window logits differ by rounding only: transformers gives its kernel fewer keys there."""
    assert max(differences_at(WINDOWS[name](), CONTEXTS, COUNTS)) <= CLOSE
    assert max(differences(WINDOWS[name](), (3, 1, 2, 5, *range(1, 18), 60, 1, 6, 300, 1, 17))) <= CLOSE


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral", "smollm3", "phi3", "gpt2", "gpt_neox"])
def test_half_precision_differs_by_no_more_than_forward_from_itself(name: str) -> None:
    """In half precision the lean model differs from ``forward`` no more than ``forward`` over other row counts does."""
    model, ids = MODELS[name]().bfloat16(), prompt_of(40)
    with torch.inference_mode():
        whole, cache = model(input_ids=ids[None]).logits[0], DynamicCache(config=model.config)
        rows = [model(input_ids=ids[None, i : i + 1], past_key_values=cache).logits[0] for i in range(40)]
    spread = float((whole - torch.cat(rows)).abs().max() / (whole.max() - whole.min()))
    assert 0 < spread and max(differences_at(model, (0, 16, 100, 500), COUNTS)) <= spread


def test_a_rollback_leaves_nothing_behind() -> None:
    model, ids = shared_tiny("llama"), prompt_of(24)
    other = prompt_of(24, seed=1)
    runner, fresh = Runner(model), Runner(model)
    with torch.inference_mode():
        runner.forward(ids[:6])
        runner.forward(other[6:12])
        runner.crop_to(8)
        after = runner.forward(ids[8:11])
        fresh.forward(torch.cat([ids[:6], other[6:8]]))
        assert len(runner) == 11
        torch.testing.assert_close(after, fresh.forward(ids[8:11]))


def test_the_embedded_pair_far_into_a_text_and_where_few_rows_are_kept() -> None:
    for model in specdec.load_pair().models(drafting=True):
        ids, runner, cache = prompt_of(1100), Runner(model), DynamicCache(config=model.config)
        with torch.inference_mode():
            for begin, end, keep in ((0, 1000, 1), (1000, 1001, 1), (1001, 1007, 6), (1007, 1024, 1), (1024, 1026, 2)):
                fed = ids[begin:end]
                theirs = model(input_ids=fed[None], past_key_values=cache, logits_to_keep=keep).logits[0]
                assert torch.equal(runner.forward(fed, keep), theirs)


def test_no_weight_is_held_twice_and_the_model_is_as_it_was(tmp_path) -> None:
    """Joined matrices share the parameters' memory. Values, training and saving do not change."""
    model = tiny("llama", layers=3)
    before = copy.deepcopy(model.state_dict())
    stack = lean_check.lean_model(model)
    assert isinstance(stack, LeanModel)
    storages = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for part in model.parameters()}
    assert sum(storages.values()) == sum(part.nbytes for part in model.parameters())
    for layer in stack.layers:
        assert {layer.qkv.weight.untyped_storage().data_ptr(), layer.up.weight.untyped_storage().data_ptr()} <= set(
            storages
        )
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in before.items())
    model(input_ids=prompt_of(4)[None]).logits.sum().backward()
    assert model.model.layers[0].self_attn.k_proj.weight.grad is not None


def test_weights_that_change_are_seen() -> None:
    """The next call reads changed weights, whether changed in place, by number type or by a new set."""
    model, ids = tiny("llama"), prompt_of(5)
    Runner(model)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.mul_(1.5)
    assert differences(model, (5, 1)) == [0, 0]
    model.bfloat16()
    assert max(differences(model, (5, 1))) < lean_check.BOUNDS[torch.bfloat16]
    model.float().load_state_dict(tiny("llama", seed=3).state_dict())
    assert differences(model, (5, 1)) == [0, 0]
    assert not torch.equal(Runner(model).forward(ids), Runner(tiny("llama")).forward(ids))


def test_a_family_that_is_described_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares before decoding, and the text still equals ``generate``."""
    wrong = dataclasses.replace(weights.FAMILIES["LlamaForCausalLM"], mlp_norm="input_layernorm")
    monkeypatch.setitem(weights.FAMILIES, "LlamaForCausalLM", wrong)
    model = tiny("llama")
    with torch.no_grad():
        model.model.layers[0].post_attention_layernorm.weight.mul_(2)
    pair = specdec.Pair(model, specdec.PromptLookup(), byte_tokenizer())
    assert "differ" in pair.describe()["target"]["own_forward"]
    params = specdec.SamplingParams(max_new_tokens=12)
    ours = specdec.collect(specdec.speculative(pair, prompt_of(5), gamma=3, params=params))
    assert ours.token_ids == specdec.collect(specdec.generate(pair, prompt_of(5), params=params)).token_ids


def hook(model, monkeypatch) -> None:
    model.register_forward_pre_hook(lambda *_: None)


def hook_within(model, monkeypatch) -> None:
    model.model.layers[1].self_attn.o_proj.register_forward_hook(lambda *_: None)


def replaced(model, monkeypatch) -> None:
    model.forward = model.forward


def patched(model, monkeypatch) -> None:
    forward = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, *args, **kwargs: forward(self, *args, **kwargs))


def patched_to_look_alike(model, monkeypatch) -> None:
    """Patch ``forward`` as tracing tools do, with the original's name, module and signature."""
    forward = type(model).forward
    monkeypatch.setattr(
        type(model), "forward", functools.wraps(forward)(lambda *args, **kwargs: forward(*args, **kwargs))
    )


def patched_layers(model, monkeypatch) -> None:
    forward = type(model.model.layers[0]).forward
    patch = functools.wraps(forward)(lambda *args, **kwargs: forward(*args, **kwargs))
    monkeypatch.setattr(type(model.model.layers[0]), "forward", patch)


def patched_matrices(model, monkeypatch) -> None:
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: forward(self, x))


def called_by_another_name(model, monkeypatch) -> None:
    monkeypatch.setattr(type(model), "forward", functools.partialmethod(type(model).forward))


def from_a_package_with_a_name_like_torch(model, monkeypatch) -> None:
    folder = Path(torch.__file__).parent.with_name("torchao")
    names: dict = {"torch": torch}
    code = "class Other(torch.nn.Linear):\n    def forward(self, x): return 2 * super(Other, self).forward(x)"
    exec(compile(code, str(folder / "linear.py"), "exec"), names)
    model.model.layers[0].mlp.down_proj.__class__ = names["Other"]


def other_attention(model, monkeypatch) -> None:
    attention = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", lambda *args, **kwargs: attention(*args, **kwargs))


def compiled_within(model, monkeypatch) -> None:
    model.model.compile()


def written_out(model, monkeypatch) -> None:
    model.set_attn_implementation("eager")


def in_training(model, monkeypatch) -> None:
    model.train()


def spread(model, monkeypatch) -> None:
    cpu_offload(model)


def normed_anew(model, monkeypatch) -> None:
    spectral_norm(model.model.layers[0].mlp.down_proj)


def of_two_types(model, monkeypatch) -> None:
    model.lm_head.bfloat16()


def doubled(model, monkeypatch) -> None:
    model.double()


def on_no_device(model, monkeypatch) -> None:
    model.to("meta")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hook, "hook"),
        (hook_within, "hook"),
        (replaced, "is replaced"),
        (patched, "LlamaForCausalLM.forward"),
        (patched_to_look_alike, "LlamaForCausalLM.forward"),
        (patched_layers, "LlamaDecoderLayer.forward"),
        (patched_matrices, "Linear.forward"),
        (called_by_another_name, "LlamaForCausalLM.forward"),
        (from_a_package_with_a_name_like_torch, "Other.forward"),
        (other_attention, "sdpa is replaced"),
        (compiled_within, "compiled"),
        (written_out, "eager"),
        (in_training, "training"),
        (spread, "spread"),
        (normed_anew, "ParametrizedLinear"),
        (of_two_types, "bfloat16 and float32"),
        (doubled, "float64"),
        (on_no_device, "not loaded"),
    ],
)
def test_a_changed_model_uses_its_own_forward(change, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed model uses its own forward. The reason is named, and the old stack is freed."""
    model = tiny("llama")
    before = weakref.ref(lean_check.lean_model(model))
    assert isinstance(before(), LeanModel)
    change(model, monkeypatch)
    assert reason in str(lean_check.lean_model(model))
    gc.collect()
    assert before() is None


def test_a_reason_is_gone_when_its_cause_is() -> None:
    model = tiny("llama")
    model.lm_head.bfloat16()
    assert "bfloat16" in str(lean_check.lean_model(model))
    assert isinstance(lean_check.lean_model(model.float()), LeanModel)
    assert isinstance(lean_check.lean_model(model.train()), str) and isinstance(
        lean_check.lean_model(model.eval()), LeanModel
    )


def shared_module(first, second) -> None:
    second.self_attn.k_proj = first.self_attn.k_proj


def shared_parameter(first, second) -> None:
    second.self_attn.q_proj.weight = first.self_attn.q_proj.weight


def values_that_are_keys(first, second) -> None:
    first.self_attn.v_proj = first.self_attn.k_proj


def one_memory(first, second) -> None:
    second.mlp.up_proj.weight.data = first.mlp.gate_proj.weight.data


def parts_of_one_memory(first, second) -> None:
    both = torch.cat([first.self_attn.v_proj.weight.data, first.self_attn.k_proj.weight.data])
    first.self_attn.v_proj.weight.data, second.self_attn.k_proj.weight.data = both[:24], both[1:25]


@pytest.mark.parametrize(
    "share", [shared_module, shared_parameter, values_that_are_keys, one_memory, parts_of_one_memory]
)
@pytest.mark.parametrize("first", [True, False], ids=["before the first call", "later"])
def test_weights_that_two_parts_share_change_for_both(share, first: bool) -> None:
    """Joined matrices would hold a copy of a shared weight that does not change with it."""
    model, ids = tiny("llama"), prompt_of(5)
    if not first:
        Runner(model)
    share(*model.model.layers)
    Runner(model).forward(ids)
    for layer in model.model.layers:
        for module in (layer.self_attn.q_proj, layer.self_attn.k_proj, layer.mlp.gate_proj):
            module.weight.data.mul_(1.5)
    with torch.inference_mode():
        assert torch.equal(Runner(model).forward(ids), model(input_ids=ids[None]).logits[0])
    assert "share" in str(lean_check.lean_model(model))


def test_one_matrix_at_both_ends_is_no_hindrance() -> None:
    assert isinstance(lean_check.lean_model(with_config("llama", tie_word_embeddings=True)), LeanModel)


def test_what_was_found_while_weights_held_nan_is_not_kept() -> None:
    """Mended unseen, by ``data``: neither the place nor the version of a weight tells."""
    model = tiny("llama")
    whole = model.lm_head.weight.data.clone()
    model.lm_head.weight.data[3] = float("nan")
    assert "NaN" in str(lean_check.lean_model(model))
    model.lm_head.weight.data.copy_(whole)
    assert isinstance(lean_check.lean_model(model), LeanModel)


def weights_as_an_attribute(model) -> None:
    norm = model.model.norm
    weight = norm.weight.data
    del norm.weight
    norm.weight = weight


def weights_that_are_computed(model) -> None:
    class Doubled(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight

    register_parametrization(model.model.norm, "weight", Doubled())


def largest_norm(model) -> None:
    model.model.embed_tokens.max_norm = 0.1


def called_in_another_way(model) -> None:
    model.model.norm.__class__ = type(
        "Other", (type(model.model.norm),), {"__call__": lambda self, x: 2 * self.forward(x)}
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (weights_as_an_attribute, "not a parameter"),
        (weights_that_are_computed, "computed"),
        (largest_norm, "largest norm"),
        (called_in_another_way, "Other"),
    ],
)
def test_parts_whose_changes_nobody_sees_are_left_to_forward(change, reason: str) -> None:
    model = tiny("llama")
    change(model)
    assert reason in str(lean_check.lean_model(model))


def fewer_layers(model) -> None:
    model.config.num_hidden_layers = 1


def other_activation(model) -> None:
    model.model.layers[1].mlp.act_fn = torch.nn.Tanh()


def other_angles(model) -> None:
    model.model.rotary_emb = tiny_with_base(5e5).model.rotary_emb


def tiny_with_base(base: float) -> PreTrainedModel:
    return with_config("llama", rope_parameters={"rope_type": "default", "rope_theta": base})


def other_epsilon(model) -> None:
    model.model.layers[0].input_layernorm.variance_epsilon = 0.3


def other_scale(model) -> None:
    model.model.layers[1].self_attn.scaling *= 2


def other_frequencies(model) -> None:
    model.model.rotary_emb.inv_freq.mul_(0.5)


def other_frequencies_unseen(model) -> None:
    model.model.rotary_emb.inv_freq.data.mul_(0.5)


def other_scale_of_angles(model) -> None:
    model.model.rotary_emb.attention_scaling = 1.5


def turned_matrix(model) -> None:
    weight = model.model.layers[0].self_attn.o_proj.weight
    weight.data = weight.data.t()


def not_causal(model) -> None:
    for layer in model.model.layers:
        layer.self_attn.is_causal = False


def other_head_norms(model) -> None:
    model.model.layers[0].self_attn.q_norm.variance_epsilon = 0.3


def other_epsilon_of_gpt2(model) -> None:
    model.transformer.ln_f.eps = 0.3


def residuals_in_sequence(model) -> None:
    model.gpt_neox.layers[0].use_parallel_residual = False


@pytest.mark.parametrize(
    ("family", "change"),
    [
        *(("llama", change) for change in (fewer_layers, other_activation, other_angles, other_epsilon, other_scale)),
        *(("llama", change) for change in (other_frequencies, other_frequencies_unseen, other_scale_of_angles)),
        *(("llama", change) for change in (turned_matrix, not_causal)),
        ("qwen3", other_head_norms),
        ("gpt2", other_epsilon_of_gpt2),
        ("gpt_neox", residuals_in_sequence),
    ],
)
def test_a_change_of_the_model_is_seen_by_the_next_call(family: str, change) -> None:
    model, ids = tiny(family), prompt_of(6)
    Runner(model).forward(ids)
    change(model)
    with torch.inference_mode():
        own = model(input_ids=ids[None]).logits[0]
        torch.testing.assert_close(Runner(model).forward(ids), own)


@pytest.mark.parametrize(
    "model",
    [
        lambda: with_config("llama", sliding_window=24),
        lambda: with_config("llama", attention_chunk_size=24),
        lambda: with_config("gpt2", sliding_window=24),
        lambda: with_config("gpt_neox", sliding_window=24),
        lambda: with_config("mistral", sliding_window=None, attention_chunk_size=24),
    ],
)
def test_settings_that_only_a_long_text_shows_are_left_to_forward(model) -> None:
    """Some settings act only in long texts, which the comparison at load cannot see, so ``forward`` is used."""
    assert re.search("sliding window|attention_chunk_size", str(lean_check.lean_model(model())))


def made_in_inference_mode() -> PreTrainedModel:
    with torch.inference_mode():
        return tiny("llama")


def packed() -> PreTrainedModel:
    return torch.ao.quantization.quantize_dynamic(tiny("llama"), {torch.nn.Linear}, dtype=torch.qint8)


@pytest.mark.parametrize(
    ("make", "lean_one"),
    [
        (made_in_inference_mode, False),
        (packed, False),
        (lambda: with_config("gpt_neox", num_key_value_heads=2), True),
        (lambda: with_config("gpt2", num_key_value_heads=2), True),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_model_without_a_lean_forward_raises_nothing(make, lean_one: bool) -> None:
    model, ids = make(), prompt_of(6)
    assert isinstance(lean_check.lean_model(model), LeanModel) == lean_one
    with torch.inference_mode():
        torch.testing.assert_close(Runner(model).forward(ids), model(input_ids=ids[None]).logits[0])


def test_threads_that_start_together_share_one_stack() -> None:
    """Threads that start together share one stack.

    Two stacks would keep a copy of weights that the model no longer has.
    """
    for _ in range(5):
        model = tiny("llama", layers=4)
        with ThreadPoolExecutor(4) as pool:
            stacks = list(pool.map(lean_check.lean_model, [model] * 4))
        assert len(set(map(id, stacks))) == 1 and isinstance(stacks[0], LeanModel)


@pytest.mark.parametrize("listen", [register_module_forward_hook, register_module_forward_pre_hook])
def test_a_global_hook_sees_all_passes(listen) -> None:
    """With a global hook, as profilers set it, ``forward`` runs, so that the hook sees every pass."""
    model, heard = tiny("llama"), []
    handle = listen(lambda module, *args: heard.append(module))
    try:
        Runner(model).forward(prompt_of(3))
    finally:
        handle.remove()
    assert model in heard
    assert isinstance(Runner(model)._passes, LeanForward)


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_angles_that_change_with_the_length_are_left_to_forward(rope_type: str) -> None:
    settings = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 512}
    half = shared_tiny("phi3").config.hidden_size // shared_tiny("phi3").config.num_attention_heads // 2
    settings |= {"short_factor": [1.0] * half, "long_factor": [2.0] * half} if rope_type == "longrope" else {}
    family = "phi3" if rope_type == "longrope" else "llama"
    assert rope_type in lean_check.lean_model(with_config(family, rope_parameters=settings))


def test_other_families_have_none() -> None:
    assert "Gemma2ForCausalLM" in str(lean_check.lean_model(tiny("gemma2")))
    assert "MixtralForCausalLM" in str(lean_check.lean_model(tiny("mixtral")))
    assert "spread" in str(lean_check.lean_model(first_layers(cpu_offload(tiny("llama", layers=3)), 2)))


def test_an_early_exit_writes_into_the_slots_of_its_target() -> None:
    """An early exit has the logits of the first layers' forward, and the target continues from its cache slots."""
    target, ids = tiny("llama", layers=4), prompt_of(9)
    view, runner, alone = first_layers(target, 2), Runner(target), Runner(target)
    early = runner.sharing(view)
    with torch.inference_mode():
        runner.forward(ids[:5])
        early.follow(5)
        own = view(input_ids=ids[None]).logits[0]
        torch.testing.assert_close(early.forward(ids[5:9]), own[5:9])
        early.crop_to(5)
        alone.forward(ids[:5])
        torch.testing.assert_close(runner.forward(ids[5:9]), alone.forward(ids[5:9]))
    assert early._passes._buffer is runner._passes._buffer, "no layer holds a token twice"


def test_which_forward_runs_is_said_with_its_reason() -> None:
    """Details say that both models use the lean forward, or which of them does not, and why."""
    lookup = specdec.PromptLookup()
    assert provenance.passes(specdec.Pair(tiny("llama"), lookup).describe()).startswith("lean forward")
    said = provenance.passes(specdec.Pair(tiny("llama"), tiny("gemma2")).describe())
    assert "target: lean forward" in said and "draft: the forward pass of transformers. Gemma2ForCausalLM" in said
    assert provenance.passes({"target": {}, "draft": None}) == "not recorded"
