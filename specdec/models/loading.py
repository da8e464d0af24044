"""Loads a pair by names. What can be refused without weights is refused before any are fetched or read."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from specdec.drafters.base import DraftMethod, Loaded
from specdec.drafters.combined import guessing, with_guessing
from specdec.drafters.draft_model import DraftModel
from specdec.drafters.eagle3 import EMBEDDED_HEAD, Eagle3
from specdec.drafters.mtp import Mtp
from specdec.drafters.registry import method_of
from specdec.errors import BadSetting, IncompatiblePair, InvalidInput, LoadFailed, identified, quoted
from specdec.forward.model_info import set_revision
from specdec.forward.native.availability import why_torch
from specdec.forward.pass_size import EXPERTS
from specdec.models.checkpoint import Checkpoint, Progress, as_load_failed
from specdec.models.compatibility import refuse_unsuitable, refuse_untimed
from specdec.models.gguf_file import options as gguf_options
from specdec.models.gguf_private import guarded
from specdec.models.heads import HEADS, HeadKind, kind_of, read_mtp, require_mtp
from specdec.models.memory import PLANNED_TOKENS, WORKSPACE, cache_bytes, gigabytes, row_bytes
from specdec.models.opening import open_checkpoint
from specdec.models.pair import Pair, require_engine
from specdec.models.settings import DRAFT_WEIGHTS, DTYPES, LoadOptions
from specdec.models.unread import Headers, as_quantized, numbers_in, quantization, refuse_packed, refuse_unread
from specdec.runtime.memory import free_bytes

EMBEDDED = Path(__file__).parents[1] / "embedded"
EMBEDDED_NAME = "embedded"  # of the target and of the draft model that ship with the package
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}


@dataclass(frozen=True, eq=False)
class Part:
    """One model of a pair before its weights are loaded."""

    checkpoint: Checkpoint
    config: Any
    tokenizer: Any
    parameters: int
    dtype: torch.dtype
    bits: int | None = None
    head: Any = None  # what its kind read from the config of a drafting head, which is not a whole model
    head_kind: HeadKind | None = None
    headers: Headers = field(default_factory=dict)

    @property
    def bytes(self) -> float:
        """Bytes for the weights. Embeddings, output layer and experts are never packed into fewer bits."""
        config = self.config.get_text_config(decoder=True)
        if not self.bits or any(getattr(config, name, None) for name in EXPERTS):
            return self.parameters * self.dtype.itemsize
        matrices = 1 if getattr(config, "tie_word_embeddings", False) else 2
        whole = min(self.parameters, matrices * config.vocab_size * getattr(config, "hidden_size", 0))
        return whole * self.dtype.itemsize + (self.parameters - whole) * self.bits / 8


@dataclass(frozen=True, eq=False)
class PairPlan:
    """A pair before its weights are loaded: what is needed to check it and to load it."""

    target: Part
    draft: DraftMethod | None
    draft_parts: tuple[Part, ...]  # the models that the draft's method needs
    device: torch.device
    name: str | None
    engine: str = "auto"

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.target, *self.draft_parts

    @property
    def weights(self) -> float:
        """Bytes of the weights, which a loaded pair holds between two calls."""
        draft = guessing(self.draft)
        rounded = isinstance(draft, DraftModel) and draft.rounded and self.device.type == "cpu"
        copies = sum(part.parameters for part in self.draft_parts if part.dtype == torch.float32) if rounded else 0
        return sum(part.bytes for part in self.parts) + copies

    @property
    def cache(self) -> float:
        """Bytes of all models' keys and values in a call of ``PLANNED_TOKENS``."""
        return sum(cache_bytes(part.config, part.dtype) for part in self.parts)

    @property
    def rows(self) -> float:
        """Bytes of the logits and probabilities of the longest round."""
        return sum(row_bytes(part.config) for part in self.parts)

    @property
    def workspace(self) -> float:
        """Bytes for CUDA's libraries on each GPU; none on a CPU."""
        return WORKSPACE if self.device.type == "cuda" else 0

    @property
    def bytes(self) -> float:
        """Bytes that the pair needs to be loaded and to decode one call. Planned, not measured."""
        return self.weights + self.cache + self.rows + self.workspace

    @property
    def needs(self) -> str:
        """``bytes`` and their use, as the middle of a sentence."""
        dtypes = dict.fromkeys(str(part.dtype).removeprefix("torch.") for part in self.parts)
        packed = f" with {self.target.bits} bits for the target's" if self.target.bits else ""
        libraries = f", {gigabytes(self.workspace)} for CUDA's libraries" if self.workspace else ""
        return (
            f"{gigabytes(self.bytes)} ({gigabytes(self.weights)} for weights in {' and '.join(dtypes)}{packed}, "
            f"{gigabytes(self.cache)} for keys and values of up to {PLANNED_TOKENS:,} tokens, "
            f"{gigabytes(self.rows)} for logits{libraries})"
        )


