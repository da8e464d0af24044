"""Calls kept in a file: every row appears once after any interruption, and several processes write the same rows."""

from __future__ import annotations

import copy
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from comparison import HOURS
from fakes import byte_tokenizer, noisy_copy, shared_tiny, tiny
from programs import specdec_command, started

import specdec
from benchmarks.driven_over_direct import driven_over_direct
from specdec.lanes.table import lane_configs
from specdec.measure import prompts
from specdec.measure.metrics import Metrics
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import Choice, PromptItem, parse_prompts, read_prompts
from specdec.measure.results.file import ResultsFile, results_of_pair
from specdec.measure.trials import trials
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import LOCAL
from specdec.ui.tabs.measurement import pair_measurement

ROOT = Path(specdec.__file__).parent.parent
ITEMS = (PromptItem("one", "story", "Once upon a time"), PromptItem("two", "code", "def push(self"))
PARAMS = specdec.SamplingParams(max_new_tokens=32, ignore_eos=True)
CONFIGS = lane_configs(("generate", "speculative"), (0, 2, 5))


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", 4, layers=3)
    return specdec.Pair(target=target, draft=noisy_copy(target, 4, scale=0.006), tokenizer=byte_tokenizer())


def plan(**changes) -> Plan:
    return Plan(**{"prompts": ITEMS, "configs": CONFIGS, "params": PARAMS, "runs": 2} | changes)


def timeless(trial: Trial) -> tuple:
    """A row without its times."""
    counts = ("new_tokens", "target_passes", "accepted", "rejected", "discarded", "mean_acceptance_length")
    return (*trial.key, trial.category, trial.token_ids, trial.finish_reason) + tuple(
        getattr(trial.metrics, name) for name in counts
    )


def test_every_call_of_a_plan_once_and_the_order_rotates(pair) -> None:
    """Every prompt, config and run is called once.

    Greedy texts equal plain generate's, and no config is always first.
    """
    found = list(filter(None, trials(pair, plan())))
    assert len(found) == len(plan()) == 2 * 2 * 4 and len({trial.key for trial in found}) == len(found)
    assert {trial.prompt: trial.token_ids for trial in found}.keys() == {"one", "two"}
    for name in ("one", "two"):
        assert len({trial.token_ids for trial in found if trial.prompt == name}) == 1
    firsts = [trial.lane_config for place, trial in enumerate(found) if place % 4 == 0]
    assert len(set(firsts)) > 1


def test_configs_have_only_lengths_that_they_take() -> None:
    assert lane_configs(("generate", "speculative", "assisted"), (0, 3, "auto")) == (
        ("generate", None), ("speculative", 3), ("speculative", "auto"), ("assisted", 3), ("speculative", 0),
    )  # fmt: skip


def test_each_run_has_its_own_seed_and_all_lanes_share_it(pair) -> None:
    """Each run has its own seed, shared by all lanes. The plan's seed makes the whole measurement repeatable."""
    params = specdec.SamplingParams(max_new_tokens=32, temperature=1.0, seed=3, ignore_eos=True)
    first, again = ([t.token_ids for t in trials(pair, plan(params=params)) if t] for _ in range(2))
    assert first == again
    assert first[0] != first[8]


def test_what_cannot_run_is_refused_before_anything_runs(pair) -> None:
    with pytest.raises(specdec.InvalidInput, match=r"Prompt 'long', lane generate: .*context"):
        trials(pair, plan(prompts=(*ITEMS, PromptItem("long", "long", "word " * 500))))
    with pytest.raises(specdec.InvalidInput, match="too few to measure"):
        plan(params=specdec.SamplingParams(max_new_tokens=8))
    with pytest.raises(specdec.InvalidInput, match="runs is 0"):
        plan(runs=0)


