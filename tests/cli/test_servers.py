"""The race of servers in the terminal."""

from __future__ import annotations

import json
import re

import pytest
from programs import specdec_command
from server_standins import Dying, StandIn

from specdec.lanes.table import BASELINE
from specdec.measure.results.format import read_results
from specdec.servers.bench import UNTOLD


@pytest.mark.parametrize(("option", "between"), [([], ""), (["--chat"], "\n\n")])
def test_an_answer_stands_apart_from_a_message_and_goes_on_from_a_text(option, between) -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        words = [f"plain={plain.url}", f"other={other.url}", *option, "Once upon", "--tokens", "8", "--runs", "1"]
        ended = specdec_command("servers", *words)
    assert ended.returncode == 0, ended.stderr
    assert f"Once upon{between}, a robot" in ended.stdout


def test_a_table_over_prompts_names_the_plain_server(tmp_path) -> None:
    """No word of a pair on this machine is in what is printed, nor in the files."""
    prompts, files = tmp_path / "two.jsonl", [tmp_path / f"found.{ending}" for ending in ("json", "csv", "md")]
    prompts.write_text('{"prompt": "Once upon"}\n{"prompt": "One day"}\n')
    with StandIn("plain") as plain, StandIn("vllm") as other:
        words = [f"plain={plain.url}", f"fast={other.url}", "--prompts", prompts, "--tokens", "32", "--runs", "2"]
        ended = specdec_command("servers", *words, "--export", *files)
    assert ended.returncode == 0, ended.stderr
    found, rows, table = json.loads(files[0].read_text()), files[1].read_text(), files[2].read_text()
    assert "over the plain server" in " ".join(ended.stdout.split())
    assert "the plain server" in found["verdict"]["sentence"] and "over the plain server" in table
    assert {row["lane"] for row in found["rows"]} == {"plain server", "speculative server"}
    assert rows.splitlines()[1].split(",")[1] == "plain server"
    for text in (ended.stdout, found["verdict"]["sentence"], rows, table):
        assert "generate" not in text and "our loop" not in text.lower() and "\u03b3 0" not in text
    assert "predicted" not in ended.stdout


def test_calls_over_prompts_are_a_results_file(tmp_path) -> None:
    """Also of a single server that does not tell its draft length, and whose name does not."""
    prompts, file = tmp_path / "two.jsonl", tmp_path / "found.jsonl"
    prompts.write_text('{"prompt": "Once upon"}\n{"prompt": "One day"}\n')
    with StandIn("plain") as plain, StandIn("text") as silent:
        words = [f"plain={plain.url}", f"other={silent.url}", "--prompts", prompts, "--tokens", "32", "--runs", "1"]
        ended = specdec_command("servers", *words, "--export", file)
        assert ended.returncode == 0, ended.stderr
        assert "not told" in ended.stdout and "engine 1" not in ended.stdout and "\u03b3 engine" not in ended.stdout
    results = read_results(file.read_text(), file.name)
    assert results.plan.configs == (BASELINE, UNTOLD) and len(results.trials) == len(results.plan) == 4
    texts = {trial.prompt: set() for trial in results.trials}  # type: ignore[var-annotated]
    for trial in results.trials:
        texts[trial.prompt].add("".join(map(chr, trial.token_ids)))
    assert all(len(found) == 1 and found.pop().startswith(", a robot") for found in texts.values()), "letters"


def test_a_set_without_prompts_is_refused_before_a_server_is_asked(tmp_path) -> None:
    prompts = tmp_path / "none.jsonl"
    prompts.write_text("\n")
    with StandIn("plain") as plain, StandIn("vllm") as other:
        words = ["servers", f"plain={plain.url}", f"fast={other.url}", "--prompts", prompts]
        assert "The file has no prompts." in specdec_command(*words).stderr
        assert not plain.asked and not other.asked


def test_two_samples_are_of_one_prompt() -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        words = ["lossless", f"plain={plain.url}", f"fast={other.url}", "Once upon", "--tokens", "8"]
        ended = specdec_command(*words, "One day", "--temperature", "0.8")
        assert ended.returncode == 1 and "continuations of one prompt are compared; 2 are given" in ended.stderr
        ended = specdec_command(*words, "--temperature", "0.8", "--draws", "49")
        assert ended.returncode == 1 and "--draws must be 50 or more" in ended.stderr
        assert not plain.asked and not other.asked
        assert "1 prompt: 1 the same." in specdec_command(*words).stdout


