"""Finds a model in a folder or in a repository of the Hugging Face hub. Weights are fetched only if it can work.

Nothing here reads weights. It reads file names, the config, the tokenizer, and the headers of the safetensors files.
"""

from __future__ import annotations

import errno
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import torch
from huggingface_hub import HfApi, hf_hub_download, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.hf_api import RepoFile
from safetensors import SafetensorError, safe_open
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer

from specdec.errors import LoadFailed, SpecdecError
from specdec.models import apart
from specdec.models.memory import gigabytes
from specdec.models.unread import Headers

Progress = Callable[[str, int, int], None]
"""Called with the name of what is fetched, the bytes fetched so far, and the bytes in all."""

# Files that are fetched and read before the weights, with their largest size. The first matching pattern counts.
_SMALL = {
    "config.json": 1_000_000,
    "generation_config.json": 1_000_000,
    "*.jinja": 1_000_000,
    "tokenizer_config.json": 16_000_000,
    "*.json": 64_000_000,
    "*.txt": 64_000_000,
    "*.model": 64_000_000,
}
_MOST_FILES = 5_000
_INDEX = "model.safetensors.index.json"
_OURS = Path(__file__).parents[1]
TRYING = 20.0  # seconds to read a tokenizer

# No config of a usable model exceeds these bounds. Config classes make lists as long as such numbers say.
_DEEPEST = 32
_MOST = {r"layers$|^n_layer$": 1_000, r"labels$": 100_000}  # by the end of the field's name
_MOST_OF_ANYTHING = 10**8
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files. ``folder`` holds the small ones; ``shards`` are its weights, which may not be fetched yet."""

    name: str
    revision: str | None
    folder: Path
    shards: tuple[str, ...]
    missing_bytes: int  # of the shards that are still to be fetched
    token: bool = True  # whether the owner's token may be sent to the hub

    @property
    def commit(self) -> str | None:
        """The commit id on the hub; None for a local folder."""
        return self.folder.name if self.folder.parent.name == "snapshots" else None

    def raw_config(self) -> dict[str, Any]:
        """The content of config.json, with its numbers checked."""
        with as_load_failed(self.name, "configuration"):
            found = _json(self.name, self.folder / "config.json")
            _require_sane(self.name, found)
            return found if isinstance(found, dict) else {}

    def config(self) -> Any:
        with as_load_failed(self.name, "configuration"):
            self.raw_config()
            config = AutoConfig.from_pretrained(self.folder, trust_remote_code=False, **_HERE)
            text = config.get_text_config(decoder=True)
            for field in _SIZES:
                value = getattr(text, field, None)
                if value is not None and (not isinstance(value, int) or value < 1):
                    raise LoadFailed(
                        f"The config.json of {self.name!r} sets {field} to {str(value)[:40]}, which no model can "
                        "have. Fetch the checkpoint again, or choose another."
                    )
            return config

    def tokenizer(self) -> Any:
        """The tokenizer. One from the hub is tried in another process first, because it or its template may hang."""
        with as_load_failed(self.name, "tokenizer"):
            theirs, file = not self.folder.resolve().is_relative_to(_OURS), self.folder / "tokenizer.json"
            if theirs and file.exists():
                _in_time(f"The tokenizer of {self.name!r}", apart.try_tokenizer, str(file.resolve()), TRYING)
            tokenizer = AutoTokenizer.from_pretrained(self.folder, trust_remote_code=False, **_HERE)
            if theirs and isinstance(getattr(tokenizer, "chat_template", None), str):
                hello = [{"role": "user", "content": "Hello"}]
                _in_time(f"The chat template of {self.name!r}", apart.render, tokenizer, hello)
            return tokenizer

    def headers(self) -> Headers:
        """The number type and the shape of each weight, from the headers of the files."""
        with as_load_failed(self.name, "weights"):
            if self.missing_bytes:
                found = HfApi().get_safetensors_metadata(self.name, revision=self.revision, token=_token(self.token))
                known = [weight for file in found.files_metadata.values() for weight in file.tensors.items()]
                return {key: (weight.dtype, tuple(weight.shape)) for key, weight in known}
            read: dict[str, tuple[str, tuple[int, ...]]] = {}
            for shard in self.shards:
                with safe_open(self.folder / shard, "pt") as tensors:
                    for key in tensors.keys():  # noqa: SIM118
                        part = tensors.get_slice(key)
                        read[key] = part.get_dtype(), tuple(part.get_shape())
            return read

    def fetch(self, progress: Progress | None = None) -> None:
        """Fetch the weights that are missing. Raises ``LoadFailed``."""
        if not self.missing_bytes:
            return
        if self.missing_bytes > (free := shutil.disk_usage(self.folder).free):
            raise LoadFailed(
                f"{self.name!r} needs {gigabytes(self.missing_bytes)} on the disk, and {gigabytes(free)} are free. "
                "Choose a smaller model, or free some space."
            )

        class Bar(tqdm):
            """The interface by which the hub library reports progress."""

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
            snapshot_download(
                self.name,
                revision=self.revision,
                allow_patterns=list(self.shards),
                tqdm_class=Bar,
                token=_token(self.token),
            )


# Options for transformers: it must read only the folder, and not ask the hub.
_HERE: dict[str, Any] = {"local_files_only": True, "token": False}


def open_checkpoint(name: str, revision: str | None = None, token: bool = True) -> Checkpoint:
    """Look at a folder or a hub repository. Raises ``LoadFailed`` without a causal model that can be read safely.

    The sizes of its files are checked before any is fetched or read. ``token``: whether the owner's token is sent to
    the hub, now and when the weights are fetched; False for a model that a stranger chose.
    """
    with as_load_failed(name, "files", token):
        folder = Path(name).expanduser() if name.startswith("~/") else Path(name)
        if folder.is_dir():
            return _checked(name, revision, folder, _files_of(name, folder), token)
        if not _HUB_NAME.fullmatch(name):
            raise LoadFailed(f"There is no folder {name!r}, and {name!r} is not a valid Hub id. Check the path.")
        return _on_hub(name, revision, token)


def _on_hub(name: str, revision: str | None, token: bool) -> Checkpoint:
    """The checkpoint at one commit, so that what was checked is what will be fetched."""
    api = HfApi()
    commit = api.resolve_revision(name, revision=revision, token=_token(token)).resolved
    try:
        # Without a network this fails at once, while the list of files is asked for again and again for 23 seconds.
        api.model_info(name, revision=commit, expand=["sha"], token=_token(token))
        entries = api.list_repo_tree(name, revision=commit, token=_token(token))
        sizes = _bounded(name, ((file.path, file.size) for file in entries if isinstance(file, RepoFile)))
    except (httpx2.TransportError, OfflineModeIsEnabled):  # offline: use what was fetched before
        config = try_to_load_from_cache(name, "config.json", revision=commit)
        if not isinstance(config, str):
            raise
        folder = Path(config).parent
        return _checked(name, commit, folder, _files_of(name, folder), token)
    _require_model(name, sizes)

    def fetched(file: str) -> str:
        return hf_hub_download(name, file, revision=commit, token=_token(token))

    with ThreadPoolExecutor(8) as pool:
        folder = Path(list(pool.map(fetched, [file for file in sizes if _most_bytes(file)]))[0]).parent
    missing = {file: 0 if (folder / file).exists() else size for file, size in sizes.items()}
    return _checked(name, commit, folder, missing, token)


def _token(owners: bool) -> bool | None:
    """The argument for the hub library: None uses the owner's token if there is one, False uses none."""
    return None if owners else False