def test_every_prompt_is_checked_against_the_drafts_context(pair) -> None:
    """A prompt too long for the draft's shorter context is named before anything runs."""
    draft = tiny("llama", 1, layers=1, context=64)
    short = specdec.Pair(target=pair.target, draft=draft, tokenizer=pair.tokenizer)
    with pytest.raises(specdec.InvalidInput, match=r"Prompt 'long', lane speculative: .*context"):
        trials(short, plan(prompts=(ITEMS[0], PromptItem("long", "long", "w" * 40))))


def test_an_interrupted_measurement_goes_on_where_it_was(pair, tmp_path) -> None:
    """After a stop and with a cut last line, the remaining calls run and the file has every row once."""
    whole = [timeless(trial) for trial in trials(pair, plan()) if trial]
    path = tmp_path / "results.jsonl"
    for stop_after in (3, 7, 99):
        file = ResultsFile(path, pair, plan())
        known = file.read()
        file.begin(known)
        left = trials(pair, plan(), {trial.key for trial in known})
        new = []
        for trial in filter(None, left):
            new.append(trial)
            file.add(trial)
            if len(new) == stop_after:
                left.close()
                path.write_text(path.read_text()[:-20])  # as a kill during a write leaves it
                break
    assert len(new) == len(whole) - 2 - 6
    file.merge([*known, *new])
    assert list(map(timeless, file.read())) == whole
    assert len(path.read_text().splitlines()) == len(whole) + 1


def test_a_file_of_something_else_is_refused_and_left_alone(pair, tmp_path) -> None:
    path = tmp_path / "results.jsonl"
    ResultsFile(path, pair, plan()).begin([])
    with pytest.raises(specdec.InvalidInput, match=r"another measurement \(runs differ\)"):
        ResultsFile(path, pair, plan(runs=5)).read()
    retrained = specdec.Pair(noisy_copy(pair.target, 9), pair.draft, pair.tokenizer)
    with pytest.raises(specdec.InvalidInput, match=r"another measurement \(weights differ\)"):
        ResultsFile(path, retrained, plan()).read()
    compiled = specdec.Pair(copy.copy(pair.target), pair.draft, pair.tokenizer)
    compiled.target._compiled_call_impl = compiled.target._call_impl
    with pytest.raises(specdec.InvalidInput, match=r"another measurement \(pair differ\)"):
        ResultsFile(path, compiled, plan()).read()
    path.write_text("my diary\n")
    with pytest.raises(specdec.InvalidInput, match="no results of this program"):
        ResultsFile(path, pair, plan()).read()
    assert path.read_text() == "my diary\n"
    with pytest.raises(specdec.InvalidInput, match="cannot be read"):
        ResultsFile(tmp_path, pair, plan()).read()


def test_results_are_read_from_a_text_and_nothing_else_is_taken_from_it(pair) -> None:
    """Each trial is read once, with any line ends. Forged or cut lines are dropped."""
    text = results_of_pair(pair, plan())
    found = list(filter(None, trials(pair, plan())))
    written = text.write(reversed(found))
    assert text.read(written, "x") == found
    assert text.read(written.replace("\n", "\r\n") + written.splitlines()[-1], "x") == found
    head, first, *rest = written.splitlines()
    row = json.loads(first)
    forged = [row | {"gamma": [5]}, row | {"token_ids": "x"}, row | {"metrics": {}}, row | {"run": 99}, 5]
    lines = [*map(json.dumps, forged), "[" * 99999, first[:-20], *rest]
    assert text.read("\n".join([head, *lines]), "x") == found[1:]
    for other in ("my diary", "[" * 99999):
        with pytest.raises(specdec.InvalidInput, match=r"^mine.jsonl has no results of this program"):
            text.read(other, "mine.jsonl")


