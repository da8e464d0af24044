"""The Tab key completes a command line, in a real shell and without torch."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_parsers import ROOT, WITHOUT

from specdec.cli.parsers import COMMANDS

argcomplete = pytest.importorskip("argcomplete")

# What bash does at the Tab key: it calls the registered function with the line, and shows COMPREPLY.
TAB = """
{functions}
COMP_LINE={line} COMP_POINT={point} COMP_TYPE=9 _python_argcomplete specdec
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """An empty folder with files to complete, beside a command ``specdec`` that has none of the heavy packages."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "specdec"
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{WITHOUT}"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\n')
    command.chmod(0o755)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "prompts.jsonl").touch()
    return tmp_path / "here"


def completed(line: str, folder: Path) -> list[str]:
    """How ``line`` can go on at its end, by the function that ``register-python-argcomplete specdec`` prints."""
    bash = shutil.which("bash") or pytest.skip("bash is not installed")
    functions = argcomplete.shellcode(["specdec"])
    script = TAB.format(functions=functions, line=shlex.quote(line), point=len(line.encode()))
    env = {"PATH": f"{folder.parent / 'bin'}:/usr/bin:/bin"}
    ran = subprocess.run([bash, "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    return [word.strip() for word in ran.stdout.splitlines() if word.strip()]


def test_commands_are_completed(folder) -> None:
    assert set(COMMANDS) <= set(completed("specdec ", folder))
    assert completed("specdec sw", folder) == ["sweep"]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("specdec run Once --eng", ["--engine"]),
        ("specdec run Once --engine ", ["auto", "eager", "graph"]),
        ("specdec bench --lanes generate transformers", ["transformers-lookup"]),
        ("specdec page --dtype b", ["bfloat16"]),
        ("specdec bench --prompts pro", ["prompts.jsonl"]),
        ("specdec run Once --export prompts.j", ["prompts.jsonl"]),
        ("specdec sweep --behind", []),
    ],
)
def test_options_choices_and_files_are_completed(line: str, found: list[str], folder) -> None:
    assert completed(line, folder) == found
