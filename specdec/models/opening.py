"""Finds a model in a folder, in a GGUF file or on the Hugging Face hub, and refuses what cannot be read safely.

Weights are not fetched here. What is fetched is small, and its size is checked before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

import httpx2
from huggingface_hub import HfApi, constants, get_session, hf_hub_download, hf_hub_url
from huggingface_hub.errors import EntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

from specdec.errors import LoadFailed
from specdec.models.checkpoint import Checkpoint, as_load_failed, hub_token, read_json
from specdec.models.gguf_file import HEADER, copied_beginning, only_gguf, read_gguf
from specdec.models.memory import gigabytes
from specdec.models.names import read_name, require_hub_id
from specdec.models.unusable import adapter, require_no_pointer, unusable

# Files that are fetched and read before the weights, with their largest size in bytes. Others may have any size.
_TOKENIZERS = (
    "tokenizer.json", "tokenizer.*.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "vocab.txt", "tokenizer.model*", "spiece.model", "spm.model", "sentencepiece.model", "sentencepiece.bpe.model",
    "tiktoken.model", "tekken.json", "bpe.codes", "byte_maps.json", "emoji.json", "entity_vocab.json",
    "normalizer.json", "prophetnet.tokenizer", "vocab-src.json", "vocab-tgt.json", "word_pronunciation.json",
    "word_shape.json", "dict.txt", "spm_char.model", "source.spm", "target.spm", "target_vocab.json",
)  # fmt: skip
_SMALL = {
    "config.json": 1_000_000,
    "generation_config.json": 1_000_000,
    "hf_quant_config.json": 1_000_000,
    "chat_template.jinja": 1_000_000,
    "tokenizer_config.json": 16_000_000,
    "model.safetensors.index.json": 64_000_000,
    **dict.fromkeys(_TOKENIZERS, 64_000_000),
}
_MOST_NAMES = 100_000  # of files and folders that are listed
_WHOLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


def open_checkpoint(name: str, revision: str | None = None, token: bool = True) -> Checkpoint:
    """Look at a folder, a GGUF file or a hub repository. ``name``: as in ``read_name``.

    Raises ``LoadFailed`` without a causal model that can be read safely.

    The sizes of its files are checked before any is fetched or read. ``token``: whether the owner's token is sent to
    the hub, now and when the weights are fetched; False for a model that a stranger chose.
    """
    named = read_name(name)
    place, folder = named.place, Path(named.place)
    with as_load_failed(place, "files", token):
        if folder.is_dir():
            listed = _listed_here(place, folder)
            file = named.gguf or _gguf_among(place, listed, str(folder / "FILE"))
            if file is not None:
                return _gguf_here(folder / file)
            return _checked(place, revision, folder, _files_of(place, folder, listed), token)
        if folder.is_file() and place.lower().endswith(".gguf"):
            return _gguf_here(folder)
        if folder.is_file():
            raise LoadFailed(f"{place!r} is a file. Give the folder that holds it, with its config.json.")
        require_hub_id(place)
        return _on_hub(place, revision or named.revision, token, named.gguf)


def _on_hub(name: str, revision: str | None, token: bool, gguf: str | None) -> Checkpoint:
    """The checkpoint at one commit, so that what was checked is what will be fetched."""
    api = HfApi(token=hub_token(token))
    commit = api.resolve_revision(name, revision=revision).resolved
    if gguf is not None:
        return _gguf_on_hub(api, name, commit, gguf, token)
    try:
        # Without a network this fails at once, while the list of files is asked for again and again for 23 seconds.
        api.model_info(name, revision=commit, expand=["sha"])
        entries = api.list_repo_tree(name, revision=commit)
        listed = _listed(name, ((entry.path, getattr(entry, "size", None)) for entry in entries))
    except (httpx2.TransportError, OfflineModeIsEnabled):  # offline: use what was fetched before
        folder = _snapshot(name, commit)
        listed = _listed_here(name, folder) if folder.is_dir() else {}
        if "config.json" in listed:
            return _checked(name, commit, folder, _files_of(name, folder, listed), token)
        if _gguf_among(name, listed, f"{name}:FILE") is None:
            raise
    if (gguf := _gguf_among(name, listed, f"{name}:FILE")) is not None:
        return _gguf_on_hub(api, name, commit, gguf, token)
    sizes = _require_model(name, listed)

    def fetched(file: str) -> str:
        return hf_hub_download(name, file, revision=commit, token=hub_token(token))

    with ThreadPoolExecutor(8) as pool:
        folder = Path(list(pool.map(fetched, [file for file in sizes if _most_bytes(file)]))[0]).parent
    missing = {file: 0 if (folder / file).exists() else size for file, size in sizes.items()}
    return _checked(name, commit, folder, missing, token)


def _gguf_among(name: str, listed: Mapping[str, int | None], spelling: str) -> str | None:
    """The GGUF file of a place without safetensors weights, if there is one. Raises ``LoadFailed`` for several."""
    return None if {_WHOLE, _INDEX} & listed.keys() else only_gguf(name, listed, spelling)


def _gguf_here(path: Path) -> Checkpoint:
    if not path.is_file():
        raise LoadFailed(f"There is no file {str(path)!r}. Check the path.")
    require_no_pointer(str(path), path)
    return Checkpoint(str(path), None, path.parent, (path.name,), 0, gguf=read_gguf(str(path), path))


def _gguf_on_hub(api: HfApi, repo: str, commit: str, file: str, token: bool) -> Checkpoint:
    """The GGUF file at one commit. Only its beginning is fetched, into a file that is removed with the checkpoint."""
    name = f"{repo}:{file}"
    folder = _snapshot(repo, commit)
    if (folder / file).exists():
        return Checkpoint(name, commit, folder, (file,), 0, token, read_gguf(name, folder / file))
    url = hf_hub_url(repo, file, revision=commit)
    try:
        size = api.get_hf_file_metadata(url=url).size or 0
    except EntryNotFoundError as error:
        raise LoadFailed(f"{repo!r} has no file {file!r}. Check its name.") from error
    span = {"Range": f"bytes=0-{min(size, HEADER) - 1}"}
    headers, beginning = build_hf_headers(token=hub_token(token)) | span, b""
    with get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=60) as answer:
        hf_raise_for_status(answer)
        for part in answer.iter_bytes():
            beginning += part
            if len(beginning) >= HEADER:  # a server may send more than it was asked for
                break
    path, copy = copied_beginning(file, beginning[:HEADER], size)
    return Checkpoint(name, commit, folder, (file,), size, token, read_gguf(name, path, copy))


def _snapshot(repo: str, commit: str) -> Path:
    """Where the hub's library keeps the files of a commit, fetched or not."""
    return Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repo, repo_type="model") / "snapshots" / commit


