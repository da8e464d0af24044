"""Saved results of any sender open without the pair that made them."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import asdict, replace
from typing import Any

import pytest
from judged import PAIR, drafting, loop, plain, plan, trial

import specdec
from specdec.lanes.table import BASELINE, LOOP, lane_configs
from specdec.measure.metrics import in_microseconds
from specdec.measure.results import format as kept
from specdec.measure.results.format import Results, figures_only, read_results
from specdec.measure.summary import summarise, summary_rows
from specdec.report.benchmark import summary_cells
from specdec.report.provenance import HERE, LINK, RECORDING, Origin, provenance_line
from specdec.report.sweep import overall, sweep_rows
from specdec.report.sweep import sweep_cells as sweep_cells

STOP = "confidence:0.4"
LANES = lane_configs(("generate", "speculative", "assisted"), (0, 3, "auto", STOP))
ABOUT = {
    "version": 4, "at": 1.7e9, "pair": PAIR | {"draft": PAIR["draft"] | {"text": "d"}, "context": 512},
    "machine": {"cpu": "A processor", "cores": 2, "threads": 1, "device": "cpu"}, "versions": {"torch": "2.13.0"},
}  # fmt: skip


def results(runs: int = 2, prompts: tuple[str, ...] = ("a", "b"), left_out: int = 0) -> Results:
    """Trials computed from given numbers, with seconds as a measurement stores them."""
    asked = plan(LANES, runs, prompts)
    made = []
    for run, item, config in asked.steps():
        seconds = 0.0123456 * (1 + run / 7)
        if config == BASELINE:
            events = plain(seconds)
        else:
            events = loop(seconds) if config == LOOP else drafting(3, (3, 1, 2), seconds / 9, seconds, 0.001)
        found = trial(run, config, events, item.name)
        if config.lane == "assisted":  # it does not report its guesses
            unknown = dict.fromkeys(("accepted", "rejected", "discarded", "draft_seconds", "verify_seconds"))
            found = replace(found, metrics=replace(found.metrics, **unknown))
        made.append(replace(found, metrics=in_microseconds(found.metrics)))
    return Results(ABOUT, asked, made[: len(made) - left_out])


def text_of(found: Results) -> str:
    """A file of these results."""
    asked = found.plan
    head = found.about | {
        "weights": "0", "prompts": [asdict(item) for item in asked.prompts], "configs": asked.configs,
        "runs": asked.runs, "params": asdict(asked.params), "chosen": asdict(asked.chosen),
    }  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in [{"results": head}, *map(asdict, found.trials)])


def shown(found: Results) -> tuple[Any, ...]:
    """Everything that a tab shows of results, as at the end of their measurement."""
    rates = [sweep_cells(row, False) for row in sweep_rows(summarise(found.trials), one_pass=False)]
    lines = provenance_line(found.about), overall(found.trials, found.plan)
    return *lines, list(map(summary_cells, summary_rows(found.trials))), rates


@pytest.mark.parametrize("left_out", [0, 5])
def test_a_file_and_a_link_show_what_was_measured(left_out: int) -> None:
    """A file and a link give the same verdict and tables to the last digit, also for a stopped measurement."""
    found = results(left_out=left_out)
    for opened in (read_results(text_of(found), "x"), read_results(figures_only(found), "x")):
        assert shown(opened) == shown(found)
        assert {t.key for t in opened.trials} == {t.key for t in found.trials}


def test_a_link_has_no_texts() -> None:
    """A link stores only which texts are equal, not the texts."""
    found = results(prompts=("a",))
    other = replace(found.trials[1], token_ids=(7, 7))
    text = figures_only(replace(found, trials=[found.trials[0], other, *found.trials[2:]]))
    opened = read_results(text, "x")
    assert [t.token_ids for t in opened.trials][:3] == [(0,), (1,), (0,)]
    assert found.plan.prompts[0].prompt and opened.plan.prompts[0].prompt == ""


def test_sampled_texts_are_not_told_apart() -> None:
    asked = plan((BASELINE, LOOP))
    sampled = replace(asked, params=specdec.SamplingParams(max_new_tokens=64, temperature=1.0, seed=3))
    made = [replace(trial(0, e, plain(0.01, e)), greedy=False) for e in (BASELINE, LOOP)]
    opened = read_results(figures_only(Results(ABOUT, sampled, made)), "x")
    assert [t.token_ids for t in opened.trials] == [(), ()] and not opened.trials[0].greedy


def test_imported_figures_name_their_origin() -> None:
    kinds = [origin.sentence for origin in (HERE, RECORDING, LINK, Origin("file", "<b>.jsonl"))]
    assert kinds == [
        "Measured on this machine", "A recording, not measured here",
        "From a link, not measured here", "From the file <b>.jsonl, not measured here",
    ]  # fmt: skip


def _set(path: str, value: Any):
    def change(head: dict[str, Any]) -> None:
        *way, last = path.split(".")
        for name in way:
            head = head[int(name)] if isinstance(head, list) else head[name]
        head[last] = value

    return change


@pytest.mark.parametrize(
    "change, complaint",
    [
        (_set("version", 2), "its version is 2, and this program reads version 4"),
        (_set("at", 1e99), "its field 'at' cannot be read"),
        (_set("pair.target.name", "n" * 1001), "its field 'pair' cannot be read"),
        (_set("pair.draft", {"kind": 5}), "its field 'pair' cannot be read"),
        (_set("machine", None), "its field 'machine' cannot be read"),
        (_set("prompts", []), "its field 'prompts' cannot be read"),
        (_set("prompts.0.name", "b"), "names a lane or a prompt twice"),
        (_set("configs", [["generate", None], ["nothing", 5]]), "There is no lane 'nothing'"),
        (_set("configs", [["generate", 5]]), "its lane generate has a draft length"),
        (_set("configs", [["speculative", None]]), "its lane speculative has no draft length"),
        (_set("configs", [["speculative", 99]]), "gamma is 99; give"),
        (_set("configs", [["speculative", "confidence:2"]]), "least_confidence is 2.0"),
        (_set("configs", [["speculative", "<img>"]]), "gamma is '<img>'"),
        (_set("runs", 10**9), "plans more than 100,000 calls"),
        (_set("runs", True), "its field 'runs' cannot be read"),
        (_set("params.max_new_tokens", 10**9), "more than 1,000,000 tokens"),
        (_set("params.max_new_tokens", 1), "too few to measure"),
        (_set("params.temperature", -1.0), "its field 'params' cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_first_line_is_named(change, complaint: str) -> None:
    head, _, rest = text_of(results()).partition("\n")
    record = json.loads(head)
    change(record["results"])
    with pytest.raises(specdec.InvalidInput, match=f"^mine.jsonl cannot be opened: .*{complaint}"):
        read_results(json.dumps(record) + "\n" + rest, "mine.jsonl")


def test_too_many_calls_are_refused_before_they_are_counted() -> None:
    found = results()
    head, _, rest = text_of(found).partition("\n")
    record = json.loads(head)
    record["results"] |= {"runs": 1000, "prompts": [{"name": str(n), "category": "c", "prompt": ""} for n in range(99)]}
    with pytest.raises(specdec.InvalidInput, match="plans more than 100,000 calls"):
        read_results(json.dumps(record) + "\n" + rest, "x")


@pytest.mark.parametrize(
    "change, complaint",
    [
        (_set("prompts", [{"name": str(n), "category": "c", "prompt": ""} for n in range(10_001)]), "10,000 prompts"),
        (_set("pair", [1] * 60_000), "first line has more than 100,000 bytes"),
        (_set("versions", {str(n): "x" for n in range(20_000)}), "first line has more than 100,000 bytes"),
        (_set("machine.more", {str(n): [n] for n in range(20_000)}), "first line has more than 100,000 bytes"),
        (_set("params.grammar", {"kind": "regex", "text": "a" * 100_001}), "grammar has more than 100,000 characters"),
        (_set("params.grammar", {"kind": "a" * 100_001, "text": "a"}), "first line has more than 100,000 bytes"),
    ],
    ids=["prompts", "pair", "versions", "machine", "grammar", "kind"],
)
def test_a_first_line_made_to_hurt_is_refused_before_it_is_validated(change, complaint: str, monkeypatch) -> None:
    found = results()
    head, _, rest = text_of(found).partition("\n")
    record = json.loads(head)
    change(record["results"])
    monkeypatch.setattr(kept, "HEAD", None)  # what validates
    with pytest.raises(specdec.InvalidInput, match=f"^x cannot be opened: .*{complaint}"):
        read_results(json.dumps(record) + "\n" + rest, "x")


@pytest.mark.parametrize("line", ["{}", "[" * 50, '{"run": 1}', "x"])
def test_lines_that_are_no_calls_end_the_reading_of_a_file(line: str, monkeypatch) -> None:
    """A file may have a few, of interrupted measurements. With many, it is refused after the first hundred."""
    head, _, rest = text_of(results()).partition("\n")
    few = read_results("\n".join([head, *[line] * 100, rest]), "x")
    assert len(few.trials) == len(results().trials)
    read, looked = [], kept._trial
    monkeypatch.setattr(kept, "_trial", lambda text: read.append(text) or looked(text))
    with pytest.raises(specdec.InvalidInput, match="^x is damaged: more than 100 of its lines are no calls"):
        read_results("\n".join([head, *[line] * 10_000, rest]), "x")
    assert len(read) == 101


@pytest.mark.parametrize("text", ["", "my diary\n", "[" * 99_999, "null\n", '{"results": 5}\n', '{"results": {}}\n'])
def test_a_file_of_something_else_is_refused(text: str) -> None:
    with pytest.raises(specdec.InvalidInput, match="^mine.jsonl "):
        read_results(text, "mine.jsonl")


def test_lines_that_are_no_calls_are_dropped() -> None:
    """Lines with impossible numbers, unknown categories or unplanned calls are dropped. Rates are computed anew."""
    found = results()
    head, first, *rest = text_of(found).splitlines()
    record = json.loads(first)
    forged = [
        record | {"run": 99}, record | {"category": "x"}, record | {"greedy": False}, record | {"lane": "nothing"},
        *(record | {"metrics": record["metrics"] | {"decode_seconds": value}} for value in (-1.0, 1e300, 1e-300)),
        record | {"metrics": record["metrics"] | {"accepted": 10**40}},
    ]  # fmt: skip
    lies = record | {"metrics": record["metrics"] | {"tokens_per_second": 9e9, "alpha": 0.5}}
    lines = [head, *map(json.dumps, forged), json.dumps(lies), *rest]
    assert read_results("\n".join(lines), "x").trials == read_results(text_of(found), "x").trials
    with pytest.raises(specdec.InvalidInput, match="x has no finished call"):
        read_results("\n".join([head, *map(json.dumps, forged)]), "x")


def test_whatever_is_changed_is_shown_or_refused_in_a_sentence() -> None:
    """No value of a call leads to any error but ``InvalidInput``, and showing it leads to none."""
    head, *calls = figures_only(results()).splitlines()
    dice, records, opened = random.Random(1), list(map(json.loads, calls)), 0
    for _ in range(300):
        changed = copy.deepcopy(records)
        for _ in range(dice.randint(1, 4)):
            record = dice.choice(changed)
            part = dice.choice([record, record["metrics"]]) if isinstance(record["metrics"], dict) else record
            part[dice.choice(list(part))] = dice.choice([0, 1, None, 10**15, 10**9, 63, 2**70, "a", [0]])
        try:
            found = read_results("\n".join([head, *map(json.dumps, changed)]), "x")
        except specdec.InvalidInput:
            continue
        shown(found)
        opened += 1
    assert opened
