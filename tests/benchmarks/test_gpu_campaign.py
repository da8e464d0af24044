"""The measurement on a GPU, rehearsed on a CPU: a failed step costs the others nothing, and nothing is oversold."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import time
from pathlib import Path
from typing import Any

import gpu_bundle
import pytest
from transformers.utils import logging

from benchmarks.document import ROOT
from benchmarks.gpu import document, estimate
from benchmarks.gpu.__main__ import main, parts
from benchmarks.gpu.campaign import STEPS, Part, Results, Setting, run, run_part
from specdec.cli.graphs_tried import GRAPHS_TRIED
from specdec.cli.parsers.shared import add_pair_arguments
from specdec.events import Finished
from specdec.report import recording

MACHINE = ROOT / "benchmarks" / "gpu" / "machine.txt"


def command(*arguments: Any) -> int:
    """The exit status of ``python -m benchmarks.gpu``, in this process, which has imported torch already."""
    verbosity = logging.get_verbosity()
    try:
        main([str(argument) for argument in arguments])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        logging.set_verbosity(verbosity)
        logging.enable_progress_bar()
    return 0


def checkout(folder: Path) -> Path:
    """A copy of what the results are written into."""
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.png"))
    for name in ("README.md", "specdec/cli/graphs_tried.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.full
def test_a_rehearsal_goes_on_after_a_failure_in_each_step(tmp_path: Path, capsys) -> None:
    """Every part of the measurement runs on a CPU; its results are marked as a rehearsal's in the documents."""
    out = tmp_path / "results"
    assert command("--rehearse", "--plant", "--out", out, "--minutes", "5") == 1
    steps = {step: json.loads((out / f"{step}.json").read_text())["parts"] for step in STEPS}
    for step, found in steps.items():
        planted = found.pop("planted")
        assert planted["state"] == "failed" and "RuntimeError: planted" in planted["error"], step
        assert planted["found"]["line"] == "this was found before the failure"
    every = {(step, name): record for step, found in steps.items() for name, record in found.items()}
    assert every.keys() == {(part.step, part.name) for part in parts(rehearsal=True)}
    assert {record["state"] for record in every.values()} == {"done"}, capsys.readouterr().out
    results = {name: record["found"] for (_, name), record in every.items()}
    assert results["texts"]["rows"] and not results["texts"]["wrong"]
    assert results["texts"]["engines"]["llama"]["graphs"].keys() >= {"verify", "gather"}
    assert all(row["right"] for row in results["distributions"]["exact"])
    assert all(row["same"] == row["of"] for row in results["distributions"]["seeds"])
    assert results["reads"]["rows"] and not results["reads"]["odd"]
    assert not results["out of memory"]["wrong"] and not results["not numbers"]["wrong"]
    assert not results["pair changed"]["wrong"] and results["many calls"]["same_text"]

    files = [path for path in out.iterdir() if path.is_file()]
    assert len(files) <= 8 and max(path.stat().st_size for path in files) < 2**24
    for name in ("race-embedded.jsonl", "race-shape.jsonl"):
        lines = (out / name).read_text().splitlines()
        assert [type(lane[-1]) for lane in recording.lanes(lines)] == [Finished] * 3
        assert "figures" in json.loads(lines[-1])
    assert "synthetic" in json.loads((out / "race-shape.jsonl").read_text().splitlines()[0])["pair"]

    root = checkout(tmp_path / "checkout")
    assert command("--write", out, "--root", root) == 0
    assert document.REHEARSAL in (root / "docs/performance.md").read_text()
    for name in ("README.md", "docs/guide.md", "specdec/cli/graphs_tried.py"):
        assert (root / name).read_text() == (ROOT / name).read_text(), "a rehearsal is no run on a GPU"


def small(name: str, work: Any, most: float = 20.0, seconds: float = 0.0) -> Part:
    return Part("step", name, work, seconds, most)


def hanging(setting: Setting):
    yield {"line": "before"}
    time.sleep(60)


def dying(setting: Setting):
    yield {"line": "before"}
    os._exit(7)


def working(setting: Setting):
    yield {"line": "all", "at": time.time()}


def test_a_part_that_hangs_or_dies_leaves_what_it_found(tmp_path: Path) -> None:
    setting, written = Setting(tmp_path, True), []
    record = run_part(small("hanging", hanging), setting, 2.0, lambda found: written.append(dict(found)))
    assert record["state"] == "out of time" and record["found"] == {"line": "before"} and record["seconds"] < 10
    assert written[0]["state"] == "ended", "a campaign that is cut off shows the part it was in"
    record = run_part(small("dying", dying), setting, 20, written.append)
    assert record["state"] == "ended" and "status 7" in record["error"] and record["found"] == {"line": "before"}


def test_a_second_run_continues_and_short_time_leaves_out_what_does_not_fit(tmp_path: Path) -> None:
    setting = Setting(tmp_path, True)
    some = [small("fails", hanging, most=0.3), small("works", working), small("long", working, seconds=500)]
    states = [record["state"] for _, record in run(some, setting, time.monotonic() + 60)]
    assert states == ["out of time", "done", "left out"]
    first = Results(tmp_path, True).read("step")["works"]["found"]["at"]
    again = [small("fails", working), small("works", working), small("long", working, seconds=5)]
    assert [record["state"] for _, record in run(again, setting, time.monotonic() + 60)] == ["done"] * 3
    assert Results(tmp_path, True).read("step")["works"]["found"]["at"] == first
    with pytest.raises(SystemExit, match="holds a rehearsal"):
        Results(tmp_path, False).read("step")


