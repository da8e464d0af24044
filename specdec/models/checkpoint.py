"""A model's files: reads its config, its tokenizer and the headers of its weights, and fetches weights from the hub."""

from __future__ import annotations

import errno
import importlib.util
import json
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
    GatedRepoError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from safetensors import SafetensorError, safe_open
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer

from specdec.errors import LoadFailed, SpecdecError
from specdec.models import sandbox
from specdec.models.bounds import require_sane
from specdec.models.gguf_file import GgufFile
from specdec.models.memory import gigabytes
from specdec.models.unread import Headers

Progress = Callable[[str, int, int], None]
"""Called with the name of what is fetched, the bytes fetched so far, and the bytes in all."""

_OURS = Path(__file__).parents[1]
TRYING = 20.0  # seconds to read a tokenizer

# The least value of sizes in a config. A window of one token sees no other, and transformers' caches ignore it.
_LEAST = dict.fromkeys(
    ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"), 1
) | {"sliding_window": 2}


@dataclass(frozen=True)
class Checkpoint:
    """A model's files. ``folder`` holds the small ones; ``shards`` are its weights, which may not be fetched yet."""

    name: str
    revision: str | None
    folder: Path
    shards: tuple[str, ...]
    missing_bytes: int  # of the shards that are still to be fetched
    token: bool = True  # whether the owner's token may be sent to the hub
    gguf: GgufFile | None = None  # where the one shard is a GGUF file, which holds config and tokenizer too

    @property
    def commit(self) -> str | None:
        """The commit id on the hub; None for a local folder."""
        return self.folder.name if self.folder.parent.name == "snapshots" else None

    def raw_config(self) -> dict[str, Any]:
        """The content of config.json, with its numbers checked; empty for a GGUF file."""
        if self.gguf is not None:
            return {}
        with as_load_failed(self.name, "configuration"):
            found = read_json(self.name, self.folder / "config.json")
            require_sane(self.name, found)
            return found if isinstance(found, dict) else {}

    def config(self) -> Any:
        with as_load_failed(self.name, "configuration"):
            self.raw_config()
            config = self.gguf.config() if self.gguf else AutoConfig.from_pretrained(self.folder, **_HERE)
            text = config.get_text_config(decoder=True)
            # The layers of some models differ from each other, and then their config has no size of its own.
            layers = list(text.per_layer_config) if text.is_heterogeneous else [text]
            for field, value in ((field, getattr(layer, field, None)) for field in _LEAST for layer in layers):
                if value is not None and (type(value) is not int or value < _LEAST[field]):
                    raise LoadFailed(
                        f"The config{'' if self.gguf else '.json'} of {self.name!r} sets {field} to {str(value)[:40]}, "
                        "which no model can have. Fetch the checkpoint again, or choose another."
                    )
            return config

    def tokenizer(self) -> Any:
        """The tokenizer. One from the hub is tried in another process first, because it or its template may hang."""
        with as_load_failed(self.name, "tokenizer"):
            theirs, file = not self.folder.resolve().is_relative_to(_OURS), self.folder / "tokenizer.json"
            if theirs and file.exists() and self.gguf is None:
                _in_time(f"The tokenizer of {self.name!r}", sandbox.try_tokenizer, str(file.resolve()), TRYING)
            try:
                tokenizer = self.gguf.tokenizer() if self.gguf else AutoTokenizer.from_pretrained(self.folder, **_HERE)
            except (ImportError, ValueError) as error:
                if needed := _sentencepiece_needs(self.folder):
                    raise LoadFailed(
                        f"The tokenizer of {self.name!r} is a file of SentencePiece. Reading it needs more packages: "
                        f"pip install {' '.join(needed)}"
                    ) from error
                raise
            if theirs and isinstance(getattr(tokenizer, "chat_template", None), str):
                hello = [{"role": "user", "content": "Hello"}]
                _in_time(f"The chat template of {self.name!r}", sandbox.render, tokenizer, hello)
            return tokenizer

    def headers(self) -> Headers:
        """The number type and the shape of each weight, from the headers of the files."""
        with as_load_failed(self.name, "weights"):
            if self.gguf is not None:
                return self.gguf.headers
            if self.missing_bytes:
                found = HfApi().get_safetensors_metadata(self.name, revision=self.revision, token=hub_token(self.token))
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
        self.folder.mkdir(parents=True, exist_ok=True)  # of a GGUF file nothing was fetched yet
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
                self.name.partition(":")[0],  # without the file of a GGUF model
                revision=self.revision,
                allow_patterns=list(self.shards),
                tqdm_class=Bar,
                token=hub_token(self.token),
            )


# Options for transformers: it must read only the folder, and not ask the hub.
_HERE: dict[str, Any] = {"local_files_only": True, "token": False, "trust_remote_code": False}


def hub_token(owners: bool) -> bool | None:
    """The argument for the hub library: None uses the owner's token if there is one, False uses none."""
    return None if owners else False


def read_json(name: str, path: Path) -> Any:
    """Read a file of JSON. Raises ``LoadFailed`` if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise LoadFailed(f"{path.name} of {name!r} is nested too deeply. Fetch the checkpoint again.") from error
    except ValueError as error:
        raise LoadFailed(f"{name!r} has a damaged {path.name}. Fetch the checkpoint again.") from error


def _sentencepiece_needs(folder: Path) -> list[str]:
    """The packages that are missing to read the SentencePiece file of a tokenizer, if there is one."""
    # Such a file begins with the field of its first token. A tokenizer.model of tiktoken is lines of text.
    if not any(path.open("rb").read(1) == b"\n" for path in folder.glob("*.model")):
        return []
    modules = {"sentencepiece": "sentencepiece", "protobuf": "google.protobuf"}
    return [package for package, module in modules.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package
        return False


def _in_time(what: str, work: Callable[..., object], *given: object) -> None:
    """Raise ``LoadFailed`` if the work takes too much time or memory. Other failures show later, in this process."""
    try:
        work(*given)
    except sandbox.TooMuch as error:
        raise LoadFailed(f"{what} cannot be used: {error}. Choose another checkpoint.") from error
    except (sandbox.NoAnswer, TypeError, ValueError):
        pass


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