def _files_of(name: str, folder: Path) -> dict[str, int]:
    """The files of a folder, with 0 bytes to fetch. Raises ``LoadFailed`` as for a repository."""
    sizes = _bounded(name, ((path.name, path.stat().st_size) for path in folder.iterdir() if path.is_file()))
    _require_model(name, sizes)
    return dict.fromkeys(sizes, 0)


def _bounded(name: str, files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The files with their sizes in bytes. Raises ``LoadFailed`` if there are too many, or one is too large."""
    sizes = dict(islice(files, _MOST_FILES + 1))
    if len(sizes) > _MOST_FILES:
        raise LoadFailed(f"{name!r} holds more than {_MOST_FILES:,} files. Choose a repository of one model.")
    for file, size in sizes.items():
        if (most := _most_bytes(file)) and size > most:
            raise LoadFailed(
                f"{name!r} holds {file} of {gigabytes(size)}, and at most {gigabytes(most)} are read here. Choose "
                "another checkpoint."
            )
    return sizes


def _most_bytes(file: str) -> int | None:
    """The largest size in bytes of a file that is read before the weights; None for other files."""
    return next((most for pattern, most in _SMALL.items() if fnmatch(file, pattern)), None)


def _require_model(name: str, files: Iterable[str]) -> None:
    files = set(files)
    if "config.json" not in files:
        raise LoadFailed(f"{name!r} has no config.json, so transformers cannot load it. Choose another model.")
    if "adapter_config.json" in files:  # transformers would load the model that it names, from anywhere
        raise LoadFailed(f"{name!r} holds an adapter for another model. Merge the two, and choose the merged model.")


def _json(name: str, path: Path) -> Any:
    """Read a file of JSON. Raises ``LoadFailed`` if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise LoadFailed(f"{path.name} of {name!r} is nested too deeply. Fetch the checkpoint again.") from error
    except ValueError as error:
        raise LoadFailed(f"{name!r} has a damaged {path.name}. Fetch the checkpoint again.") from error


def _require_sane(name: str, value: Any, field: str = "", depth: int = 0) -> None:
    """Refuse a config with numbers or a depth that no model has."""
    if depth > _DEEPEST:
        raise LoadFailed(f"The config.json of {name!r} is nested too deeply. Choose another checkpoint.")
    if isinstance(value, dict):
        for key, part in value.items():
            _require_sane(name, part, key, depth + 1)
    elif isinstance(value, list):
        for part in value:
            _require_sane(name, part, field, depth + 1)
    elif isinstance(value, (int, float)):
        known = next((most for end, most in _MOST.items() if re.search(end, field)), None)
        # Only whole numbers are sizes. Other numbers may be large.
        most = known or (_MOST_OF_ANYTHING if isinstance(value, int) else math.inf)
        if value > most:
            raise LoadFailed(
                f"The config.json of {name!r} sets {field[:80]} to {value:.0e}, and the most that is taken here is "
                f"{most:,}. Choose another checkpoint."
            )


def _in_time(what: str, work: Callable[..., object], *given: object) -> None:
    """Raise ``LoadFailed`` if the work takes too much time or memory. Other failures show later, in this process."""
    try:
        work(*given)
    except apart.TooMuch as error:
        raise LoadFailed(f"{what} cannot be used: {error}. Choose another checkpoint.") from error
    except (apart.NoAnswer, TypeError, ValueError):
        pass


def _checked(name: str, revision: str | None, folder: Path, missing: Mapping[str, int], token: bool) -> Checkpoint:
    """Check a checkpoint's files. ``missing``: every file with the bytes that are still to be fetched."""
    whole = "model.safetensors"
    shards = [whole] if whole in missing else []
    if not shards and _INDEX in missing:
        try:
            shards = sorted(set(_json(name, folder / _INDEX)["weight_map"].values()))
        except (KeyError, TypeError, AttributeError) as error:
            raise LoadFailed(f"{name!r} has a damaged {_INDEX}. Fetch the checkpoint again.") from error
    if not shards:
        pickles = [file for file in missing if file.endswith(_PICKLES)]
        raise LoadFailed(
            f"{name!r} has its weights as {pickles[0]} only. Such files can run code when read; choose a checkpoint "
            "with safetensors weights, or convert it."
            if pickles
            else f"{name!r} holds no weights (model.safetensors). Check the name."
        )
    if absent := [shard for shard in shards if shard not in missing]:
        raise LoadFailed(f"{name!r} lacks {str(absent[0])[:80]}, which its index names. Fetch the checkpoint again.")
    return Checkpoint(name, revision, folder, tuple(shards), sum(missing[shard] for shard in shards), token)


@contextmanager
def as_load_failed(name: str, part: str, token: bool = True) -> Iterator[None]:
    """Turn errors of the libraries into ``LoadFailed`` with a clear sentence. ``token``: as in ``Checkpoint``."""
    try:
        yield
    except SpecdecError:
        raise
    except GatedRepoError as error:
        if not token:
            raise LoadFailed(
                f"{name!r} needs an accepted licence, which this page cannot use. Choose an open model."
            ) from error
        raise LoadFailed(
            f"{name!r} is licensed: accept its terms on its page, then set HF_TOKEN to a token of that account."
        ) from error
    except RevisionNotFoundError as error:
        raise LoadFailed(f"{name!r} has no such revision. Check its name.") from error
    except RepositoryNotFoundError as error:
        if not token:
            raise LoadFailed(f"There is no public model {name!r} on the hub. Check the name.") from error
        raise LoadFailed(
            f"There is no model {name!r} on the hub, or it is private. Check the name; a private model needs HF_TOKEN."
        ) from error
    except (LocalEntryNotFoundError, RevisionResolutionError, OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise LoadFailed(
            f"{name!r} is not on this machine, and the hub cannot be reached. Check the network. The embedded pair "
            "needs none."
        ) from error
    except SafetensorError as error:
        raise LoadFailed(f"The weights of {name!r} are damaged ({error}). Fetch the checkpoint again.") from error
    except torch.OutOfMemoryError:
        raise
    except RecursionError as error:
        raise LoadFailed(f"The {part} of {name!r} is nested too deeply. Choose another checkpoint.") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LoadFailed(
                f"The disk is full, so {name!r} could not be fetched. Free some of it, or choose a smaller model."
            ) from error
        raise _load_failed(name, part, error) from error
    except Exception as error:  # a strange checkpoint can cause any error, and none may stop the program
        raise _load_failed(name, part, error) from error


def _load_failed(name: str, part: str, error: Exception) -> LoadFailed:
    if "trust_remote_code" in str(error) or "custom code" in str(error):
        return LoadFailed(
            f"{name!r} needs code from its own repository, which is never run here. Choose a model that transformers "
            "knows."
        )
    first_line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return LoadFailed(f"The {part} of {name!r} could not be loaded: {first_line[:500].rstrip('.')}.")
