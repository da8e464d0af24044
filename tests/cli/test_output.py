"""What the commands write reaches any output: of any encoding, cut off by its reader, and with hostile names in it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
from judged import drafting, loop, plain, trial
from programs import specdec_command

import specdec
from specdec.cli import bench, run, sweep
from specdec.cli.output import console_of
from specdec.cli.terminal import terminal
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure import roofline
from specdec.measure.results.file import results_of_pair
from specdec.report.recording import token_bytes
from specdec.version import VERSION

PROMPT = "Once upon a time"
HOSTILE = "\x1b]0;title\x07\x1b[31m\x9b2J\x7f\u202e\r name"  # OSC, CSI, C1, DEL, a bidi override, a return
LANES = {BASELINE: plain(2.0), LOOP: loop(1.9), LaneConfig("speculative", 5): drafting(5, (3,), 0.1, 1.0)}
ENCODINGS = ("utf-8", "cp1252", "ascii")


def steering(text: str) -> set[str]:
    """The characters of an output that could steer a terminal."""
    return {c for c in text if (unicodedata.category(c) == "Cc" and c not in "\n\t") or c in "\u202e\u202d\u2066"}


def columns(line: str) -> int:
    """The width of a line in a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


@pytest.fixture
def measured(monkeypatch, tmp_path) -> list[str]:
    """A benchmark that has measured at once, over a set with hostile names. Returns its arguments."""
    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    record = {"name": HOSTILE, "category": f"{HOSTILE} 日本語", "prompt": PROMPT}
    (tmp_path / "set γ.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")

    def found(pair, plan, path):
        (item,) = plan.prompts
        return [trial(0, config, LANES[config], item.name, item.category) for config in plan.configs]

    monkeypatch.setattr(bench, "run_plan_distributed", found)
    options = ["--tokens", "64", "--runs", "1", "--gammas", "5", "--lanes", *(config.key for config in LANES)]
    return ["bench", "--device", "cpu", "--prompts", str(tmp_path / "set γ.jsonl"), *options]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_benchmark_is_printed_and_exported_in_every_encoding(measured, tmp_path, encoding) -> None:
    """What the encoding lacks is replaced; names show their control characters as escapes; files stay as they were."""
    files = [str(tmp_path / f"out.{suffix}") for suffix in ("json", "csv", "md")]
    ended = specdec_command(*measured, "--export", *files, encoding=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\x1b]0;title\\x07" in ended.stdout and "\\u202e" in ended.stdout
    assert not steering(ended.stdout)
    assert not set("\u00a0\u2009\u202f") & set(ended.stdout), "figures hold plain spaces"
    assert ("γ 5" if encoding == "utf-8" else "gamma 5") in ended.stdout
    assert json.loads(Path(files[0]).read_text())["rows"][0]["category"].startswith(HOSTILE)
    assert all(Path(file).stat().st_size for file in files)
    table = [line for line in ended.stdout.splitlines() if line and line[0] in "|+\u2502\u250f\u2533\u2521\u2514"]
    first = table[: next(at for at, line in enumerate(table) if line[0] in "+\u2514" and at)]
    assert len(first) > 5 and len(set(map(columns, first))) == 1, "the table is straight"


def test_a_sweep_is_printed_in_a_narrow_encoding(monkeypatch) -> None:
    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    monkeypatch.setattr(
        sweep, "trials", lambda pair, plan, done: (trial(0, *lane, "1", "given") for lane in LANES.items())
    )
    ended = specdec_command("sweep", PROMPT, encoding="cp1252")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "speed-up" in ended.stdout and not set("\u00a0\u2009\u202f") & set(ended.stdout)