def test_files_of_other_processes_are_read_and_deleted_at_the_end(pair, tmp_path, monkeypatch) -> None:
    """Each process of a launch has its own device and file. Rows in these files are not measured again."""
    path = tmp_path / "run[1].jsonl"
    found = list(filter(None, trials(pair, plan(runs=1))))
    for process, device in ((0, "cuda:0"), (1, "cuda:1")):
        monkeypatch.setattr(
            "specdec.measure.results.file.machine_facts", lambda _, device=device: {"cpu": "x", "device": device}
        )
        file = ResultsFile(path, pair, plan(runs=1), process)
        file.begin([])
        file.add(found[process])
    assert [trial.key for trial in file.read()] == [trial.key for trial in found[:2]]
    main = ResultsFile(path, pair, plan(runs=1))
    main.merge(found)
    main.clear()
    assert [file.name for file in tmp_path.iterdir()] == ["run[1].jsonl"]
    with pytest.raises(specdec.InvalidInput, match="cannot be written"):
        ResultsFile(Path("/proc/none/results.jsonl"), pair, plan()).begin([])


@pytest.fixture(scope="module")
def folder(pair, tmp_path_factory) -> Path:
    """The pair and a small prompt set on disk, for separate processes."""
    folder = tmp_path_factory.mktemp("pair")
    for name, model in zip(("target", "draft"), pair.models(drafting=True), strict=True):
        model.save_pretrained(folder / name)
        pair.tokenizer.save_pretrained(folder / name)
    categories = "[a]", "[/b]"  # to be shown unchanged, not read as markup
    rows = ({"name": f"[/p{i}]", "category": categories[i % 2], "prompt": f"Once upon {i}"} for i in range(4))
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def given(folder: Path, results: Path) -> list[str]:
    models = ["--target", folder / "target", "--draft", folder / "draft", "--prompts", folder / "prompts.jsonl"]
    sizes = ["--device", "cpu", "--gammas", 2, "--runs", 3, "--tokens", 32, "--results", results]
    return list(map(str, [*models, *sizes]))


