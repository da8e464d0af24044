"""Lean stacks: the logits are those of a model's own ``forward``, and where they could not be, ``forward`` runs."""

from __future__ import annotations

import copy
import dataclasses
import functools

import pytest
import torch
from accelerate import cpu_offload
from fakes import byte_tokenizer, prompt_of, shared_tiny, tiny
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel, SmolLM3Config

import specdec
from specdec.drafters.early_exit import first_layers
from specdec.passes import lean, stacks
from specdec.passes.own import OwnPasses
from specdec.passes.runner import Runner
from specdec.passes.stacks import Stack, StackPasses

CONTEXT = 2100
LAST_BIT, CLOSE = 0.0, 1e-5  # of the range of the logits


def smollm3(**settings) -> PreTrainedModel:
    """One layer in four without rotary angles, as the family has it."""
    torch.manual_seed(0)
    config = SmolLM3Config(
        vocab_size=320, hidden_size=48, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=CONTEXT, initializer_range=0.3, pad_token_id=None,
        bos_token_id=None, eos_token_id=None, **settings,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


def with_config(family: str, **settings) -> PreTrainedModel:
    """A tiny model of ``family`` with other settings in its config."""
    config = copy.deepcopy(shared_tiny(family, context=CONTEXT).config)
    for name, value in settings.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}