def test_a_sweep_that_fails_shows_what_it_has_measured(monkeypatch) -> None:
    def failing(pair, plan, done):
        yield from (trial(0, *lane, "1", "given") for lane in LANES.items())
        raise specdec.InvalidInput("It failed.")

    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    monkeypatch.setattr(sweep, "trials", failing)
    ended = specdec_command("sweep", PROMPT)
    assert (ended.returncode, ended.stderr) == (1, "specdec: It failed.\n")
    assert "speed-up" in ended.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_race_is_printed_in_every_encoding(encoding) -> None:
    lanes = ["--lanes", "generate", "speculative"]
    ended = specdec_command(f"γ — 日本 \x1b[2J\x9b \u202e {PROMPT}", "--tokens", "4", *lanes, encoding=encoding)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\x1b[2J\\x9b \\u202e Once" in ended.stdout and not steering(ended.stdout)
    assert ("γ — 日本" if encoding == "utf-8" else "gamma") in ended.stdout


def test_json_lines_are_ascii_and_exact() -> None:
    lanes = ["--lanes", "generate", "speculative"]
    lines = specdec_command(f"\x7f\u202eγ {PROMPT}", "--tokens", "2", *lanes, "--json", encoding="ascii").stdout
    assert not steering(lines) and lines.isascii()
    assert b"\x7f" in b"".join(token_bytes(lines.splitlines()).values())


def test_the_text_of_a_model_keeps_its_tabs_spaces_and_line_ends() -> None:
    file = io.StringIO()
    console = console_of(piped=10, file=file)
    for piece in ("def f():\r\n", "\t\treturn\u00a0", "'", "x" * 30, "  \t\n\n", "\x1b"):
        console.write(piece, "bold")
    assert file.getvalue() == "def f():\n\t\treturn\u00a0'" + "x" * 30 + "  \t\n\n\\x1b"


@pytest.mark.parametrize("arguments", [["nosuch\x1b.jsonl"], ["x", "--gammas", "\x1b[31m"], ["x", "--\x1b[31m"]])
def test_a_message_repeats_no_control_character(arguments) -> None:
    ended = specdec_command("bench", "--prompts", *arguments, encoding="ascii")
    assert ended.returncode and "\\x1b" in ended.stderr and not steering(ended.stderr)


def test_a_closed_pipe_ends_a_command_quietly_and_leaves_whole_exports(measured, tmp_path) -> None:
    files = [tmp_path / name for name in ("out.csv", "out.json")]
    ended = specdec_command(*measured, "--export", *map(str, files), closed=True)
    assert (ended.returncode, ended.stderr) == (141, "")
    assert len(list(csv.DictReader(files[0].open(encoding="utf-8", newline="")))) == 3
    assert len(json.loads(files[1].read_text())["trials"]) == 3


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_race_into_a_closed_pipe_ends_quietly(more) -> None:
    ended = specdec_command(PROMPT, "--tokens", "4", *more, closed=True)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_an_export_that_fails_loses_neither_the_others_nor_the_table(measured, tmp_path, monkeypatch) -> None:
    found = bench.run_plan_distributed

    def meanwhile(*arguments):
        (tmp_path / "folder.csv").mkdir()
        return found(*arguments)

    monkeypatch.setattr(bench, "run_plan_distributed", meanwhile)
    ended = specdec_command(*measured, "--export", str(tmp_path / "folder.csv"), str(tmp_path / "out.md"))
    assert ended.returncode == 1 and "folder.csv cannot be written" in ended.stderr
    assert "speed-up" in ended.stdout and "speed-up" in (tmp_path / "out.md").read_text()


def test_a_comparison_is_exported(measured, tmp_path, monkeypatch) -> None:
    """Each file of ``--export`` holds the table of the compared results."""
    results = []

    def kept(pair, plan, path):
        (item,) = plan.prompts
        found = [trial(0, config, LANES[config], item.name, item.category) for config in plan.configs]
        results.append(results_of_pair(pair, plan).write(found))
        return found

    monkeypatch.setattr(bench, "run_plan_distributed", kept)
    specdec_command(*measured)
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path in paths:
        path.write_text(results[0])
    files = [tmp_path / f"both.{suffix}" for suffix in ("csv", "json", "md")]
    ended = specdec_command("bench", "--compare", *map(str, paths), "--export", *map(str, files), closed=True)
    assert (ended.returncode, ended.stderr) == (141, "")
    rows = list(csv.DictReader(files[0].open(encoding="utf-8", newline="")))
    assert [row["file"] for row in rows] == ["one.jsonl"] * 3 + ["two.jsonl"] * 3
    speculative = rows[2]
    assert (speculative["lane"], speculative["gamma"]) == ("speculative", "5")
    assert float(speculative["speedup"]) == pytest.approx(sides_gain())
    found = json.loads(files[1].read_text())
    assert [row["speedup"] for row in found["rows"]] == [float(row["speedup"]) for row in rows]
    table = [line for line in files[2].read_text().splitlines() if line.startswith("|")]
    assert len(table) == 2 + 6 and table[0].count("|") == 10


def sides_gain() -> float:
    """The gain of the speculative lane of ``LANES``: seconds a token after the first."""
    ends = [events[-1].elapsed_seconds - 1 for events in (LANES[BASELINE], LANES[LaneConfig("speculative", 5)])]
    return ends[0] / ends[1]


def real(output: int, **environment: str) -> subprocess.CompletedProcess:
    """The real program with its help, which loads no torch. ``output`` is what it writes to."""
    command = [sys.executable, "-m", "specdec", "--help"]
    root = Path(specdec.__file__).parent.parent
    return subprocess.run(
        command, cwd=root, env=os.environ | environment, stdout=output, stderr=subprocess.PIPE, check=False
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_python_itself_says_nothing_at_the_end_of_a_closed_pipe(unbuffered) -> None:
    """What is still buffered when the program ends is written by the interpreter, which would complain."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = real(writer, PYTHONUNBUFFERED=unbuffered)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_a_table_that_was_lost_without_a_buffer_ends_the_command_quietly() -> None:
    """Python -u has nothing left to write again, so the error itself says that the pipe is closed."""
    with pytest.raises(SystemExit) as ended, terminal():
        console_of(file=io.StringIO()).on_broken_pipe()
    assert ended.value.code == 141


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = real(full.fileno())
    assert ended.returncode == 1
    assert re.fullmatch(rb"specdec: the output cannot be written \(.*\)\.\n", ended.stderr)


def test_a_warning_of_this_package_is_a_line(capsys) -> None:
    """Those of others are shown as without the command."""
    with pytest.warns(UserWarning, match="Another") as others, terminal():
        warnings.warn_explicit("It takes long.", UserWarning, specdec.__file__, 1)
        warnings.warn_explicit("Another.", UserWarning, "other.py", 1)
    assert capsys.readouterr().err == "specdec: It takes long.\n" and len(others) == 1


# --- words in the place of a command ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "command"),
    [("swep", "sweep"), ("Sweep", "sweep"), ("benhc", "bench"), ("chekc", "check"),
     ("runs", "run"), ("pgae", "page")],
)  # fmt: skip
@pytest.mark.parametrize("before", [[], ["--gamma", "4"]])
def test_a_mistyped_command_is_no_prompt(word, command, before) -> None:
    ended = specdec_command(*before, word)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"Did you mean specdec {command}?" in ended.stderr and f"write: specdec run {word}" in ended.stderr


@pytest.fixture
def raced(monkeypatch) -> list[str]:
    """The prompts that races were asked for. None runs."""
    found: list[str] = []

    def race(pair, prompt, **settings):
        found.append(prompt)
        raise specdec.InvalidInput("It is not run.")

    monkeypatch.setattr(run, "pair_of", lambda arguments: None)
    monkeypatch.setattr(run, "race", race)
    return found


@pytest.mark.parametrize(
    "words", [["run", "swep"], ["Hello"], ["sweep the floor"], ["run it"], ["--gamma", "3", "Once"]]
)
def test_other_words_are_prompts(raced, words) -> None:
    specdec_command(*words)
    assert raced == words[-1:]


def test_a_command_after_an_option_is_no_prompt() -> None:
    ended = specdec_command("--gamma", "4", "sweep")
    assert (ended.returncode, ended.stdout) == (1, "") and "Did you mean specdec sweep?" in ended.stderr


def test_the_word_help_is_no_prompt() -> None:
    assert "usage: specdec" in specdec_command("help").stdout


@pytest.mark.parametrize("command", [["-"], ["run", "-"]])
def test_a_dash_reads_the_prompt_from_the_standard_input(raced, command) -> None:
    specdec_command(*command, given="Once upon\n\ta time\n")
    assert raced == ["Once upon\n\ta time"]


@pytest.mark.parametrize("command", [["-"], [""], ["run", ""], ["sweep", ""], ["sweep", "-"]])
def test_an_empty_prompt_is_refused_before_models_are_read(command, monkeypatch) -> None:
    for module in (sweep, run):
        monkeypatch.setattr(module, "pair_of", lambda arguments: pytest.fail("models were read"))
    ended = specdec_command(*command)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "specdec: The prompt is empty; write at least one character.\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--tokens", "0"], "--tokens is 0;"),
        (["--temperature", "-1"], "--temperature is -1.0;"),
        (["--temperature", "0.001"], "--temperature 0.001 is"),
        (["--top-k", "-1"], "--top-k is -1;"),
        (["--top-p", "2"], "--top-p is 2.0;"),
        (["--seed", "-1"], "--seed is -1;"),
        (["--dtype", "float"], "--dtype: invalid choice: 'float'"),
    ],
)
def test_a_refused_setting_is_called_by_its_option(arguments, named) -> None:
    assert named in specdec_command(PROMPT, *arguments).stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["--tokens", "8"], "--tokens is 8,"), (["--runs", "0"], "--runs is 0;"), (["--first", "0"], "--first is 0;")],
)
def test_a_refused_setting_of_a_benchmark_is_called_by_its_option(arguments, named) -> None:
    assert named in specdec_command("bench", *arguments).stderr


@pytest.mark.parametrize(
    ("missing", "command", "extra"), [("rich", "sweep", "cli"), ("rich", "page", "page"), ("gradio", "page", "page")]
)
def test_a_package_of_an_extra_that_is_missing_is_named(missing, command, extra, monkeypatch) -> None:
    """The library installs without what only the command or the page needs; both then say what to install."""

    def without(name):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("specdec.cli.importlib", SimpleNamespace(import_module=without))
    ended = specdec_command(command)
    assert ended.returncode == 1
    assert f"needs the package {missing}" in ended.stderr and f'pip install ".[{extra}]"' in ended.stderr


def test_the_version_is_printed() -> None:
    assert specdec_command("--version").stdout == f"specdec {VERSION}\n"
