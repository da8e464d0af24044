"""The arguments of every command are read, and wrong ones refused, before torch is loaded."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from specdec import cli
from specdec.cli.parsers import COMMANDS
from specdec.cli.parsers.shared import output_file
from specdec.errors import LibraryChanged

ROOT = Path(__file__).parents[2]
HEAVY = "torch", "transformers", "accelerate", "numpy", "gradio", "plotly", "rich"
# The command in a Python that has none of the heavy packages.
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({HEAVY!r}))
from specdec.cli import main
main()
"""


def without_torch(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", WITHOUT, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("words", [["--help"], ["help"], [], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_needs_no_torch(words) -> None:
    ended = without_torch(*words)
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("usage: specdec")
    named = words[:1] if len(words) > 1 else COMMANDS
    assert "--help" in ended.stdout and all(name in ended.stdout for name in named)


def test_a_library_of_another_version_is_named_in_a_sentence(monkeypatch, capsys) -> None:
    def changed(name: str) -> None:
        raise LibraryChanged("torch 9 has no such name.")

    monkeypatch.setattr(cli, "importlib", SimpleNamespace(import_module=changed))
    with pytest.raises(SystemExit, match="^1$"):
        cli.main(["check", "a", "b"])
    assert capsys.readouterr().err == "specdec: torch 9 has no such name.\n"


def test_the_version_needs_no_torch() -> None:
    assert without_torch("--version").stdout.startswith("specdec ")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["run", "Once", "--gama", "3"], 2, "usage: specdec run|unrecognized arguments: --gama"),
        (["Once", "--gamma", "17"], 2, "specdec run: error|'17' is not a draft length"),
        (["Once", "--tokens", "many"], 2, "argument --tokens: invalid int value: 'many'"),
        (["sweep", "--engine", "fast"], 2, "argument --engine: invalid choice: 'fast'"),
        (["bench", "--lanes", "ours"], 2, "argument --lanes: invalid choice: 'ours'"),
        (["bench", "--export", "table.xlsx"], 2, "table.xlsx must end in .csv, .json or .md"),
        (["check"], 2, "the following arguments are required: target"),
        (["page", "--behind-proxy", "none"], 2, "give how many trusted proxies"),
        *[(["load", "--seconds", text], 2, f"{text} is no deadline") for text in ("nan", "inf", "0", "-1", "soon")],
        (["why", "a", "--seconds", "nan"], 2, "nan is no deadline"),
        (["swep"], 1, "Did you mean specdec sweep?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_refused_without_torch(words, status, said) -> None:
    ended = without_torch(*words)
    assert (ended.returncode, ended.stdout) == (status, "")
    assert all(part in ended.stderr for part in said.split("|")) and "Traceback" not in ended.stderr


def test_a_command_that_runs_needs_the_packages() -> None:
    """The tests above can fail: the packages are really missing."""
    assert "specdec sweep needs the package rich" in without_torch("sweep").stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("table.txt", "must end in .csv or .md"),
        ("table", "must end in .csv or .md"),
        ("folder.md", "because it is a folder"),
        ("none/table.md", "the folder of .* does not exist"),
        ("locked.md", "no permission"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_when_it_is_named(name, said, tmp_path, monkeypatch) -> None:
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "locked.md").touch()
    monkeypatch.setattr("specdec.cli.parsers.shared.os.access", lambda path, mode: path.name != "locked.md")
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        output_file((".csv", ".md"))(str(tmp_path / name))
    assert output_file((".csv", ".md"))(str(tmp_path / "table.md")) == tmp_path / "table.md"


@pytest.mark.parametrize("command", ["servers", "lossless", "load", "why"])
def test_words_may_stand_before_and_after_options(command, monkeypatch) -> None:
    found = []
    monkeypatch.setattr(cli, "_start", lambda name, arguments: found.append((name, arguments.words, arguments.chat)))
    cli.main([command, "plain=http://a", "--chat", "spec=http://b", "--tokens", "9", "Once upon"])
    assert found == [(command, ["plain=http://a", "spec=http://b", "Once upon"], True)]