# One thread each: the processes of a test must not compete for the cores.
SETTINGS = {"cwd": ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
LAUNCHED = "--num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0".split()


def rows_of(path: Path) -> list[tuple]:
    return [timeless(_restored(line)) for line in path.read_text().splitlines()[1:]]


def _restored(line: str) -> Trial:
    record = json.loads(line)
    return Trial(**record | {"token_ids": tuple(record["token_ids"]), "metrics": Metrics(**record["metrics"])})


@pytest.fixture(scope="module")
def uninterrupted(folder) -> list[tuple]:
    path = folder / "whole.jsonl"
    done = specdec_command("bench", *given(folder, path))
    assert done.returncode == 0, done.stderr
    for name in ("[a]", "[/b]", "[/p0]"):
        assert name in done.stdout
    return rows_of(path)


KILLS = 10 if HOURS else 1


@pytest.mark.full
def test_a_killed_benchmark_resumes_to_the_same_rows(folder, uninterrupted, tmp_path) -> None:
    """After a kill at a random row and a restart the rows equal those of an uninterrupted run."""
    chance, devnull = random.Random(KILLS), Path(os.devnull)
    for number in range(KILLS):
        path = tmp_path / f"killed{number}.jsonl"
        running = started("-m", "specdec", "bench", *given(folder, path), **SETTINGS, out=devnull, err=devnull)
        wanted, deadline = chance.randrange(1, len(uninterrupted) - 5), time.monotonic() + 120
        while running.is_alive() and time.monotonic() < deadline:
            if path.exists() and path.read_bytes().count(b"\n") > wanted:
                break
            time.sleep(0.01)
        running.kill()
        running.join()
        assert running.exitcode == -signal.SIGKILL, "it had ended before it was killed"
        assert 0 < len(path.read_text().splitlines()) - 1 < len(uninterrupted)
        assert specdec_command("bench", *given(folder, path)).returncode == 0
        assert rows_of(path) == uninterrupted


@pytest.mark.full
def test_two_processes_give_the_rows_of_one(folder, uninterrupted, tmp_path) -> None:
    """``accelerate launch`` starts two processes that share the prompts and leave one file with the same rows.

    One of them reports.
    """
    path = tmp_path / "two.jsonl"
    command = ["-m", "accelerate.commands.launch", "--cpu", *LAUNCHED, "-m", "specdec", "bench"]
    ended = subprocess.run(
        [sys.executable, *command, *given(folder, path)], **SETTINGS, capture_output=True, text=True, timeout=300
    )
    said = ended.stdout
    assert ended.returncode == 0, said
    assert rows_of(path) == uninterrupted
    assert [file.name for file in tmp_path.iterdir()] == ["two.jsonl"]
    assert said.count("Pair: ") == 1, "one process reports"


SETS = {
    "ours": ({"name": "Story", "prompt": "Once"}, ("Story", "Story", "Once")),
    "Spec-Bench": (
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."], "reference": []},
        ("81", "writing", "Write."),
    ),
    "SPEED-Bench": (
        {
            "question_id": "a1",
            "category": "math",
            "sub_category": "x",
            "turns": ["Add."],
            "source": "s",
            "difficulty": "-",
        },
        ("a1", "math", "Add."),
    ),
    "turns and category": ({"category": "qa", "turns": ["Who?", "Why?"]}, ("1", "qa", "Who?")),
    "turns alone": ({"turns": ["Who?"]}, ("1", "conversations", "Who?")),
    "HumanEval": (
        {"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "", "test": "", "entry_point": "f"},
        ("HumanEval/0", "HumanEval", "def f():\n"),
    ),
    "MBPP": ({"text": "Write f.", "code": "", "task_id": 11, "test_list": []}, ("11", "MBPP", "Write f.")),
    "sanitized MBPP": ({"task_id": 2, "prompt": "Write f.", "test_list": []}, ("2", "MBPP", "Write f.")),
    "MBPP+": ({"task_id": "Mbpp/2", "prompt": "Write f."}, ("Mbpp/2", "Mbpp", "Write f.")),
    "tasks": ({"task_id": "a", "prompt": "Write f."}, ("a", "tasks", "Write f.")),
    "a given name": (
        {"task_id": "HumanEval/0", "name": "mine", "category": "code", "prompt": "x"},
        ("mine", "code", "x"),
    ),
    "GSM8K": ({"question": "How many?", "answer": "#### 3"}, ("1", "questions", "How many?")),
    "MATH": ({"problem": "Find x.", "level": "1", "answer": "3"}, ("1", "questions", "Find x.")),
    "Arena-Hard": (
        {"question_id": "z", "category": "arena", "cluster": "c", "turns": [{"content": "Plan."}]},
        ("z", "arena", "Plan."),
    ),
    "messages": (
        {"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": None}]},
        ("1", "conversations", "Who?"),
    ),
    "messages of a system": (
        {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Who?"}]},
        ("1", "conversations", "Be short.\n\nWho?"),
    ),
    "messages in parts": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "?"}]}]},
        ("1", "conversations", "Who ?"),
    ),
    "messages as a prompt": (
        {"prompt": [{"role": "user", "content": "Who?"}], "chosen": []},
        ("1", "conversations", "Who?"),
    ),
    "ShareGPT": (
        {"id": "q_0", "conversations": [{"from": "gpt", "value": "Hi."}, {"from": "human", "value": "Who?"}]},
        ("q_0", "conversations", "Who?"),
    ),
    "nothing but null": ({"name": None, "category": None, "turns": None, "prompt": "x"}, ("1", "1", "x")),
    "blank labels": ({"name": " ", "category": "", "prompt": "x"}, ("1", "1", "x")),
    "numbers": ({"name": 1.5, "category": 3, "prompt": "x"}, ("1.5", "3", "x")),
}


def test_what_the_thread_costs_is_measured_without_a_draft_too(pair) -> None:
    alone = specdec.Pair(target=pair.target, draft=None, tokenizer=pair.tokenizer)
    found = driven_over_direct(alone, ["Once"], specdec.SamplingParams(max_new_tokens=4), gamma=5, runs=2, interval=0.0)
    assert found.keys() == {"generate"} and len(found["generate"]) == 2