def _listed_here(name: str, folder: Path) -> dict[str, int | None]:
    found = (path for path in folder.iterdir() if path.exists())  # a link may lead nowhere
    return _listed(name, ((path.name, None if path.is_dir() else path.stat().st_size) for path in found))


def _files_of(name: str, folder: Path, listed: Mapping[str, int | None]) -> dict[str, int]:
    """The files of a folder, with 0 bytes to fetch. Raises ``LoadFailed`` as for a repository."""
    sizes = _require_model(name, listed, folder)
    for file in sizes:
        if _most_bytes(file) or file.endswith(".safetensors"):
            require_no_pointer(name, folder / file)
    return dict.fromkeys(sizes, 0)


def _listed(name: str, entries: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """Files with their sizes in bytes, and folders with None. Raises ``LoadFailed`` if there are too many."""
    listed = dict(islice(entries, _MOST_NAMES + 1))
    if len(listed) > _MOST_NAMES:
        raise LoadFailed(f"{name!r} holds more than {_MOST_NAMES:,} files. Choose a repository of one model.")
    return listed


def _most_bytes(file: str) -> int | None:
    """The largest size in bytes of a file that is read before the weights; None for other files."""
    return next((most for pattern, most in _SMALL.items() if fnmatch(file, pattern)), None)


def _require_model(name: str, listed: Mapping[str, int | None], here: Path | None = None) -> dict[str, int]:
    """The files of ``listed``, which are those of a model and not too large to be read. Raises ``LoadFailed``."""
    sizes = {file: size for file, size in listed.items() if size is not None}
    if "config.json" not in sizes:
        raise unusable(name, sizes, listed.keys() - sizes.keys(), here)
    if refusal := adapter(name, sizes):
        raise refusal
    for file, size in sizes.items():
        if (most := _most_bytes(file)) and size > most:
            raise LoadFailed(
                f"{name!r} holds {file} of {gigabytes(size)}, and at most {gigabytes(most)} are read here. Choose "
                "another checkpoint."
            )
    if not {_WHOLE, _INDEX} & sizes.keys():
        raise unusable(name, sizes, listed.keys() - sizes.keys(), here)
    return sizes


def _checked(name: str, revision: str | None, folder: Path, missing: Mapping[str, int], token: bool) -> Checkpoint:
    """Check a checkpoint's files. ``missing``: every file with the bytes that are still to be fetched."""
    if _WHOLE in missing:
        shards = [_WHOLE]
    else:
        try:
            shards = sorted(set(read_json(name, folder / _INDEX)["weight_map"].values()))
        except (KeyError, TypeError, AttributeError) as error:
            raise LoadFailed(f"{name!r} has a damaged {_INDEX}. Fetch the checkpoint again.") from error
    if absent := [shard for shard in shards if shard not in missing]:
        raise LoadFailed(f"{name!r} lacks {str(absent[0])[:80]}, which its index names. Fetch the checkpoint again.")
    return Checkpoint(name, revision, folder, tuple(shards), sum(missing[shard] for shard in shards), token)