def plan_pair(
    target: str | Path | None = None,
    draft: str | Path | DraftMethod | None = None,
    options: LoadOptions = LoadOptions(),
) -> PairPlan:
    """Read configs, tokenizers and the headers of the weights. ``target`` and ``draft`` are those of ``load_pair``.

    Raises what ``load_pair`` raises before it reads weights.
    """
    name, asked = None, _method(draft)
    method = guessing(asked)
    if not (target is None or isinstance(target, (str, Path))):
        raise _no_name("target", target)
    own_draft = DraftModel(str(EMBEDDED / "draft"))
    if method == DraftModel(EMBEDDED_NAME):
        method = own_draft
    written = target.strip() if isinstance(target, str) else target
    if written in (None, "", EMBEDDED_NAME):
        foreign = method if isinstance(method, DraftModel) and method != own_draft else None
        if foreign and not written:
            raise InvalidInput(
                f"The draft {_written(foreign)} is a model, and there is no target for it. Give a target too, or draft "
                "in another way, such as prompt-lookup."
            )
        target, name = str(EMBEDDED / "target"), None if foreign else EMBEDDED_NAME
        method = method or own_draft
        # Float32 everywhere, so that its texts are the same on every machine, except for near-ties.
        dtype, draft_dtype = ("float32" if kind == "auto" else kind for kind in (options.dtype, options.draft_dtype))
        options = replace(options, dtype=dtype, draft_dtype=draft_dtype)
    where = device_named(options.device)
    if options.bits is not None:
        _require_bits(options.bits)

    def model(checkpoint: Checkpoint, dtype: str, bits: int | None = None) -> Part:
        if bits is not None and checkpoint.gguf is not None:
            raise InvalidInput(f"{checkpoint.name!r} is a GGUF file, which cannot be packed again; leave the bits out.")
        config = checkpoint.config()
        with as_load_failed(checkpoint.name, "configuration"):
            refuse_unsuitable(config)
        headers = checkpoint.headers()
        if checkpoint.gguf is None:  # transformers unpacks every type that such a file may hold here
            refuse_packed(checkpoint.name, checkpoint.folder, quantization(config), headers)
        parameters = numbers_in(headers)
        _require_as_many(checkpoint.name, config, parameters)
        kind = dtype_named(dtype, where)
        return Part(checkpoint, config, checkpoint.tokenizer(), parameters, kind, bits, headers=headers)

    def model_or_head(source: str) -> Part:
        """What drafts, by the content of its config."""
        own = isinstance(method, Eagle3) and source == EMBEDDED_HEAD
        checkpoint = open_checkpoint(str(EMBEDDED / "head") if own else source, options.draft_revision, options.token)
        raw = checkpoint.raw_config()
        kind = kind_of(raw)
        named = next((each.method for each in HEADS if isinstance(method, each.method)), None)
        if named is not None and (kind is None or kind.method is not named):
            article = "an" if named.label[0] in "AEIOU" else "a"
            raise IncompatiblePair(
                f"The config.json of {checkpoint.name!r} is not that of {article} {named.label}. Choose a head, or "
                "give it as a draft model."
            )
        if kind is None:
            return model(checkpoint, options.draft_dtype)
        with as_load_failed(checkpoint.name, "configuration"):
            head = kind.config_of(raw)
            kind.require_fit(head, planned.config)
        headers = checkpoint.headers()
        refuse_packed(checkpoint.name, checkpoint.folder, raw.get("quantization_config"), headers, ours=True)
        dtype = dtype_named(options.draft_dtype, where)
        return Part(checkpoint, head.layer, None, numbers_in(headers), dtype, None, head, kind, headers)

    planned = model(open_checkpoint(str(target), options.revision, options.token), options.dtype, options.bits)
    if method is not None:
        with as_load_failed(planned.checkpoint.name, "configuration"):
            method.refuse(planned.config)
    if isinstance(method, Mtp) and method.model is None:
        require_mtp(planned.checkpoint.name, planned.config, planned.headers)
    draft_parts = () if method is None else tuple(map(model_or_head, method.parts()))
    method = _rounded(_as_head(method, draft_parts), draft_parts, options.draft_weights, where)
    require_engine(options.engine)
    return PairPlan(planned, with_guessing(asked, method), draft_parts, where, name, options.engine)