def test_without_a_gpu_nothing_is_written(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit, match="--rehearse"):
        main(["--out", str(tmp_path / "none")])
    assert not (tmp_path / "none").exists()


def test_the_plan_fits_eight_minutes(capsys) -> None:
    assert estimate.IMPORTS + sum(part.seconds for part in parts(rehearsal=False)) < 8 * 60
    assert command("--plan") == 0
    printed = capsys.readouterr().out
    assert (
        all(part.name in printed for part in parts(rehearsal=False)) and "Left out first: table gpt2-large" in printed
    )


def as_on_a_gpu(out: Path) -> None:
    """Results that look like those of a GPU: two texts, one of them wrong, and a shape whose lanes have run."""
    lanes = [
        {"lane": lane, "gamma": gamma, "tokens_per_second": [rate], "gain": [rate / 40], "same_text": 1, "compared": 1}
        | {"speculation": [1.9] if gamma else None, "c": 0.2, "v": 1.1, "outside_passes": 0.05}
        for lane, gamma, rate in (
            *(("generate", None, 40.0), ("assisted-agreeing", 4, 50.0), ("eager-loop", None, 100.0)),
            *(("speculative", 0, 200.0), ("eager", 4, 120.0), ("speculative", 4, 380.0)),
        )
    ]
    shape = {"shape": "big:small", "lanes": lanes, "settings": {"agreement": 0.8, "gamma": 4, "tokens": 64, "runs": 1}}
    texts = {"rows": [{"engine": "graph", "same": same, "tie": False} for same in (True, False)], "line": "1 of 2"}
    machine = {"machine": {"gpu": "Imagined GPU", "cpu": "CPU"}, "versions": {"torch": "2.11.0", "transformers": "5"}}
    found = {"facts": {"facts": machine}, "right": {"texts": texts}, "table": {"big:small": shape}}
    for step, steps in found.items():
        records = {
            name: {"state": "done", "seconds": 1.0, "error": None, "found": each} for name, each in steps.items()
        }
        (out / f"{step}.json").write_text(json.dumps({"step": step, "rehearsal": False, "parts": records}))


def test_results_of_a_gpu_replace_the_sentence_everywhere(tmp_path: Path) -> None:
    out, root = tmp_path / "results", checkout(tmp_path / "checkout")
    out.mkdir()
    as_on_a_gpu(out)
    assert command("--write", out, "--root", root) == 0
    sentence = "Imagined GPU, with torch 2.11.0: 1 of 2 of its greedy texts"
    written = {name: " ".join((root / name).read_text().split()) for name in ("README.md", "docs/guide.md")}
    written["graphs_tried.py"] = runpy.run_path(str(root / "specdec/cli/graphs_tried.py"))["GRAPHS_TRIED"]
    for name, text in written.items():
        assert sentence in text and GRAPHS_TRIED not in text, name
    row = "| big ← small | 40 tok/s | 1.25x |"
    for name in ("README.md", "docs/performance.md"):
        text = (root / name).read_text()
        assert row in text and "9.50x" in text and "rehearsal" not in text.lower(), name


def test_the_documents_and_the_help_say_where_the_graph_engine_has_run() -> None:
    parser = argparse.ArgumentParser()
    add_pair_arguments(parser)
    assert GRAPHS_TRIED in " ".join(parser.format_help().split())
    for name in ("README.md", "docs/guide.md"):
        assert GRAPHS_TRIED in " ".join((ROOT / name).read_text(encoding="utf-8").split()), name


def test_the_bundle_brings_what_the_machine_lacks() -> None:
    """The list is that of a machine with older packages; what is new enough there is not brought."""
    there = gpu_bundle.installed(MACHINE.read_text(encoding="utf-8"))
    found = gpu_bundle.missing(there, "3.12")
    assert {"transformers", "tokenizers", "huggingface-hub", "rich", "httpx2", "pydantic-core"} <= found.keys()
    assert not found.keys() & {"torch", "triton", "gradio", "plotly", "accelerate", "safetensors", "numpy"}
    line = gpu_bundle.command(ROOT / "wheels", "gpu-results", 7.5)
    assert len(line) < 2000 and "--no-index" in line and "benchmarks.gpu" in line


def test_a_bundle_that_cannot_work_is_refused() -> None:
    there = gpu_bundle.installed(MACHINE.read_text(encoding="utf-8"))
    with pytest.raises(gpu_bundle.NotBundled, match="torch 2.9.0"):
        gpu_bundle.missing(there | {"torch": "2.9.0"}, "3.12")
    with pytest.raises(gpu_bundle.NotBundled, match="pip list"):
        gpu_bundle.installed("nothing here")
    with pytest.raises(gpu_bundle.NotBundled, match="60 MB"):
        gpu_bundle.require_small(31_000_000, 30_000_000)
