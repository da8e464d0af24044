"""Compiles a C file of this folder with the machine's compiler, and keeps the library for the next start.

Everything that decides what the library holds is in its name: the source, the flags, and what the compiler says of
itself and of the processor. A library that is kept is only loaded if no other user could write it or its folder, and if
it is what was compiled.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

SWITCH = "SPECDEC_NATIVE"  # "0" in the environment switches native passes off
# -ffast-math is left out: linked with it, a library makes a whole process compute small numbers as zero.
# -fno-ivopts: else gcc gives each row of a product a register for its address, and has too few. clang ignores it.
FLAGS = ("-O2", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off", "-fno-ivopts", "-fPIC", "-shared", "-pthread")
SECONDS = 60.0  # a compiler that takes longer has failed
DIGEST = ".sha256"
QUOTED = 200  # characters of a compiler's message


class NotBuilt(Exception):
    """There is no library, for the reason given."""


@functools.cache
def library(source: Path) -> ctypes.CDLL | str:
    """The library of a C file, compiled if there is none yet; or a sentence that says why there is none.

    The sentence names no path, because it is kept with results.
    """
    try:
        return _loaded(source)
    except NotBuilt as error:
        return f"Native passes could not be built: {error}."
    except OSError as error:
        return f"Native passes could not be built: {error.strerror or 'the library cannot be loaded'}."
    except (subprocess.SubprocessError, ValueError, RuntimeError) as error:
        return f"Native passes could not be built: {type(error).__name__}."


def _loaded(source: Path) -> ctypes.CDLL:
    compiler = _compiler()
    command = [compiler, *FLAGS, "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"]
    known = _run([*command, "-dM", "-E", "-x", "c", os.devnull]).stdout  # its version, and all the processor can do
    files = [source, *sorted(source.parent.glob("*.h"))]
    parts = (*(file.read_bytes() for file in files), " ".join(command).encode(), known.encode())
    name = f"{source.stem}-{hashlib.sha256(b'|'.join(parts)).hexdigest()[:24]}.so"
    folder = _cache_folder()
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="specdec-native-", ignore_cleanup_errors=True) as own:
            _compile(command, source, Path(own) / name)
            return ctypes.CDLL(str(Path(own) / name))  # a loaded library may be deleted
    if not _is_whole(folder / name):
        _compile(command, source, folder / name)
    return ctypes.CDLL(str(folder / name))


def _compiler() -> str:
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if (found := shutil.which(name)) is not None:
            return found
    raise NotBuilt("no C compiler was found (cc, gcc or clang)")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the compiler; ``NotBuilt`` quotes its first error."""
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=SECONDS, env=os.environ | {"LC_ALL": "C"}
    )
    if done.returncode:
        said = [line.partition("error: ")[2].strip() for line in done.stderr.splitlines()]
        told = next((line for line in said if line and "/" not in line), "it gave no reason")
        raise NotBuilt(f"{Path(command[0]).name} failed ({told[:QUOTED]})")
    return done


def _cache_folder() -> Path | None:
    """The folder for libraries; None if this user cannot use it, or somebody else can write it."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec" / "native"
        for part in (folder.parent, folder):
            part.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(part):
                return None
        if not os.access(folder, os.W_OK):
            return None
    except (OSError, RuntimeError):
        return None
    return folder


def _is_own(path: Path) -> bool:
    """Whether ``path`` is no link, belongs to this user, and nobody else may write it."""
    found = path.lstat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return mine and not stat.S_ISLNK(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_whole(path: Path) -> bool:
    """Whether this user's library is there, as it was compiled."""
    digest = path.with_suffix(DIGEST)
    try:
        return _is_own(path) and _is_own(digest) and digest.read_bytes() == _digest(path)
    except OSError:
        return False


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).hexdigest().encode()


def _compile(command: list[str], source: Path, target: Path) -> None:
    """Compile under a temporary name, so that another process never reads half a library."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        _run([*command, "-o", str(made), str(source), "-lm"])
        if not made.exists():
            raise NotBuilt(f"{Path(command[0]).name} wrote no library")
        digest = made.with_suffix(DIGEST)
        digest.write_bytes(_digest(made))
        made.chmod(0o700)
        digest.chmod(0o600)
        os.replace(digest, target.with_suffix(DIGEST))
        os.replace(made, target)
