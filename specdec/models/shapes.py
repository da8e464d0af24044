"""Builds a pair of known shapes with random weights. The speed of a pass depends on sizes, not on values."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import init_empty_weights
from accelerate.utils import set_module_tensor_to_device
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from specdec.drafters.synthetic import SyntheticDraft
from specdec.errors import InvalidInput, LoadFailed
from specdec.models.loading import device_named, draft_rounds, dtype_named
from specdec.models.memory import gigabytes
from specdec.models.pair import Pair
from specdec.models.presets import SHAPES
from specdec.runtime.memory import free_bytes

SPREAD = 0.002  # of random weights; a tenth of the usual spread, see ``_fill``


def shape_pair(
    shape: str,
    agreement: float,
    device: str = "auto",
    dtype: str = "auto",
    engine: str = "auto",
    draft_weights: str = "auto",
) -> Pair:
    """The pair that ``shape`` names, "qwen2.5-7b:qwen2.5-0.5b", with random weights and a ``SyntheticDraft``.

    ``device``, ``dtype``, ``engine`` and ``draft_weights`` are those of ``load_pair``. Raises ``InvalidInput`` for an
    unknown shape, and ``LoadFailed`` for one that does not fit the memory, before any weight is made.
    """
    where = device_named(device)
    numbers = dtype_named(dtype, where)
    rounded = draft_rounds(draft_weights, numbers, where)
    models = [_empty(name, numbers) for name in _names(shape)]
    needed, free = sum(weight.nbytes for model in models for weight in model.parameters()), free_bytes(where)
    if needed > free:
        raise LoadFailed(
            f"The shape {shape!r} needs {gigabytes(needed)} for its weights, and {gigabytes(free)} of {where} memory "
            "are free. Choose a smaller shape, a smaller dtype, or a larger machine."
        )
    target, draft = (_fill(model, where, seed) for seed, model in enumerate(models))
    return Pair(target, SyntheticDraft(draft, rounded=rounded, agreement=agreement), engine=engine)


def _names(shape: str) -> list[str]:
    names = shape.split(":")
    if len(names) != 2:
        raise InvalidInput(f"The shape is {shape!r}; write TARGET:DRAFT, for example llama-500m:llama-50m.")
    for name in names:
        if name not in SHAPES:
            raise InvalidInput(f"There is no shape {name!r}; choose from {', '.join(SHAPES)}.")
    return names


def _empty(name: str, dtype: torch.dtype) -> PreTrainedModel:
    """A model whose weights have no memory yet. Its buffers, such as rotary angles, have their values."""
    fields: dict[str, Any] = SHAPES[name]
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**fields), dtype=dtype)
    model.tie_weights()  # making the weights empty has untied them
    model.config.name_or_path = f"{name} (random weights)"
    return model


@torch.no_grad()
def _fill(model: PreTrainedModel, device: torch.device, seed: int) -> PreTrainedModel:
    """Give every weight memory and a value, one after another, so that nothing is stored twice.

    With random weights of the usual size, the two most likely tokens are so close that bfloat16 passes over one row and
    over several rows choose differently. Then the text of a lane would soon differ from the recorded continuation. So
    the embeddings are large and all else is small: the last token determines the next one by a wide margin.
    """
    rng = torch.Generator(device).manual_seed(seed)
    embedding = model.get_input_embeddings().weight
    for name, weight in list(model.named_parameters()):
        value = torch.empty(weight.shape, dtype=weight.dtype, device=device)
        if weight.dim() > 1:
            value.normal_(0, 1 if weight is embedding else SPREAD, generator=rng)
            value.copy_(value.bfloat16())  # most checkpoints have such numbers, whatever type they are loaded in
        else:
            value.fill_(name.endswith("weight"))  # 1 for the weights of norms, 0 for biases
        set_module_tensor_to_device(model, name, device, value=value)
    model.tie_weights()
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    if head is not embedding:  # then the next id follows each token; with one matrix for both, the same id would
        head[1:] = embedding[:-1]
        head[0] = embedding[-1]
    return model.to(device).eval()
