"""The terminal output, piped and so without colours; once as a separate process, as a person runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from programs import specdec_command

import specdec
from specdec.cli import sweep
from specdec.report import verdict
from specdec.report.recording import read_recording

ROOT = Path(specdec.__file__).parent.parent
PROMPT = "Once upon a time"


@pytest.mark.full
def test_prints_the_text_of_generate_and_the_figures() -> None:
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=24)
    plain = specdec.collect(specdec.generate(pair, PROMPT, params=params), pair.tokenizer)

    command = [sys.executable, "-m", "specdec", PROMPT, "--gamma", "4", "--tokens", "24", "--runs", "1"]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300).stdout

    assert PROMPT + plain.text in out
    assert "\x1b" not in out, "piped output carries no colour codes"
    for words in ("tokens/s  Plain", "our loop vs generate()", "tested guesses kept", "24 of 24  tokens identical"):
        assert words in out


def test_json_lines_are_the_events_of_all_lanes() -> None:
    out = specdec_command(PROMPT, "--tokens", "12", "--json").stdout
    events = list(read_recording(out.splitlines()))
    lanes = [event.lane for event in events if isinstance(event, specdec.Started)]
    ends = [event.finish_reason for event in events if isinstance(event, specdec.Finished)]
    assert (lanes, ends) == (["generate", "speculative", "speculative"], ["length"] * 3)


def test_our_loop_beside_them_splits_the_verdict() -> None:
    """With our loop in the race, the sentence gives the shares of the engine and of speculation."""
    out = specdec_command(PROMPT, "--tokens", "12").stdout
    assert "Running our loop without a draft" in out and "Identical text: 12 of 12" in out
    assert "To learn both shares" not in out  # said by a race without our loop


def test_a_short_race_runs_again_and_shows_its_median_run(monkeypatch) -> None:
    """The text is printed once, the verdict is on all runs; the events of --json are those of one."""
    monkeypatch.setattr(verdict, "LEAST_RUNS", 3)
    monkeypatch.setattr(verdict, "MOST_RUNS", 3)
    monkeypatch.setattr(verdict, "RACE_SECONDS", 1000.0)  # the machine of a test may be busy
    out = specdec_command(PROMPT, "--tokens", "12").stdout
    assert "Run 2 ...\nRun 3 ...\n" in out and out.count(PROMPT) == 1
    assert "(median of 3 runs, " in out


def test_a_verdict_needs_both_its_lanes() -> None:
    ended = specdec_command(PROMPT, "--lanes", "generate", "speculative:0")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "needs the lane speculative;" in ended.stderr


def test_bad_input_is_one_sentence() -> None:
    ended = specdec_command(PROMPT, "--tokens", "0")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "specdec: --tokens is 0; give 1 or more.\n"


def test_a_draft_length_that_is_no_number_is_named_as_it_was_typed() -> None:
    ended = specdec_command(PROMPT, "--gamma", "five")
    assert ended.returncode == 2
    assert "'five' is not a draft length" in ended.stderr and "gamma_of" not in ended.stderr


def test_ctrl_c_is_no_traceback(monkeypatch) -> None:
    def stopped(arguments) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "pair_of", stopped)
    assert specdec_command("sweep", PROMPT).returncode == 130


def test_an_unknown_folder_is_one_sentence() -> None:
    ended = specdec_command(PROMPT, "--target", "/no/such/folder")
    assert ended.returncode == 1
    assert "/no/such/folder" in ended.stderr and "Traceback" not in ended.stderr


def test_a_race_takes_a_stop_string_a_floor_of_probability_and_a_number_of_runs() -> None:
    out = specdec_command(PROMPT, "--tokens", "40", "--stop", "girl", "--min-p", "0.1", "--runs", "2").stdout
    assert f"{PROMPT}, there was a little girl\n" in out and "2 runs" in out
    refused = specdec_command(PROMPT, "--runs", "0")
    assert (refused.returncode, refused.stderr) == (1, "specdec: --runs is 0; give a whole number, 1 or more.\n")
    assert "chat template" in specdec_command(PROMPT, "--chat").stderr  # the embedded pair has none


def test_a_sweep_keeps_its_calls_and_prints_numbers(tmp_path) -> None:
    """With --results a second sweep measures nothing again. --json prints one object, and --export writes it too."""
    results, table = tmp_path / "sweep.results.jsonl", tmp_path / "sweep.json"
    command = ["sweep", PROMPT, "--gammas", "3", "--runs", "1", "--tokens", "32", "--results", str(results)]
    first = specdec_command(*command)
    kept = [json.loads(line) for line in results.read_text().splitlines()]
    assert first.returncode == 0 and len(kept) == 4, "the measurement, and a call of plain, our loop and \u03b3 3"
    second = specdec_command(*command, "--json", "--export", str(table))
    assert second.returncode == 0 and table.read_text() == second.stdout
    assert [json.loads(line) for line in results.read_text().splitlines()] == kept
    found = json.loads(second.stdout)
    lanes = [("generate", None), ("speculative", 0), ("speculative", 3)]
    assert [(row["lane"], row["gamma"]) for row in found["rows"]] == lanes
    assert all(isinstance(row["tokens_per_second"], float) for row in found["rows"])
    other = specdec_command(*command, "--export", str(tmp_path / "x.txt"))
    assert other.returncode == 2 and "must end in .csv, .json or .md" in other.stderr


@pytest.mark.full
def test_a_sweep_that_is_stopped_or_refused_loses_nothing(tmp_path, monkeypatch) -> None:
    """After Ctrl-C it says how much was measured and where it is kept. A refused sweep leaves no file behind."""
    results, whole = tmp_path / "sweep.results.jsonl", sweep.trials

    def stopped(*arguments):
        yield next(filter(None, whole(*arguments)))
        raise KeyboardInterrupt

    command = ["sweep", PROMPT, "--gammas", "3", "--runs", "1", "--tokens", "32", "--results", str(results)]
    refused = specdec_command(*command, "--tokens", "5000")
    assert refused.returncode == 1 and "fewer new tokens" in refused.stderr and not results.exists()
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "trials", stopped)
        ended = specdec_command(*command, "--json")
    assert ended.returncode == 130 and f"Stopped: 1 of 3 calls are measured. They are kept in {results}" in ended.stderr
    assert len(json.loads(ended.stdout)["trials"]) == 1
    assert specdec_command(*command).returncode == 0 and len(results.read_text().splitlines()) == 4


def test_a_sweep_measures_the_lengths_that_are_named() -> None:
    """The loop without a draft is always among them, because the shares of a gain need it."""
    out = specdec_command("sweep", PROMPT, "--gammas", "3", "auto", "--runs", "1", "--tokens", "32").stdout
    table = out.partition("└")[0]
    assert [line.split()[1] for line in table.splitlines() if line.startswith("│")] == ["0", "3", "auto"]


def test_a_sweep_and_the_causes_of_a_speed_may_be_of_texts_that_obey_a_grammar() -> None:
    asked = ("--regex", "(red|blue){8}", "--tokens", "64", "--runs", "1")
    swept = json.loads(specdec_command("sweep", PROMPT, "--gammas", "3", *asked, "--json").stdout)
    assert {trial["finish_reason"] for trial in swept["trials"]} == {"eos"}
    assert len({tuple(trial["token_ids"]) for trial in swept["trials"]}) == 1
    why = specdec_command("why", PROMPT, *asked).stdout
    assert "plain generate" in why and "graph engine" not in why and "target itself" not in why
