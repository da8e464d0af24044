"""Where a model comes from: a folder, or a repository of the Hugging Face hub, fetched only when it can work.

Everything here needs no weights: file names, configuration, tokenizer, and the headers of the safetensors files.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import torch
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import (
    DryRunError,
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError, safe_open
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer

from specdec.errors import LoadFailed, SpecdecError
from specdec.models.memory import gigabytes

Progress = Callable[[str, int, int], None]
"""Called with what is being fetched, the bytes that are here, and the bytes in all."""

_SMALL = ["*.json", "*.jinja", "*.txt", "*.model"]
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files. ``folder`` holds the small ones; ``shards`` are its weights, which may still be far away."""

    name: str
    revision: str | None
    folder: Path
    shards: tuple[str, ...]
    missing_bytes: int  # of the shards, to be fetched

    @property
    def commit(self) -> str | None:
        """The hub's name of this very version; None for a folder of one's own."""
        return self.folder.name if self.folder.parent.name == "snapshots" else None

    def config(self) -> Any:
        with as_load_failed(self.name, "configuration"):
            return AutoConfig.from_pretrained(self.folder, trust_remote_code=False)

    def tokenizer(self) -> Any:
        with as_load_failed(self.name, "tokenizer"):
            return AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False)

    def parameters(self) -> int:
        """How many numbers the weights hold, read from the headers of their files."""
        with as_load_failed(self.name, "weights"):
            if self.missing_bytes:
                return sum(HfApi().get_safetensors_metadata(self.name, revision=self.revision).parameter_count.values())
            total = 0
            for shard in self.shards:
                with safe_open(self.folder / shard, "pt") as tensors:
                    total += sum(math.prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
            return total

    def fetch(self, progress: Progress | None = None) -> None:
        """Bring the weights here."""
        if not self.missing_bytes:
            return
        if self.missing_bytes > (free := shutil.disk_usage(self.folder).free):
            raise LoadFailed(
                f"{self.name!r} is {gigabytes(self.missing_bytes)} to fetch, and {gigabytes(free)} of disk are free. "
                "Choose a smaller model, or free some."
            )

        class Bar(tqdm):
            """The hub library's way to hear of progress."""

            def __init__(self, *args: Any, **kwargs: Any):
                self._bytes = kwargs.get("unit") == "B"
                super().__init__(*args, **(kwargs | {"disable": progress is not None}))

            def update(self, n: float | None = 1) -> None:
                super().update(n)
                if progress is not None and self._bytes:
                    self._done = getattr(self, "_done", 0) + (n or 0)
                    progress(self_name, int(self._done), total)

        self_name, total = self.name, self.missing_bytes
        with as_load_failed(self.name, "weights"):
            snapshot_download(self.name, revision=self.revision, allow_patterns=list(self.shards), tqdm_class=Bar)


def open_checkpoint(name: str, revision: str | None = None) -> Checkpoint:
    """Look at a folder or a hub repository; raise ``LoadFailed`` if there is no causal model to be read safely."""
    with as_load_failed(name, "files"):
        folder = Path(name).expanduser() if name.startswith("~/") else Path(name)
        if folder.is_dir():
            return _checked(name, revision, folder, {path.name: 0 for path in folder.iterdir()})
        if not _HUB_NAME.fullmatch(name):
            raise LoadFailed(f"There is no folder {name!r}, and it is no name of a model on the hub. Check the path.")
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_SMALL))
        try:
            files = snapshot_download(name, revision=revision, dry_run=True)
            missing = {file.filename: (file.file_size or 0) if file.will_download else 0 for file in files}
        except DryRunError:  # without a network; what was fetched before is here
            missing = {path.name: 0 for path in folder.iterdir()}
        return _checked(name, revision, folder, missing)


def _checked(name: str, revision: str | None, folder: Path, missing: dict[str, int]) -> Checkpoint:
    """``missing``: every file of the model with the bytes that are still to be fetched."""
    if "config.json" not in missing:
        raise LoadFailed(f"{name!r} holds no config.json, so it is no model that transformers can load.")
    whole, index = "model.safetensors", "model.safetensors.index.json"
    shards = [whole] if whole in missing else []
    if not shards and index in missing:
        try:
            shards = sorted(set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError) as error:
            raise LoadFailed(f"{name!r} has a damaged {index}. Fetch the checkpoint again.") from error
    if not shards:
        pickles = [file for file in missing if file.endswith(_PICKLES)]
        raise LoadFailed(
            f"{name!r} has its weights as {pickles[0]} only. Such files can run code when read; choose a checkpoint "
            "with safetensors weights, or convert it."
            if pickles
            else f"{name!r} holds no weights (model.safetensors). Check the name."
        )
    if absent := [shard for shard in shards if shard not in missing]:
        raise LoadFailed(f"{name!r} lacks {absent[0]}, which its index names. Fetch the checkpoint again.")
    return Checkpoint(name, revision, folder, tuple(shards), sum(missing[shard] for shard in shards))


@contextmanager
def as_load_failed(name: str, part: str) -> Iterator[None]:
    """Turn the errors of the libraries into ``LoadFailed``, each with one sentence."""
    try:
        yield
    except SpecdecError:
        raise
    except GatedRepoError as error:
        raise LoadFailed(
            f"{name!r} is licensed: accept its terms on its page, then set HF_TOKEN to a token of that account."
        ) from error
    except RevisionNotFoundError as error:
        raise LoadFailed(f"{name!r} has no such revision. Check its name.") from error
    except RepositoryNotFoundError as error:
        raise LoadFailed(
            f"There is no model {name!r} on the hub, or it is private. Check the name; a private model needs HF_TOKEN."
        ) from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise LoadFailed(
            f"{name!r} is not on this machine, and the hub cannot be reached. Check the network. The embedded pair "
            "needs none."
        ) from error
    except SafetensorError as error:
        raise LoadFailed(f"The weights of {name!r} are damaged ({error}). Fetch the checkpoint again.") from error
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a checkpoint made elsewhere can break any rule, and none may stop the program
        if "trust_remote_code" in str(error) or "custom code" in str(error):
            raise LoadFailed(
                f"{name!r} needs code from its own repository, which is never run here. Choose a model that "
                "transformers knows."
            ) from error
        first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise LoadFailed(f"The {part} of {name!r} could not be loaded: {first_line.rstrip('.')}.") from error