def test_a_stopped_measurement_tells_what_its_verdict_counts(pair, monkeypatch) -> None:
    """If the second run is stopped, the lanes are compared on the first run, which all of them have."""
    monkeypatch.setattr("specdec.ui.tabs.measurement.CHART_EVERY", 0.0)  # so that it can be stopped after any call
    asked, stop = plan(runs=3), Event()
    statuses = []
    turn = JobContext(SimpleNamespace(pair=pair), lambda task: task.run(pair), stop)
    measured = pair_measurement(turn, asked, LOCAL)
    for status, _ in measured.steps():
        statuses.append(status)
        if measured.results and len(measured.results.trials) == len(asked) // 3 + 1:
            stop.set()
    made = len(measured.results.trials)
    assert f"Stopped: {made} of {len(asked)} calls done; the verdict uses {made - 1} calls" in statuses[-1]


def test_a_set_from_another_editor_reads_alike(tmp_path) -> None:
    """A byte order mark, Windows line ends and a line separator inside a prompt change nothing."""
    path = tmp_path / "set.jsonl"
    path.write_bytes('\ufeff{"name": "a", "prompt": "one\u2028two"}\r\n'.encode())
    assert [item.prompt for item in read_prompts(path)] == ["one\u2028two"]


def test_a_conversation_is_a_chat_message_if_there_is_a_template() -> None:
    (item,) = parse_prompts(json.dumps(SETS["Spec-Bench"][0]))
    tokenizer = byte_tokenizer()
    assert item.message(tokenizer) == "Write."
    templated = SimpleNamespace(chat_template="{{ messages }}")
    assert item.message(templated) == [{"role": "user", "content": "Write."}]


@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"indent": "\t", "ensure_ascii": False}])
@pytest.mark.parametrize("begin", ["", "\ufeff", "\r\n\n"])
def test_a_list_reads_as_its_lines_do(style, begin) -> None:
    """A JSON list on one line or indented, with any line ends, gives the prompts of the same records as lines."""
    records = [
        {"prompt": "Once [upon]\n"},
        {"name": "b", "turns": ["日本", "x"]},
        {"task_id": "HumanEval/0", "prompt": "d"},
    ]
    as_lines = parse_prompts("".join(json.dumps(record) + "\n" for record in records))
    assert parse_prompts(begin + json.dumps(records, **style).replace("\n", "\r\n") + "\n") == as_lines


def test_the_first_prompts_of_each_category() -> None:
    """The first prompts of each category are used, in the set's order. Without a number all are used."""
    items = [PromptItem(f"{i}", "ab"[i % 2], "x", chat=i == 0) for i in range(6)]
    assert [item.name for item in Choice("set", 2).of(items)] == ["0", "1", "2", "3"]
    assert Choice("set").of(items) == tuple(items)
    assert all(item.chat for item in Choice("set", chat=True).of(items))
    for first in (0, -1, True, 1.5):
        with pytest.raises(specdec.InvalidInput, match="whole number, 1 or more"):
            Choice("set", first)


def test_chat_needs_a_template(pair) -> None:
    """Chat is refused without a template: the prompts would silently be used as plain text."""
    choice = Choice("set", chat=True)
    with pytest.raises(specdec.InvalidInput, match="no chat template"):
        trials(pair, plan(prompts=choice.of(ITEMS), chosen=choice))
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"
    chatting = specdec.Pair(pair.target, pair.draft, tokenizer)
    asked = plan(prompts=choice.of(ITEMS[:1]), chosen=choice, runs=1)
    found = [trial.token_ids for trial in trials(chatting, asked) if trial]
    as_text = [trial.token_ids for trial in trials(chatting, plan(prompts=ITEMS[:1], runs=1)) if trial]
    assert len(found) == len(as_text) and found != as_text


