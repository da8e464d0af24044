"""Says what a folder or a repository holds in place of weights that can be read here, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from specdec.errors import LoadFailed
from specdec.models.names import hides_hub_model

_WHOLE = re.compile(r"model\.safetensors|model\.safetensors\.index\.json|pytorch_model.*\.bin")
_LFS = b"version https://git-lfs.github.com/spec/"

# What the files of a model in no usable form are called, and the sentence about it. The first match counts.
_FILES = (
    (
        r"adapter_config\.json|adapter_model\..*",
        "holds an adapter for another model ({file}). Merge the two (merge_and_unload of PEFT), and choose the merged "
        "model.",
    ),
    (
        r"model_index\.json",
        "holds a diffusers pipeline ({file}), and no language model. Choose another.",
    ),
    (
        r"consolidated.*\.(safetensors|pth)",
        "has its weights in the layout of their maker ({file}), which transformers does not read. Choose the "
        "repository in transformers' layout (its name often ends in -hf), or convert it.",
    ),
    (
        r"model(-\d+-of-\d+)?\.(?!safetensors)[\w-]+(-\d+-of-\d+)?\.safetensors",
        "has its weights only as a variant ({file}), which is not read here. Rename a single file to "
        "model.safetensors; load several with transformers (variant=...) and save them again.",
    ),
    (
        r"model-\d+-of-\d+\.safetensors",
        "holds parts of its weights ({file}) without model.safetensors.index.json, which names them. Fetch that file "
        "too, or the whole checkpoint again.",
    ),
    (
        r".*\.safetensors",
        "has weights under another name ({file}). If that file is the whole model, rename it to model.safetensors.",
    ),
)
_FOLDERS = (
    (r"global_step\d+", "holds the parts of a DeepSpeed run ({file}). Make weights of them with its zero_to_fp32.py."),
    (r".*_fsdp_\d+", "holds the parts of an FSDP run ({file}). Make weights of them with 'accelerate merge-weights'."),
)
_FORMATS = {
    r".*\.onnx|onnx": "ONNX",
    r"openvino_model\.(xml|bin)|openvino": "OpenVINO",
    r".*\.msgpack": "Flax",
    r".*\.h5|.*\.keras": "TensorFlow",
    r".*\.tflite|.*\.task|.*\.litertlm": "LiteRT",
    r".*\.npz": "MLX or NumPy",
    r".*\.mlpackage|coreml": "Core ML",
    r".*\.ot": "Rust (tch)",
    r".*\.nemo": "NeMo",
    r".*\.engine|.*\.plan": "TensorRT",
    r".*\.pte": "ExecuTorch",
    r"ggml-.*\.bin|.*\.ggml.*\.bin|.*\.ggml": "GGML, which came before GGUF",
}
_OF_TRAINING = re.compile(r"(training_args|optimizer|scheduler|scaler|rng_state).*")  # pickles that are no weights
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def unusable(name: str, files: Collection[str], folders: Collection[str], here: Path | None) -> LoadFailed:
    """Why there is nothing to load. ``here``: the folder, if it is one on this machine and not on the hub."""
    said = _said(sorted(files), sorted(folders), here)
    if here == Path(name) and hides_hub_model(name):
        said += (
            " This folder hides the hub's model of that name; to load that one, rename the folder, or start in another."
        )
    return LoadFailed(f"{name!r} {said}")


def adapter(name: str, files: Collection[str]) -> LoadFailed | None:
    """The refusal of an adapter beside a config: transformers would load the model that it names, from anywhere."""
    found = "adapter_config.json"
    return LoadFailed(f"{name!r} {_FILES[0][1].format(file=found)}") if found in files else None


def require_no_pointer(name: str, path: Path) -> None:
    """Refuse a file that git-lfs has not fetched: it holds a few lines in place of its content."""
    if path.stat().st_size < 1_000 and path.read_bytes().startswith(_LFS):
        raise LoadFailed(
            f"{name!r} holds a pointer of git-lfs in place of {path.name}. Run 'git lfs pull' in that folder."
        )


def _said(files: list[str], folders: list[str], here: Path | None) -> str:
    """The rest of the sentence, after the name."""
    if not files and not folders:
        return "is empty: it has no config.json and no weights. Check the name."
    if "config.json" not in files and any(map(_WHOLE.fullmatch, files)):
        return "has no config.json, so transformers cannot load it. Fetch that file too, or choose another model."
    for table, names in ((_FILES, files), (_FOLDERS, folders)):
        for pattern, sentence in table:
            if found := _first(pattern, names):
                return sentence.format(file=found)
    pickles = [file for file in files if file.endswith(_PICKLES) and not _OF_TRAINING.fullmatch(file)]
    inside = _models_inside(folders, here)
    if inside and not pickles:
        return inside
    for pattern, form in _FORMATS.items():
        if found := _first(pattern, files) or _first(pattern, folders):
            return (
                f"has its weights for {form} only ({found}), which is not read here. Choose a checkpoint with "
                "safetensors weights, or convert it."
            )
    if pickles:
        return (
            f"has its weights as {pickles[0]} only. Such files can run code when read; choose a checkpoint with "
            "safetensors weights, or convert it."
        )
    if "config.json" not in files:
        return "has no config.json, so transformers cannot load it. Choose another model."
    return "holds no weights (model.safetensors). Fetch them too, or check the name."


def _models_inside(folders: list[str], here: Path | None) -> str | None:
    """The sentence about models that stand one level deeper: of a training run, of the hub's cache, or others."""
    steps = [folder for folder in folders if re.fullmatch(r"checkpoint-\d+", folder)]
    if steps:
        last = max(steps, key=lambda folder: int(folder.split("-")[1]))
        what = "holds no model itself, but the checkpoints of a training run"
    elif here is not None:
        deeper = [*folders, *(f"snapshots/{path.name}" for path in here.glob("snapshots/*"))]
        models = [folder for folder in deeper if (here / folder / "config.json").is_file()]
        if not models:
            return None
        last, what = models[-1], "holds no model itself, but folders with models"
    else:
        return None
    if here is None:
        return f"{what}. Download one, such as {last}, and give its folder."
    return f"{what}. Give one of them, such as {here / last}."


def _first(pattern: str, names: list[str]) -> str | None:
    return next((name for name in names if re.fullmatch(pattern, name, re.IGNORECASE)), None)