MODELS = {
    "llama": lambda: with_config("llama"),
    "llama with biases and one matrix for both ends": lambda: with_config(
        "llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "llama 3": lambda: with_config("llama", rope_parameters=LLAMA3),
    "llama with yarn": lambda: with_config("llama", rope_parameters=YARN),
    "qwen2": lambda: with_config("qwen2"),
    "qwen3": lambda: with_config("qwen3"),
    "mistral": lambda: with_config("mistral", sliding_window=None),
    "smollm3": smollm3,
    "phi3": lambda: with_config("phi3"),
    "phi3 with half of a head rotated": lambda: with_config(
        "phi3", rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    ),
    "gpt2": lambda: with_config("gpt2"),
    "gpt2 with scales by layer": lambda: with_config("gpt2", scale_attn_by_inverse_layer_idx=True),
    "gpt_neox": lambda: with_config("gpt_neox"),
    "gpt_neox in sequence": lambda: with_config("gpt_neox", use_parallel_residual=False),
}
WINDOWS = {
    "mistral with windows": lambda: with_config("mistral", sliding_window=8),
    "phi3 with windows": lambda: with_config("phi3", sliding_window=8),
    "qwen2 with windows in some layers": lambda: with_config(
        "qwen2", use_sliding_window=True, sliding_window=8, layer_types=["full_attention", "sliding_attention"]
    ),
    "smollm3 with windows": lambda: smollm3(use_sliding_window=True, sliding_window=8),
}


def differences(model: PreTrainedModel, rows: tuple[int, ...]) -> list[float]:
    """By how much logits differ, as a share of their range, in passes of so many rows one behind the other."""
    ids, cache, runner = prompt_of(sum(rows)), DynamicCache(config=model.config), Runner(model)
    assert isinstance(runner._passes, StackPasses), lean.stack_of(model)
    found, start = [], 0
    with torch.inference_mode():
        for count in rows:
            fed = ids[start : start + count]
            own = model(input_ids=fed[None], past_key_values=cache).logits[0]
            ours = runner.forward(fed)
            found.append(float((own.float() - ours).abs().max() / (own.max() - own.min())))
            start += count
    return found


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_forward_to_the_last_bit(name: str) -> None:
    """1 to 17 rows behind 1 to 2,000 tokens."""
    rows = (1, 1, 2, 5, *range(1, 18), 60, 1, 6, 800, 1, 3, 17, 900, *range(1, 18, 4))
    assert max(differences(MODELS[name](), rows)) == LAST_BIT


@pytest.mark.parametrize("name", WINDOWS)
def test_so_they_are_behind_a_window_but_for_rounding(name: str) -> None:
    """transformers hands its kernel fewer keys there, so sums are rounded elsewhere."""
    assert max(differences(WINDOWS[name](), (3, 1, 2, 5, *range(1, 18), 60, 1, 6, 300, 1, 17))) <= CLOSE


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gpt_neox"])
def test_half_precision_differs_by_no_more_than_forward_from_itself(family: str) -> None:
    """``forward`` rounds differently over one row and over several; the stack stays within that."""
    model = with_config(family).bfloat16()
    ids = prompt_of(40)
    with torch.inference_mode():
        whole, cache = model(input_ids=ids[None]).logits[0], DynamicCache(config=model.config)
        rows = [model(input_ids=ids[None, i : i + 1], past_key_values=cache).logits[0] for i in range(40)]
    spread = float((whole - torch.cat(rows)).abs().max() / (whole.max() - whole.min()))
    assert 0 < spread and max(differences(model, (9, 1, 2, 6, 1, 17, 1))) <= spread


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
    """Joined matrices are the memory of the parameters; values, training and saving are untouched."""
    model = tiny("llama", layers=3)
    before = copy.deepcopy(model.state_dict())
    stack = lean.stack_of(model)
    assert isinstance(stack, Stack)
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
    """In place, by another number type, or by another set: the next call reads what is there then."""
    model, ids = tiny("llama"), prompt_of(5)
    Runner(model)
    with torch.no_grad():
        model.model.layers[0].self_attn.k_proj.weight.mul_(1.5)
    assert differences(model, (5, 1)) == [0, 0]
    model.bfloat16()
    assert max(differences(model, (5, 1))) < lean.BOUNDS[torch.bfloat16]
    model.float().load_state_dict(tiny("llama", seed=3).state_dict())
    assert differences(model, (5, 1)) == [0, 0]
    assert not torch.equal(Runner(model).forward(ids), Runner(tiny("llama")).forward(ids))


def test_a_family_that_is_described_wrongly_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check compares before anyone decodes; the text is that of ``generate`` all the same."""
    wrong = dataclasses.replace(stacks.FAMILIES["LlamaForCausalLM"], mlp_norm="input_layernorm")
    monkeypatch.setitem(stacks.FAMILIES, "LlamaForCausalLM", wrong)
    model = tiny("llama")
    with torch.no_grad():
        model.model.layers[0].post_attention_layernorm.weight.mul_(2)
    pair = specdec.Pair(model, specdec.PromptLookup(), byte_tokenizer())
    assert "differ" in pair.describe()["target"]["own_forward"]
    params = specdec.SamplingParams(max_new_tokens=12)
    ours = specdec.collect(specdec.speculative(pair, prompt_of(5), gamma=3, params=params))
    assert ours.token_ids == specdec.collect(specdec.generate(pair, prompt_of(5), params=params)).token_ids


def listened_to(model, monkeypatch) -> None:
    model.register_forward_pre_hook(lambda *_: None)


def listened_to_within(model, monkeypatch) -> None:
    model.model.layers[1].self_attn.o_proj.register_forward_hook(lambda *_: None)


def replaced(model, monkeypatch) -> None:
    model.forward = model.forward


def patched(model, monkeypatch) -> None:
    forward = type(model).forward
    monkeypatch.setattr(type(model), "forward", lambda self, *args, **kwargs: forward(self, *args, **kwargs))


def patched_to_look_alike(model, monkeypatch) -> None:
    """As tools that trace or count passes do it: the name, the module and the signature are the original's."""
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


def compiled_within(model, monkeypatch) -> None:
    model.model.compile()


def written_out(model, monkeypatch) -> None:
    model.set_attn_implementation("eager")


class Scaled(torch.nn.Module):
    """Stands for an adapter or a packed matrix: it has a weight, and another arithmetic."""

    def __init__(self, inner: torch.nn.Linear):
        super().__init__()
        self.weight, self.bias = inner.weight, inner.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * torch.nn.functional.linear(x, self.weight, self.bias)


def adapted(model, monkeypatch) -> None:
    model.model.layers[0].mlp.down_proj = Scaled(model.model.layers[0].mlp.down_proj)


@pytest.mark.parametrize(
    "change",
    [
        listened_to, listened_to_within, replaced, patched, patched_to_look_alike, patched_layers, patched_matrices,
        called_by_another_name, compiled_within, written_out, adapted,
    ],
)  # fmt: skip
def test_a_model_that_is_not_as_it_came_goes_through_its_forward(change, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    assert isinstance(Runner(model)._passes, StackPasses)
    change(model, monkeypatch)
    assert isinstance(Runner(model)._passes, OwnPasses)


@pytest.mark.parametrize("listen", [register_module_forward_hook, register_module_forward_pre_hook])
def test_a_hook_on_all_modules_hears_all_passes(listen) -> None:
    """Profilers and tracers hang such hooks, and see nothing of a pass over a stack."""
    model, heard = tiny("llama"), []
    handle = listen(lambda module, *args: heard.append(module))
    try:
        Runner(model).forward(prompt_of(3))
    finally:
        handle.remove()
    assert model in heard
    assert isinstance(Runner(model)._passes, StackPasses)


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_angles_that_change_with_the_length_are_left_to_forward(rope_type: str) -> None:
    settings = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 512}
    half = shared_tiny("phi3").config.hidden_size // shared_tiny("phi3").config.num_attention_heads // 2
    settings |= {"short_factor": [1.0] * half, "long_factor": [2.0] * half} if rope_type == "longrope" else {}
    family = "phi3" if rope_type == "longrope" else "llama"
    assert rope_type in lean.stack_of(with_config(family, rope_parameters=settings))


def test_so_are_other_families_and_models_that_are_spread() -> None:
    spread = cpu_offload(tiny("llama", layers=3))
    for model in (tiny("gemma2"), tiny("mixtral"), spread, first_layers(spread, 2)):
        assert isinstance(lean.stack_of(model), str)


def test_an_early_exit_shares_the_slots_of_its_target() -> None:
    """No layer holds a token twice: the draft writes into its target's slots."""
    target = tiny("llama", layers=4)
    runner = Runner(target)
    early = runner.sharing(first_layers(target, 2))
    assert early._passes._slots is runner._passes._slots and len(early._passes._stack.layers) == 2