def test_results_of_other_settings_are_refused_and_of_the_same_prompts_taken(pair) -> None:
    """Results with another temperature, chat or other prompts are refused; another name of the set is accepted."""
    text = results_of_pair(pair, plan(chosen=Choice("a set"))).write([])
    assert results_of_pair(pair, plan(chosen=Choice("renamed", first=9))).read(text, "x") == []
    warm = specdec.SamplingParams(max_new_tokens=32, temperature=0.5, seed=0, ignore_eos=True)
    chat, first = Choice("a set", chat=True), ITEMS[:1]
    for change, named in (
        ({"params": warm}, "params"),
        ({"prompts": chat.of(ITEMS), "chosen": chat}, "prompts"),
        ({"prompts": first}, "prompts"),
    ):
        with pytest.raises(specdec.InvalidInput, match=rf"another measurement \({named} differ\)"):
            results_of_pair(pair, plan(**change)).read(text, "x")


@pytest.mark.parametrize("name", SETS)
def test_prompt_sets_are_told_apart(name: str) -> None:
    record, wanted = SETS[name]
    (item,) = parse_prompts(f"{json.dumps(record)}\n\n  ")
    assert (item.name, item.category, item.prompt) == wanted


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("", "The file has no prompts"),
        ("{", r"Line 1 is not JSON \(EOF while parsing an object, at character 1\)"),
        ('{"prompt": "x", "category": "\\ud800"}', r"Line 1 is not JSON \(unexpected end of hex escape"),
        ("[" * 99999, "Line 1 is not JSON"),
        ("1" * 99999, "Line 1 is not JSON"),
        ('{"text": "x"}', r"Line 1 holds no prompt \(found: text\)"),
        ("[1]", r"Line 1 holds no prompt \(found: int\)"),
        ('{"article": "x", "highlights": "y"}', r"Line 1 holds no prompt \(found: article, highlights\)"),
        ('{"prompt": 5}', "Line 1 holds no prompt: the field prompt is 5"),
        ('{"prompt": " "}', "Line 1 holds no prompt: the field prompt is empty"),
        ('{"prompt": {"a": 1}}', "Line 1 holds no prompt: the field prompt is a dict"),
        ('{"turns": []}', "Line 1 holds no prompt: the field turns has no turn"),
        ('{"turns": [""]}', "Line 1 holds no prompt: the field turns has an empty turn"),
        ('{"turns": [["a"]]}', r"the field turns has a turn without a text \(found: a list\)"),
        ('{"turns": [{"words": "x"}]}', r"the field turns has a turn without a text \(found: words\)"),
        ('{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', "a part that is no text"),
        ('{"conversations": [{"from": "gpt", "value": "x"}]}', r"has no turn of a user \(found: 'gpt'\)"),
        ('{"name": "a", "prompt": "x"}\n' * 2, r"Two prompts are called 'a' \(lines 1 and 2\)"),
        ('{"name": "' + "a" * 201 + '", "prompt": "x"}', "Line 1 has a name .* up to 200 characters"),
        ('{"task_id": "' + "a" * 500_000 + '", "prompt": "x"}', "Line 1 has a task_id"),
        ('{"question_id": ["a"], "turns": ["x"]}', "Line 1 has a question_id that is a list"),
        ('{"name": true, "prompt": "x"}', "Line 1 has a name that is True"),
        (
            '{"prompt": "x"}\n{"category": ["a", "b"], "prompt": "x"}',
            "Line 2 has a category that is a list; give a text",
        ),
        ('{\n "prompt": "x"\n}', "Line 1 is not JSON .* Write each record in one line, or all as a JSON list"),
        ('[\n {"prompt": "x"},\n {"prompt": 5}\n]', "Line 3 holds no prompt: the field prompt is 5"),
        ('[\n {"prompt": "x"},\n {"prompt" 5}\n]', r"Line 3 is not JSON \(expecting ':' delimiter, at character 12\)"),
        ('[{"prompt": "x"}\n{"prompt": "y"}]', r"Line 2 is not JSON \(after element 1 of the list comes '\{'\)"),
        ('[{"prompt": "x"}', "Line 1 is not JSON .after element 1 of the list comes the end of the file"),
        ('[{"prompt": "x"}]\n[]', "Line 1 ends a list, and more follows it"),
        ("[]", "The file has no prompts"),
        ('{"category": "' + "a" * 201 + '", "prompt": "x"}', "Line 1 has a category"),
        ('{"prompt": "x"}\n' * 10_001, "more than 10,000 prompts"),
        ('{"' + "a" * 500_000 + '": 1}', r"Line 1 holds no prompt \(found: a{40}\)"),
    ],
)
def test_a_bad_prompt_set_is_refused_with_its_line(text: str, complaint: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=complaint) as refused:
        parse_prompts(text)
    assert len(str(refused.value)) < 400