def test_what_was_measured_before_a_server_died_is_shown(tmp_path) -> None:
    """Under load and over prompts: the files and the table have it, then comes the sentence about the server."""
    prompts, file = tmp_path / "one.jsonl", tmp_path / "found.json"
    prompts.write_text('{"prompt": "Once upon"}')
    with StandIn("plain") as plain, Dying(4) as other:
        words = [f"plain={plain.url}", f"fast={other.url}", "--tokens", "32", "--export", file, "--runs", "9"]
        ended = specdec_command("load", *words[:-1], "1", "--at-once", "2")
        assert ended.returncode == 1 and "The server fast broke the connection" in ended.stderr
        assert "Ended early: 3 of 4 measurements were made." in ended.stdout and "Speed-up" in ended.stdout
        assert [(row["at_once"], row["server"]) for row in json.loads(file.read_text())["rows"]] == [
            (1, "plain"), (1, "fast"),
        ]  # fmt: skip
        ended = specdec_command("load", *words)
        assert ended.returncode == 1 and "Speed-up" not in ended.stdout
    with StandIn("plain") as plain, Dying(4) as other:
        words[:2] = [f"plain={plain.url}", f"fast={other.url}", "--prompts", prompts]
        ended = specdec_command("servers", *words)
        assert ended.returncode == 1 and "The server fast broke the connection" in ended.stderr
        assert "Each row shows its median run" in " ".join(ended.stdout.split())
        assert 6 <= len(json.loads(file.read_text())["trials"]) < 18


def test_the_texts_that_were_compared_before_a_server_died_are_judged(tmp_path) -> None:
    prompts = tmp_path / "three.jsonl"
    prompts.write_text('{"prompt": "Once upon"}\n' * 3)
    for more in ([], ["--json"]):
        with StandIn("plain") as plain, Dying(2) as other:
            words = [f"plain={plain.url}", f"fast={other.url}", "--prompts", prompts, "--tokens", "8", *more]
            ended = specdec_command("lossless", *words)
        assert ended.returncode == 1 and "The server fast broke the connection" in ended.stderr
        assert len(json.loads(ended.stdout)) == 2 if more else "2 prompts: 2 the same." in ended.stdout


@pytest.mark.parametrize("command", ["servers", "why"])
def test_the_runs_of_a_race_before_a_server_died_are_judged(command) -> None:
    with StandIn("plain") as plain, Dying(3) as other:  # a warm-up and two runs
        words = [f"plain={plain.url}", f"fast={other.url}", "Once upon", "--tokens", "48", "--runs", "4"]
        ended = specdec_command(command, *words)
    assert ended.returncode == 1 and "The server fast broke the connection" in ended.stderr
    assert re.search("(times as fast as|the speed of) the plain server", " ".join(ended.stdout.split()))


def test_a_second_plain_server_has_no_row(tmp_path) -> None:
    prompts = tmp_path / "one.jsonl"
    prompts.write_text('{"prompt": "Once upon"}')
    with StandIn("plain") as plain, StandIn("plain") as other, StandIn("text") as silent:
        words = ["servers", f"plain={plain.url}", "--prompts", prompts, "--tokens", "32"]
        ended = specdec_command(*words, f"5={other.url}")
        assert ended.returncode == 1 and "The server 5 does not speculate" in ended.stderr
        ended = specdec_command(*words, f"0={silent.url}")
        assert ended.returncode == 1 and "The server 0 does not speculate" in ended.stderr


def test_files_of_several_servers_say_of_each_how_many_guesses_it_makes(tmp_path) -> None:
    prompts, file = tmp_path / "one.jsonl", tmp_path / "found.md"
    prompts.write_text('{"prompt": "Once upon"}')
    with StandIn("plain") as plain, StandIn("text") as first, StandIn("vllm") as second:
        words = [f"plain={plain.url}", f"2={first.url}", f"fast={second.url}", "--prompts", prompts, "--tokens", "32"]
        assert specdec_command("servers", *words, "--runs", "1", "--export", file).returncode == 0
    text = file.read_text()
    assert "vLLM 0.32.0 \u00b7 its server drafts and checks\n" in text and "up to 4" not in text
    assert [line.split(" | ")[2] for line in text.splitlines() if line.startswith("| 1 |")] == ["", "2", "4"]


@pytest.mark.parametrize("words", [["load"], ["sweep"], ["load", "servers"], ["lossless", "servers"]])
def test_words_and_a_file_of_prompts_are_not_both_taken(words, tmp_path) -> None:
    prompts = tmp_path / "one.jsonl"
    prompts.write_text('{"prompt": "Once upon"}')
    with StandIn("plain") as plain, StandIn("vllm") as other:
        named = [f"plain={plain.url}", f"fast={other.url}"] if words[1:] else []
        ended = specdec_command(words[0], *named, "One day", "--prompts", prompts)
        assert ended.returncode == 1 and "not both" in ended.stderr and not plain.asked


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [("load", "--gamma", "3"), ("load", "--contexts", "64"), ("why", "--gamma", "3"), ("why", "--draft", "suffix")],
)
def test_an_option_of_a_pair_is_not_ignored_beside_servers(command, option, value) -> None:
    with StandIn("plain") as plain, StandIn("vllm") as other:
        ended = specdec_command(command, f"plain={plain.url}", f"fast={other.url}", "One day", option, value)
        assert ended.returncode == 1 and f"{option} is of a pair" in ended.stderr and not plain.asked


@pytest.mark.parametrize("command", ["load", "why"])
def test_the_name_of_a_servers_model_is_not_ignored_without_servers(command) -> None:
    ended = specdec_command(command, "One day", "--model", "m")
    assert ended.returncode == 1 and "--model is of servers" in ended.stderr
