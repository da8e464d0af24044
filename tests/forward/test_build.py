"""The native library is built once for each machine, nobody else's is loaded, and without a compiler torch runs."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fakes import shared_tiny

from specdec.forward import lean_check
from specdec.forward.native import build
from specdec.forward.native.availability import PASS, why_torch

CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    if (reason := why_torch(torch.float32, CPU)) is not None:
        assert "no C compiler was found" in reason, reason  # our own C file must compile
        pytest.skip(reason)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, where nothing is built yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(build.SWITCH, raising=False)
    build.library.cache_clear()
    yield tmp_path / "specdec" / "native"
    build.library.cache_clear()


@pytest.fixture
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C file that compiles in no time, with a header."""
    path = tmp_path_factory.mktemp("source") / "answer.c"
    path.write_text('#include "number.h"\nint answer(void) { return NUMBER; }\n')
    path.with_name("number.h").write_text("#define NUMBER 42\n")
    return path


def built(home: Path) -> Path:
    """The one library in the cache."""
    (found,) = home.glob("*.so")
    return found


PROCESSORS = ("x86-64", "haswell", "skylake-avx512") if platform.machine() == "x86_64" else ("native",)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_both_compilers_take_the_passes_without_a_warning(name: str, processor: str) -> None:
    if (compiler := shutil.which(name)) is None:
        pytest.skip(f"There is no {name} here.")
    flags = [flag for flag in build.FLAGS if flag not in ("-shared", "-fno-ivopts")]  # nothing is linked
    command = [compiler, *flags, f"-march={processor}", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", str(PASS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr


def test_a_library_is_built_once(home: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not isinstance(build.library(source), str)
    assert not built(home).stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    build.library.cache_clear()
    monkeypatch.setattr(build, "_compile", None)
    assert not isinstance(build.library(source), str)


def test_a_changed_header_is_compiled_anew(home: Path, source: Path) -> None:
    assert build.library(source).answer() == 42
    source.with_name("number.h").write_text("#define NUMBER 43\n")
    build.library.cache_clear()
    assert build.library(source).answer() == 43


def test_it_is_built_once_whatever_new_files_may_be_read_by(home: Path, source: Path, monkeypatch) -> None:
    before = os.umask(0o002)
    try:
        build.library(source)
    finally:
        os.umask(before)
    build.library.cache_clear()
    monkeypatch.setattr(build, "_compile", None)
    assert not isinstance(build.library(source), str)


def another(path: Path) -> None:
    path.unlink()  # a loaded library must not change under the process
    path.write_bytes(b"somebody else's")


def cut(path: Path) -> None:
    half = path.read_bytes()[:1000]
    path.unlink()
    path.write_bytes(half)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def nobodys(path: Path) -> None:
    path.with_suffix(build.DIGEST).unlink()


def no_text(path: Path) -> None:
    path.with_suffix(build.DIGEST).write_bytes(b"\xff\xfe")


@pytest.mark.parametrize("harm", [cut, open_to_all, another, a_link, nobodys, no_text])
def test_a_library_that_is_not_what_was_built_is_built_again(
    home: Path, source: Path, harm: Callable[[Path], None]
) -> None:
    build.library(source)
    whole = built(home).read_bytes()
    harm(built(home))
    build.library.cache_clear()
    assert not isinstance(build.library(source), str)
    assert built(home).read_bytes() == whole and not built(home).is_symlink()


def test_a_folder_that_others_may_write_is_not_used(home: Path, source: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o777)
    assert not isinstance(build.library(source), str)
    assert list(home.iterdir()) == []


def test_a_user_without_a_home_builds_for_each_process(home: Path, source: Path, tmp_path, monkeypatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(build.Path, "home", no_home)
    monkeypatch.setattr(build.tempfile, "tempdir", str(tmp_path))
    assert not isinstance(build.library(source), str)
    assert list(tmp_path.iterdir()) == [], "the library is loaded, and its file is gone"


def test_where_nothing_can_be_kept_it_is_built_for_this_process(home: Path, source: Path) -> None:
    home.parent.parent.mkdir(exist_ok=True)
    home.parent.write_text("a file stands in the way")
    assert not isinstance(build.library(source), str)


def test_without_a_compiler_the_reason_is_told(home: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.delenv("CC", raising=False)
    said = "Native passes could not be built: no C compiler was found (cc, gcc or clang)."
    assert build.library(source) == said
    build.library.cache_clear()
    assert why_torch(torch.float32, CPU) == said


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'x.c:1:2: error: no vectors here' >&2; exit 1", "cc failed (no vectors here)"),
        ("echo 'error: cannot write /home/alice/x' >&2; exit 1", "cc failed (it gave no reason)"),
        ("exit 1", "cc failed (it gave no reason)"),
        ("exit 0", "cc wrote no library"),
        ("kill -9 $$", "cc failed (it gave no reason)"),
    ],
)
def test_a_compiler_that_fails_is_quoted(
    home: Path, source: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    """Without a path: the sentence is kept with results, which are shared."""
    compiler = home.parent.parent / "cc"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *" -march=native -dM "*) exit 0;; esac\n{script}\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    assert build.library(source) == f"Native passes could not be built: {said}."
    assert list(home.iterdir()) == [], "nothing half-made stays"


def test_it_can_be_switched_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.SWITCH, "0")
    assert why_torch(torch.float32, CPU) == "Native passes are switched off (--no-native, or SPECDEC_NATIVE=0)."
    assert not home.exists()


def test_a_switch_counts_from_the_next_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    model = shared_tiny("llama", 1, layers=2)
    assert lean_check.lean_model(model).why_torch is None
    monkeypatch.setenv(build.SWITCH, "0")
    assert "switched off" in lean_check.lean_model(model).why_torch
    monkeypatch.delenv(build.SWITCH)
    assert lean_check.lean_model(model).why_torch is None
