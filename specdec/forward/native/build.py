"""Compiles a C file of this folder with the machine's compiler, and keeps the library for the next start.

Everything that decides what the library holds is in its name: the source, the flags, the compiler and the processor. A
library is only loaded if this user alone could write it, and if it is what was compiled.
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
FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off", "-fPIC", "-shared")
SECONDS = 60.0  # a compiler that takes longer has failed
DIGEST = ".sha256"


class NotBuilt(Exception):
    """There is no library, for the reason given."""


@functools.cache
def library(source: Path) -> ctypes.CDLL | str:
    """The library of a C file, compiled if there is none yet; or a sentence that says why there is none."""
    if os.environ.get(SWITCH) == "0":
        return f"Native passes are switched off ({SWITCH}=0)."
    try:
        return ctypes.CDLL(str(_built(source)))
    except NotBuilt as error:
        return str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return f"The native passes could not be built: {str(error).splitlines()[0]}."


def _built(source: Path) -> Path:
    compiler = _compiler()
    flags = (*FLAGS, "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native")
    parts = (source.read_bytes(), " ".join(flags).encode(), _version(compiler), _processor())
    name = f"{source.stem}-{hashlib.sha256(b'|'.join(parts)).hexdigest()[:24]}.so"
    folder = _cache_folder()
    if folder is not None and _is_whole(folder / name):
        return folder / name
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="specdec-native-"))  # this process compiles for itself
    _compile([compiler, *flags], source, folder / name)
    return folder / name


def _compiler() -> str:
    for name in filter(None, (os.environ.get("CC"), "cc", "gcc", "clang")):
        if (found := shutil.which(name)) is not None:
            return found
    raise NotBuilt("No C compiler was found (cc, gcc or clang), so products are those of torch.")


def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=SECONDS).stdout


def _processor() -> bytes:
    """The processor's kind and what it can do."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return f"{platform.machine()} {platform.processor()}".encode()
    lines = cpuinfo.read_text(errors="replace").splitlines()
    told = {line.partition(":")[0].strip(): line for line in lines}
    return "\n".join(told.get(name, "") for name in ("model name", "flags", "CPU part", "Features")).encode()


def _cache_folder() -> Path | None:
    """The folder for libraries; None if this user cannot write it or somebody else can."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdec" / "native"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if _is_own(folder) and os.access(folder, os.W_OK) else None


def _is_own(path: Path) -> bool:
    """Whether ``path`` is no link, belongs to this user, and nobody else may write it."""
    found = path.lstat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return mine and not stat.S_ISLNK(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_whole(path: Path) -> bool:
    """Whether this user's library is there, as it was compiled."""
    digest = path.with_suffix(DIGEST)
    try:
        return _is_own(path) and _is_own(digest) and digest.read_text() == _digest(path)
    except OSError:
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compile(command: list[str], source: Path, target: Path) -> None:
    """Compile under a temporary name, so that another process never reads half a library."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / target.name
        done = subprocess.run(
            [*command, "-o", str(made), str(source)], capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
        if done.returncode or not made.exists():
            said = next((line for line in done.stderr.splitlines() if "error" in line), "it gave no reason")
            raise NotBuilt(f"The compiler {command[0]} could not build the native products: {said.strip()}")
        made.chmod(0o700)
        digest = made.with_suffix(DIGEST)
        digest.write_text(_digest(made))
        os.replace(digest, target.with_suffix(DIGEST))
        os.replace(made, target)
