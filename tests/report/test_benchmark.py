"""Each file of a benchmark states what was measured, on which machine, and with which settings."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from judged import PAIR, drafting, loop, plain, trial

import specdec
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.plan import Plan
from specdec.measure.prompts import Choice, PromptItem
from specdec.report.benchmark import EXPORTS, benchmark_json
from specdec.report.provenance import provenance_rows

SPECULATIVE = LaneConfig("speculative", 4)
ABOUT = {
    "pair": PAIR | {"engine": {"name": "eager", "reason": None}},
    "machine": {"cpu": "A CPU", "gpu": "A GPU", "cores": 8, "threads": 7, "device": "cuda:0"},
    "versions": {"specdec": "1.2", "python": "3.12.1", "torch": "2.13.0", "transformers": "5.23.0"},
    "at": datetime(2026, 1, 31, 23, 59, tzinfo=UTC).timestamp(),
}
FOUND = [
    trial(0, BASELINE, plain(0.020)),
    trial(0, LOOP, loop(0.020)),
    trial(0, SPECULATIVE, drafting(4, (4, 2), 0.001, 0.020)),
]
CHOSEN = Choice("questions.jsonl", 1, True)


@pytest.fixture
def plan() -> Plan:
    params = specdec.SamplingParams(64, temperature=0.7, seed=3)
    prompts = CHOSEN.of([PromptItem("a", "c", "Who?")])
    return Plan(prompts, (BASELINE, LOOP, SPECULATIVE, LaneConfig("speculative", "auto")), params, 3, CHOSEN)


WORDS = (
    "embedded, target (2 layers) \u2190 draft (2 layers)", "A CPU", "A GPU", "cuda:0", "1.2", "3.12.1", "2.13.0",
    "5.23.0", "questions.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("suffix", [".md", ".csv", ".json"])
def test_a_file_names_what_it_comes_from(plan, suffix: str) -> None:
    text = (EXPORTS.get(suffix) or benchmark_json)(ABOUT, plan, FOUND)
    # JSON holds the pair's facts and the time unchanged. In a table the time is a date for people.
    words = {
        ".md": ("31 January 2026", *WORDS),
        ".csv": ("2026-01-31", *WORDS),
        ".json": ('"name": "embedded"', str(ABOUT["at"]), *WORDS[1:]),
    }
    for word in words[suffix]:
        assert word in text, word


def test_the_settings_as_a_person_reads_them(plan) -> None:
    found = provenance_rows(ABOUT, plan)
    assert found["Settings"] == "64 new tokens per prompt, 3 runs, temperature 0.7, seed 3, \u03b3 0, 4 and auto"
    assert found["Prompts"] == "1 prompt of questions.jsonl, the first 1 of each category, as chat messages."
    assert found["Machine"] == "A GPU \u00b7 A CPU \u00b7 cuda:0 \u00b7 8 cores, 7 threads used"
    greedy = Plan(plan.prompts, (BASELINE,), specdec.SamplingParams(64, seed=0), 1)
    assert provenance_rows(ABOUT, greedy)["Settings"] == "64 new tokens per prompt, 1 run, temperature 0 (greedy)"


def test_every_row_of_the_csv_stands_alone(plan) -> None:
    """Each CSV row has all settings, so that rows of several files can be joined."""
    rows = list(csv.DictReader(io.StringIO(EXPORTS[".csv"](ABOUT, plan, FOUND))))
    assert len(rows) == 3
    for row in rows:
        assert row["prompt_set"] == "questions.jsonl" and row["first_a_category"] == "1" and row["chat"] == "True"
        assert (row["new_tokens"], row["planned_runs"], row["temperature"], row["seed"]) == ("64", "3", "0.7", "3")
        assert (row["grammar"], row["gammas"]) == ("", "0 4 auto")
        assert row["torch"] == "2.13.0" and row["gpu"] == "A GPU"
    assert float(rows[0]["tokens_per_second"]) == pytest.approx(50)
    obeying = replace(plan, params=replace(plan.params, grammar=specdec.Grammar("regex", "[a-z]+")))
    assert {row["grammar"] for row in csv.DictReader(io.StringIO(EXPORTS[".csv"](ABOUT, obeying, FOUND)))} == {"regex"}


def test_a_sampled_row_has_the_acceptance_to_be_expected(plan) -> None:
    """Its column is the mean over all tested guesses, pooled over prompts and runs. Plain ``generate`` has none."""
    metrics = replace(FOUND[2].metrics, tested_at=(8, 2), kept_at=(6, 1), overlap_at=(6.5, 1))
    sampled = replace(FOUND[2], metrics=metrics)
    rows = list(csv.DictReader(io.StringIO(EXPORTS[".csv"](ABOUT, plan, [*FOUND[:2], sampled]))))
    assert [row["expected_acceptance"] for row in rows] == ["", "", "0.75"]


def test_the_json_holds_everything(plan) -> None:
    found = json.loads(benchmark_json(ABOUT, plan, FOUND))
    assert found["params"]["temperature"] == 0.7 and found["params"]["seed"] == 3
    assert found["chosen"] == {"name": "questions.jsonl", "first": 1, "chat": True}
    assert found["prompts"] == [{"name": "a", "category": "c", "prompt": "Who?", "chat": True}]
    assert ["speculative", "auto"] in found["configs"] and len(found["trials"]) == 3
    assert {row["lane"] for row in found["rows"]} == {"generate", "speculative"}


def test_the_markdown_table_has_its_rows_after_their_source(plan) -> None:
    lines = EXPORTS[".md"](ABOUT, plan, FOUND).splitlines()
    head = lines.index("")
    assert all(line.startswith("- ") for line in lines[:head])
    assert lines[head + 1].startswith("Each row shows its median run") and lines[head + 2] == ""
    assert lines[head + 3].startswith("| Category | Lane |")
    assert lines[-1].startswith("| c | Speculative | 4 |")
