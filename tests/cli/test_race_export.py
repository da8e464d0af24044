"""``specdec run --export``: each file holds the race that ran, in the form that its ending names."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from fakes import byte_tokenizer
from judged import PAIR, drafting, loop, plain
from needed import missing_node, require
from programs import specdec_command

import specdec
from specdec.cli import run
from specdec.cli.parsers.run import RACE_FILES
from specdec.cli.parsers.shared import TABLES
from specdec.lanes.table import BASELINE, LOOP
from specdec.measure.result import written_ids
from specdec.report.benchmark import EXPORTS
from specdec.report.code_export import race_code
from specdec.report.compare import COMPARED
from specdec.report.race_export import RACE_EXPORTS, FinishedRace, race_json, race_markdown
from specdec.report.race_verdict import race_verdict
from specdec.report.recording import Recorder, lanes
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.race_settings import value_of
from specdec.ui.script_tables import lane_list

ROOT = Path(specdec.__file__).parents[1]
PROMPT = 'She said: "\u03b3 = 5", and'
ASKED = ["--tokens", "24", "--runs", "2", "--temperature", "0.8", "--gamma", "3", "--dtype", "float32", "--stop", "zzz"]
LANES = ["generate", "speculative", "speculative:0", "prompt-lookup"]
READ = """
import { readFileSync } from "node:fs";
import { defineLanes } from "./specdec/ui/assets/lib/lanes.js";
import { readRecording } from "./specdec/ui/assets/race/race.js";
const [lanes, file] = process.argv.slice(1);
defineLanes(JSON.parse(lanes));
const race = readRecording(readFileSync(file, "utf-8"));
console.log(JSON.stringify({ lines: race.length, settings: race[0].settings }));
"""


@pytest.fixture
def exported(tmp_path_factory) -> Path:
    """A folder with a file of each ending, all of one sampled race whose seed was drawn."""
    folder = tmp_path_factory.getbasetemp() / "exported"
    if not folder.exists():  # else made for another test of this process
        folder.mkdir()
        files = [str(folder / f"race{ending}") for ending in RACE_FILES]
        ended = specdec_command(PROMPT, *ASKED, "--lanes", *LANES, "--export", *files)
        assert (ended.returncode, ended.stderr) == (0, "")
        (folder / "printed.txt").write_text(ended.stdout, encoding="utf-8")
    return folder


def recorded(folder: Path) -> list[list[int]]:
    """The new tokens of each lane of each run, in the order of the recording."""
    lines = (folder / "race.jsonl").read_text(encoding="utf-8").splitlines()
    return [written_ids(lane) for lane in lanes(lines)]


def test_the_recording_is_one_that_the_page_opens(exported) -> None:
    """By the page's own check. It holds all runs, and the settings to repeat it."""
    require(missing_node())
    file = exported / "race.jsonl"
    command = ["node", "--input-type=module", "-e", READ, lane_list(), str(file)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["lines"] == len(file.read_text(encoding="utf-8").splitlines())
    assert found["settings"]["prompt"] == PROMPT and found["settings"]["gamma"] == 3
    assert found["settings"]["lanes"] == "prompt-lookup" and found["settings"]["seed"] >= 0
    assert found["settings"]["stop"] == '["zzz"]', "the page has no stop strings, so it must refuse to repeat this"
    with pytest.raises(specdec.InvalidInput, match="no such setting"):
        value_of("stop", found["settings"]["stop"], Limits())
    assert len(recorded(exported)) == 2 * len(LANES)


def test_the_figures_are_numbers_in_json(exported) -> None:
    found = json.loads((exported / "race.json").read_text(encoding="utf-8"))
    assert found["prompt"] == PROMPT and found["params"]["stop"] == ["zzz"] and found["params"]["seed"] is not None
    assert {row["lane"] for row in found["rows"]} == {"generate", "speculative", "prompt-lookup"}
    assert all(isinstance(row[name], float) for row in found["rows"] for name in ("tokens_per_second", "speedup"))
    assert isinstance(found["verdict"]["gain"], float) and isinstance(found["verdict"]["speculation"], float)
    assert [trial["token_ids"] for trial in found["trials"]] == recorded(exported)
    assert found["verdict"]["sentence"] in (exported / "printed.txt").read_text(encoding="utf-8")


def test_the_table_has_the_same_figures(exported) -> None:
    found = json.loads((exported / "race.json").read_text(encoding="utf-8"))
    with (exported / "race.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["speedup"]) for row in rows] == [row["speedup"] for row in found["rows"]]
    assert {row["prompt"] for row in rows} == {PROMPT} and {row["temperature"] for row in rows} == {"0.8"}
    assert {row["seed"] for row in rows} == {str(found["params"]["seed"])} and {row["stop"] for row in rows} == {
        '["zzz"]'
    }
    text = (exported / "race.md").read_text(encoding="utf-8")
    assert found["verdict"]["sentence"] in text and "temperature 0.8, stop at 'zzz', seed " in text
    assert sum(line.startswith("| given |") for line in text.splitlines()) == len(rows) == len(LANES)


def test_the_rows_are_of_the_run_that_the_verdict_shows() -> None:
    """Our loop's own median run is the second one, whose speed-up would contradict the sentence above the table."""
    runs = [
        {BASELINE.key: plain(base), LOOP.key: loop(alone), "speculative": drafting(4, (4,), 0.09, 1.0)}
        for base, alone in ((2.0, 1.0), (3.0, 2.0))
    ]
    about = {
        "at": 0.0,
        "pair": PAIR,
        "machine": {"cpu": "x", "cores": 2, "threads": 1, "device": "cpu"},
        "versions": {},
    }
    race = FinishedRace(
        load={}, about=about, prompt="a", chat=False, gamma=4, params=specdec.SamplingParams(64), acceptance="lossless",
        lanes=list(runs[0]), runs=runs, verdict=race_verdict(runs), recorder=Recorder(byte_tokenizer()),
    )  # fmt: skip
    verdict, rows = (json.loads(race_json(race))[name] for name in ("verdict", "rows"))
    assert verdict["shown"] == 0 and verdict["engine"] == pytest.approx(2.0)
    assert [row["speedup"] for row in rows] == pytest.approx([1.0, verdict["engine"], verdict["gain"]])
    text = race_markdown(race)
    assert "2 runs, of which figures are those of run 1 (lowest\u2013highest of all)" in text
    assert "| given | Our loop, no draft | 0 | 1.0 (0.5\u20131.0) | 2.0x (1.5\u20132.0) |" in text


@pytest.mark.full
def test_the_code_repeats_the_race(exported, monkeypatch) -> None:
    """It writes the same sampled texts in every lane of every run, and prints a verdict."""
    code, race, events = (exported / "race.py").read_text(encoding="utf-8"), specdec.race, []

    def noted(*arguments, **asked):
        for batch in race(*arguments, **asked):
            events.extend(batch)
            yield batch

    monkeypatch.setattr(specdec, "race", noted)
    with redirect_stdout(io.StringIO()) as out:
        exec(code, {})
    starts = [at for at, event in enumerate(events) if isinstance(event, specdec.Started)]
    ends = [*starts[1:], len(events)]
    assert [written_ids(events[start:end]) for start, end in zip(starts, ends, strict=True)] == recorded(exported)
    assert 'load_pair(dtype="float32", draft_dtype="float32")' in code and "2 runs, " in out.getvalue()


def test_a_chat_with_block_verification_is_repeated_as_one() -> None:
    asked = {"gamma": "auto", "lanes": ["generate", "speculative"], "runs": 1, "acceptance": "block"}
    load = {"target": "./a", "draft": "prompt-lookup", "bits": 4}
    message = [{"role": "user", "content": "</script>\u202e\n"}]
    code = race_code(load, message, specdec.SamplingParams(), asked)
    assert 'load_pair(target="./a", draft="prompt-lookup", bits=4)' in code and "SamplingParams()" in code
    assert '[{"role": "user", "content": "</script>\\u202e\\n"}]' in code and 'acceptance="block",' in code
    compile(code, "race.py", "exec")


def test_json_lines_and_files_are_of_the_same_run(tmp_path) -> None:
    file = tmp_path / "race.jsonl"
    refused = specdec_command(PROMPT, "--json", "--runs", "2")
    assert refused.returncode == 1 and "one race; leave --runs out" in refused.stderr
    ended = specdec_command(PROMPT, "--tokens", "12", "--json", "--export", str(file))
    assert ended.returncode == 0 and len(ended.stdout.splitlines()) + 5 == len(file.read_text().splitlines())
    assert [written_ids(lane) for lane in lanes(ended.stdout.splitlines())] == recorded(tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [("race.xlsx", "must end in .jsonl, .json, .csv, .md or .py"), ("none/race.csv", "does not exist")],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(name, said, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run, "pair_of", lambda arguments: pytest.fail("models were read"))
    ended = specdec_command(PROMPT, "--export", str(tmp_path / name))
    assert (ended.returncode, ended.stdout) == (2, "") and said in ended.stderr


def test_a_file_that_fails_at_the_end_loses_neither_the_verdict_nor_the_others(tmp_path, monkeypatch) -> None:
    load = run.pair_of

    def meanwhile(arguments):
        (tmp_path / "race.csv").mkdir()
        return load(arguments)

    monkeypatch.setattr(run, "pair_of", meanwhile)
    ended = specdec_command(PROMPT, "--tokens", "8", "--export", str(tmp_path / "race.csv"), str(tmp_path / "race.py"))
    assert ended.returncode == 1 and "race.csv cannot be written" in ended.stderr
    assert "tokens/s" in ended.stdout and "specdec.race(" in (tmp_path / "race.py").read_text()


def test_every_ending_that_is_accepted_can_be_written() -> None:
    assert set(RACE_FILES) == RACE_EXPORTS.keys()
    assert set(TABLES) == {*EXPORTS, ".json"} == COMPARED.keys()