def _method(draft: str | Path | DraftMethod | None) -> DraftMethod | None:
    """The method that is given or named. A path is the folder of a model, whatever its name."""
    if draft is None or isinstance(draft, DraftMethod):
        return draft
    if isinstance(draft, Path):
        return DraftModel(str(draft))
    if isinstance(draft, str):
        return method_of(draft.strip())
    raise _no_name("draft", draft)


def _no_name(role: str, value: object) -> InvalidInput:
    ways = ", or a way to draft such as PromptLookup()" if role == "draft" else ""
    return InvalidInput(
        f"The {role} is {identified(value)}; give a hub id or a folder{ways}. Pair takes loaded models."
    )


def _written(draft: DraftModel) -> str:
    """A draft model in a sentence: the name that was given, or the class of a loaded model."""
    return quoted(draft.model) if isinstance(draft.model, str) else type(draft.model).__name__


def _as_head(method: DraftMethod | None, parts: Sequence[Part]) -> DraftMethod | None:
    """The method by the content of its checkpoint, because a name does not tell a head from a model."""
    kind = next((part.head_kind for part in parts if part.head_kind), None)
    if kind is not None and isinstance(method, DraftModel) and isinstance(method.model, str):
        return kind.method(method.model)  # type: ignore[call-arg]  # the method of a head takes the head's name
    return method


def _rounded(
    method: DraftMethod | None, parts: Sequence[Part], weights: str, device: torch.device
) -> DraftMethod | None:
    """The method with what ``draft_weights`` asks for."""
    if isinstance(method, DraftModel):
        if weights == "auto" and not parts:
            return method  # with a loaded model, which says itself what it wants
        dtype = parts[0].dtype if parts else method.models[0].dtype
        return replace(method, rounded=draft_rounds(weights, dtype, device))
    if weights == "int8":
        raise InvalidInput("draft_weights is 'int8', which only a draft model can have; leave draft_weights out.")
    draft_rounds(weights, torch.float32, device)  # refuses an unknown word
    return method