def test_a_name_may_be_long_a_number_or_left_out() -> None:
    lines = ['{"name": "' + "a" * 200 + '", "prompt": "x"}', '{"name": 7, "prompt": "y"}', '{"prompt": "z"}']
    assert [item.name for item in parse_prompts("\n".join(lines))] == ["a" * 200, "7", "3"]


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace('"run":0', '"run":"0"'),
        lambda line: line.replace('"decode_seconds":', '"decode_seconds":NaN,"was":'),
        lambda line: line.replace('"token_ids":[', '"token_ids":["a",'),
        lambda line: line.replace('"metrics":{', '"metrics":5,"was":{'),
        lambda line: "[" * 100_000 + "\n",
        lambda line: '{"a":' * 100_000 + "\n",
    ],
    ids=["run", "seconds", "tokens", "metrics", "lists", "objects"],
)
def test_a_line_of_results_that_is_no_trial_is_measured_again(change, pair, tmp_path) -> None:
    found = [trial for trial in trials(pair, plan(runs=1)) if trial]
    file = ResultsFile(tmp_path / "results.jsonl", pair, plan(runs=1))
    file.begin(found)
    head, first, *rest = file.path.read_text().splitlines(keepends=True)
    assert file.read() == found and change(first) != first
    file.path.write_text(head + change(first) + "".join(rest))
    assert file.read() == found[1:]


def test_results_that_are_too_large_or_too_deep_are_refused(pair, tmp_path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("[" * 100_000)
    with pytest.raises(specdec.InvalidInput, match="has no results"):
        ResultsFile(path, pair, plan()).read()
    os.truncate(path, 256_000_001)
    with pytest.raises(specdec.InvalidInput, match="larger than 256 MB"):
        ResultsFile(path, pair, plan()).read()


def test_a_file_that_is_no_text_is_refused(tmp_path) -> None:
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(specdec.InvalidInput, match="cannot be read as UTF-8"):
        read_prompts(tmp_path / "set.jsonl")


def test_a_packed_set_is_read_as_it_comes(tmp_path) -> None:
    """A .jsonl.gz file, as HumanEval has, is read under any name."""
    record = {"task_id": "HumanEval/0", "prompt": "def f():\n"}
    (tmp_path / "HumanEval").write_bytes(gzip.compress(json.dumps(record).encode()))
    (item,) = read_prompts(tmp_path / "HumanEval")
    assert (item.name, item.category, item.prompt) == ("HumanEval/0", "HumanEval", "def f():\n")


def test_what_a_packed_set_may_unpack_to_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(prompts, "LARGEST", 10**6)
    (tmp_path / "set.jsonl.gz").write_bytes(gzip.compress(b" " * 10**8))
    with pytest.raises(specdec.InvalidInput, match="more than 1 MB"):
        read_prompts(tmp_path / "set.jsonl.gz")


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"{}" * 999)[:-9], b"\x1f\x8bnothing", b"\x1f\x8b", b"[" * 99999],
    ids=["cut short", "not packed at all", "empty", "nested too deep"],  # packed bytes hold the time
)
def test_a_file_that_cannot_be_read_is_named_without_its_folder(tmp_path, content: bytes) -> None:
    (tmp_path / "set.jsonl.gz").write_bytes(content)
    with pytest.raises(specdec.InvalidInput) as refused:
        read_prompts(tmp_path / "set.jsonl.gz")
    assert str(tmp_path) not in str(refused.value) and "Errno" not in str(refused.value)
