"""A model's passes: the logits are those of its own ``forward``, however few steps it takes to them."""

from __future__ import annotations

import functools

import pytest
import torch
from accelerate import cpu_offload
from fakes import prompt_of, shared_tiny, tiny
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from transformers import DynamicCache

import specdec
from specdec.drafters.early_exit import first_layers
from specdec.passes.bare import bare_logits, is_bare
from specdec.passes.cache import new_cache
from specdec.passes.runner import Runner

STEPS = ((0, 6, 0), (6, 7, 0), (7, 8, 0), (8, 11, -2), (9, 10, -1), (9, 10, 0), (10, 11, 0))  # from, to, crop


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@torch.inference_mode()
def test_fewer_steps_lead_to_the_same_logits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal to the last bit, before and behind a rollback; all passes but the prefill are bare."""
    model, ids = shared_tiny(family, 0, layers=3, vocab_size=336), prompt_of(16)
    cache, theirs = DynamicCache(config=model.config), []
    for begin, end, crop in STEPS:
        theirs.append(model(input_ids=ids[None, begin:end], past_key_values=cache).logits[0])
        cache.crop(crop)
    fed = []

    def note(model, ids, *args):
        fed.append(len(ids))
        return bare_logits(model, ids, *args)

    monkeypatch.setattr("specdec.passes.runner.bare_logits", note)
    runner = Runner(model)
    for (begin, end, crop), logits in zip(STEPS, theirs, strict=True):
        assert torch.equal(runner.forward(ids[begin:end]), logits)
        runner.crop_to(end + crop)
    assert fed == [end - begin for begin, end, _ in STEPS[1:]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_so_they_do_far_into_a_text_and_where_few_rows_are_kept(dtype: torch.dtype) -> None:
    for model in specdec.load_pair(dtype=str(dtype).removeprefix("torch.")).models(drafting=True):
        ids, runner, cache = prompt_of(1100), Runner(model), DynamicCache(config=model.config)
        for begin, end, keep in ((0, 1000, 1), (1000, 1001, 1), (1001, 1007, 6), (1007, 1024, 1), (1024, 1026, 2)):
            fed = ids[begin:end]
            theirs = model(input_ids=fed[None], past_key_values=cache, logits_to_keep=keep).logits[0].float()
            assert torch.equal(runner.forward(fed, keep), theirs)


def listened_to(model, monkeypatch) -> None:
    model.register_forward_pre_hook(lambda *_: None)


def listened_to_within(model, monkeypatch) -> None:
    model.model.register_forward_hook(lambda *_: None)


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


def patched_stack(model, monkeypatch) -> None:
    forward = type(model.model).forward
    patch = functools.wraps(forward)(lambda *args, **kwargs: forward(*args, **kwargs))
    monkeypatch.setattr(type(model.model), "forward", patch)


def patched_layers(model, monkeypatch) -> None:
    forward = type(model.model.layers[0]).forward
    patch = functools.wraps(forward)(lambda *args, **kwargs: forward(*args, **kwargs))
    monkeypatch.setattr(type(model.model.layers[0]), "forward", patch)


def one_layer_replaced(model, monkeypatch) -> None:
    model.model.layers[1].forward = model.model.layers[1].forward


def called_by_another_name(model, monkeypatch) -> None:
    monkeypatch.setattr(type(model), "forward", functools.partialmethod(type(model).forward))


def compiled_within(model, monkeypatch) -> None:
    model.model.compile()


def written_out(model, monkeypatch) -> None:
    model.set_attn_implementation("eager")


@pytest.mark.parametrize(
    "change",
    [
        listened_to, listened_to_within, replaced, patched, patched_to_look_alike, patched_stack, patched_layers,
        one_layer_replaced, called_by_another_name, compiled_within, written_out,
    ],
)  # fmt: skip
def test_a_model_that_is_not_as_it_came_goes_through_its_forward(change, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama")
    assert is_bare(model, new_cache(model))
    change(model, monkeypatch)
    assert not is_bare(model, new_cache(model))


@pytest.mark.parametrize("listen", [register_module_forward_hook, register_module_forward_pre_hook])
def test_a_hook_on_all_modules_hears_all_passes(listen) -> None:
    """Profilers and tracers hang such hooks; a bare pass would be heard in part."""
    model, heard = tiny("llama"), []
    handle = listen(lambda module, *args: heard.append(module))
    try:
        assert not is_bare(model, new_cache(model))
        Runner(model).forward(prompt_of(3))
    finally:
        handle.remove()
    assert is_bare(model, new_cache(model))
    assert model in heard


def test_so_do_windows_other_stacks_and_the_first_layers_of_a_model_that_is_spread() -> None:
    windows = tiny("qwen2", layers=3)
    windows.config.layer_types = ["full_attention", "full_attention", "sliding_attention"]
    windows.config.sliding_window = 8
    spread = cpu_offload(tiny("llama", layers=3))
    for model in (windows, tiny("gpt2"), tiny("mistral"), tiny("gemma2"), spread, first_layers(spread, 2)):
        assert not is_bare(model, new_cache(model))