def draft_rounds(weights: str, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``draft_weights`` lets native passes of the draft read 8 bits.

    Raises ``InvalidInput`` for "int8" where this machine, device or number type has no native passes.
    """
    if weights not in DRAFT_WEIGHTS:
        raise BadSetting(f"draft_weights is {quoted(weights)}; use {', '.join(map(repr, DRAFT_WEIGHTS))}.")
    if weights == "int8" and (reason := why_torch(dtype, device)) is not None:
        raise InvalidInput(f"draft_weights is 'int8', which is for native passes; leave draft_weights out. {reason}")
    return weights != "same"


def _require_as_many(name: str, config: Any, parameters: int) -> None:
    """Refuse a config that asks for more than the weights have: transformers would fill the rest with random values.

    Every model has at least a row for each token, and a row for each layer, unit and expert.
    """
    text = config.get_text_config(decoder=True)
    counts = ("vocab_size", "num_hidden_layers", "intermediate_size", *EXPERTS)
    rows = [count for field in counts if isinstance(count := getattr(text, field, None), int)]
    least = max(rows, default=0) * (getattr(text, "hidden_size", None) or 1)
    if least > parameters:
        raise LoadFailed(
            f"The config.json of {name!r} asks for a model of at least {least:,} parameters, and its weights "
            f"have {parameters:,}. Fetch the checkpoint again, or choose another."
        )


def load_pair(
    target: str | Path | None = None,
    draft: str | Path | DraftMethod | None = None,
    *,
    device: str = "auto",
    dtype: str = "auto",
    draft_dtype: str = "auto",
    draft_weights: str = "auto",
    revision: str | None = None,
    draft_revision: str | None = None,
    bits: int | None = None,
    engine: str = "auto",
    progress: Progress | None = None,
) -> Pair:
    """Load a target and a draft. Without arguments it is the embedded pair, which needs no network.

    - ``target``, ``draft``: a hub id, a folder, a GGUF file ("model.gguf", "owner/name:model.gguf"), or "embedded" for
      the models that ship with the package. ``draft`` may also be a way to draft, as a value (``PromptLookup()``) or as
      text ("prompt-lookup"). Without a draft only gamma 0 can run. An empty text counts as none.
    - ``device``: "auto" is the CUDA GPU if there is one, else the CPU.
    - ``dtype``, ``draft_dtype``: a name such as "float16". "auto" is bfloat16 on a GPU that computes in it (compute
      capability 8.0 or more) and float16 on an older one. It is float32 on a CPU and for the embedded pair.
    - ``draft_weights``: "int8" rounds the weights of a draft model to 8 bits for its native passes on a CPU, which then
      take less time; the text stays lossless. It is refused where this machine, device or number type has no native
      passes. "auto" rounds them where it can. "same" reads them as they are.
    - ``revision``, ``draft_revision``: a branch, tag or commit on the hub.
    - ``bits``: 8 or 4 packs the target's weights (bitsandbytes).
    - ``engine``: as in ``Pair``.
    - ``progress``: is called with the progress of downloads.

    A target that does not fit one GPU is spread over all GPUs and the CPU's memory. Weights are read from safetensors
    and GGUF files only, and no code from a repository is run. The environment variable HF_TOKEN opens licensed and
    private models.
    Raises ``LoadFailed`` or ``IncompatiblePair``, where possible before weights are fetched or read.
    """
    options = LoadOptions(device, dtype, draft_dtype, draft_weights, revision, draft_revision, bits, engine)
    return load(plan_pair(target, draft, options), progress=progress)


def load(plan: PairPlan, *, progress: Progress | None = None) -> Pair:
    """Check the memory, then fetch and read the weights of a plan."""
    spread = must_spread(plan)
    for part in plan.parts:
        part.checkpoint.fetch(progress)
    # The draft first: a target that must be spread may take what the draft leaves of a GPU.
    drafts = [Loaded(_read(part, plan.device), part.tokenizer) for part in plan.draft_parts]
    draft = plan.draft.loaded(drafts) if plan.draft is not None and drafts else plan.draft
    target = _read(plan.target, plan.device, _room_for_weights(plan) if spread else None)
    layers = guessing(draft)
    if isinstance(layers, Mtp) and layers.model is None:
        with as_load_failed(plan.target.checkpoint.name, "MTP layers"):
            read = Mtp(read_mtp(target, plan.target.checkpoint.name, plan.target.checkpoint.folder))
            _require_numbers(read.heads[0], plan.target.checkpoint.name)
            draft = with_guessing(draft, read)
    return Pair(
        target=target,
        draft=draft,
        tokenizer=plan.target.tokenizer,
        name=plan.name,
        engine=plan.engine,
    )


def must_spread(plan: PairPlan, regained: float = 0.0) -> bool:
    """Whether the target must be spread over several devices. Raises ``LoadFailed`` if it does not fit anywhere.

    ``regained``: bytes that will become free before loading. The weights must fit, and on a GPU a call too. On a CPU a
    call takes memory as it grows, so a short call may fit where the planned one would not.
    """
    free = free_bytes(plan.device) + regained
    if (plan.weights if plan.device.type == "cpu" else plan.bytes) <= free:
        return False
    there = f"{gigabytes(free)} of {plan.device} memory"
    if plan.device.type == "cuda":
        cpu = torch.device("cpu")
        gpus = sum(map(free_bytes, _gpus())) + regained
        if plan.bytes <= gpus + free_bytes(cpu):
            return True
        there = f"{gigabytes(gpus)} on GPUs and {gigabytes(free_bytes(cpu))} of main memory"
    raise LoadFailed(
        f"{plan.target.checkpoint.name!r} and its draft need {plan.needs}, and {there} are free. "
        "Choose a smaller pair, a smaller dtype, or a larger machine."
    )


def _gpus() -> list[torch.device]:
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def _room_for_weights(plan: PairPlan) -> dict[int | str, int]:
    """Bytes of the target's weights that each device may hold, so that a call still has its memory.

    It is not known here how the layers will be spread, so each GPU leaves room for all keys, values and logits.
    """
    for_calls = plan.cache + plan.rows + plan.workspace
    room: dict[int | str, int] = {gpu.index: max(0, int(free_bytes(gpu) - for_calls)) for gpu in _gpus()}
    return room | {"cpu": free_bytes(torch.device("cpu"))}


@guarded()
def _read(part: Part, device: torch.device, room: dict[int | str, int] | None = None) -> PreTrainedModel:
    """Read the model to ``device``, or spread it over the devices of ``room``."""
    options: dict[str, Any] = {"dtype": part.dtype, "use_safetensors": True, "trust_remote_code": False}
    if part.bits is not None:
        options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=part.bits == 8, load_in_4bit=part.bits == 4)
    if room is not None:
        options |= {"device_map": "auto", "max_memory": room}
    elif part.bits is not None:
        options["device_map"] = {"": device}
    if part.checkpoint.gguf is not None:
        options |= gguf_options(part.checkpoint.folder / part.checkpoint.shards[0], part.config)
    name = part.checkpoint.name
    if part.head_kind is not None:
        return _read_head(part, part.head_kind, device)
    with as_load_failed(name, "weights"), as_quantized(name, quantization(part.config)):
        try:
            model, found = AutoModelForCausalLM.from_pretrained(
                part.checkpoint.folder, output_loading_info=True, **options
            )
            refuse_unread(name, found["missing_keys"], found["unexpected_keys"], model.config)
            model = model if "device_map" in options else model.to(device)
            _require_numbers(model, name)
        except torch.OutOfMemoryError as error:
            raise LoadFailed(
                f"{name!r} needs {gigabytes(part.bytes)} on {device}, which is not available. Choose a smaller model."
            ) from error
    model.config.name_or_path = name  # the name that was asked for, not the folder of the download
    set_revision(model, part.checkpoint.commit)
    return model.eval()


def _read_head(part: Part, kind: HeadKind, device: torch.device) -> Any:
    checkpoint = part.checkpoint
    with as_load_failed(checkpoint.name, "weights"):
        name = EMBEDDED_HEAD if checkpoint.folder == EMBEDDED / "head" else checkpoint.name
        found = kind.read(name, checkpoint.folder, checkpoint.shards, part.head, device, part.dtype)
        _require_numbers(found, checkpoint.name)
    return found


def _require_numbers(model: nn.Module, name: str) -> None:
    """Refuse weights with NaN or infinity, and name them. Packed and offloaded weights are not checked."""
    for weight_name, weight in (*model.named_parameters(), *model.named_buffers()):
        if weight.device.type == "meta" or weight.dtype not in _DTYPES.values() or not weight.numel():
            continue
        # aminmax() reads the memory once without a copy; isfinite() makes one and takes 30 times as long. A NaN is both
        # the smallest and the largest value, and an infinity is one of them.
        smallest, largest = weight.detach().aminmax()
        if not (math.isfinite(smallest.item()) and math.isfinite(largest.item())):
            kind = str(weight.dtype).removeprefix("torch.")
            raise LoadFailed(
                f"The weight {weight_name} of {name!r} holds NaN or infinity in {kind}. Fetch the checkpoint again, "
                "choose another number type if that one is too narrow, or another model."
            )


def _require_bits(bits: int) -> None:
    if not isinstance(bits, int) or bits not in (4, 8):
        raise InvalidInput(f"bits is {quoted(bits)}; use 8 or 4, or leave it out.")
    if importlib.util.find_spec("bitsandbytes") is None:
        raise LoadFailed(f"Weights of {bits} bits need the package bitsandbytes. Install it, or leave the bits out.")


def device_named(device: str) -> torch.device:
    """The device with this name; "auto" is the GPU if there is one. Raises ``LoadFailed`` if it cannot be used."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        refuse_untimed(chosen)
        torch.empty(0, device=chosen)
        if chosen.type == "meta":
            raise RuntimeError("the meta device holds no values")
    except (RuntimeError, AssertionError, TypeError) as error:
        raise LoadFailed(f"Device {device!r} cannot be used here; use 'cpu' or 'auto'.") from error
    return chosen


def dtype_named(name: str, device: torch.device) -> torch.dtype:
    """The number type with this name; "auto" depends on the device. Raises ``InvalidInput`` for an unknown name."""
    if name == "auto":
        if device.type != "cuda":  # 16-bit numbers on a CPU are slower and less exact
            return torch.float32
        # torch.cuda.is_bf16_supported() is True for older GPUs too, which emulate bfloat16 and take longer.
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    if not isinstance(name, str) or name not in _DTYPES:
        raise BadSetting(f"dtype is {quoted(name)}; use 'auto', 'float32', 'bfloat16' or 'float16'.")
    return _DTYPES[name]
