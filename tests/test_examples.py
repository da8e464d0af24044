"""Every script and the notebook of ``examples/`` run on the embedded pair and print what they promise."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import specdec
from specdec.report.trace import race_of

EXAMPLES = Path(__file__).parents[1] / "examples"
EMBEDDED = Path(specdec.__file__).parent / "embedded"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for what a class's annotations name
    spec.loader.exec_module(module)
    if hasattr(module, "RUNS"):
        module.RUNS = 1  # a test needs no median
    return module


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> None:
    """Start each example in another folder, as no example may depend on it."""
    monkeypatch.chdir(tmp_path)


def test_all_examples_are_run_here() -> None:
    tested = {
        "one_round",
        "compare_generate",
        "own_pair",
        "sampling",
        "gamma_sweep",
        "lossy",
        "json_text",
        "own_drafter",
        "own_trace",
    }
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested | {"client"}, "client: see ui/test_api.py"
    for path in EXAMPLES.glob("*.py"):
        assert f"``python -m examples.{path.stem}" in path.read_text(encoding="utf-8").splitlines()[0]


@pytest.mark.full
def test_an_example_starts_in_a_checkout_that_is_not_installed() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "examples.one_round"]
    out = subprocess.run(command, cwd=EXAMPLES.parent, env=environment, capture_output=True, text=True)
    assert (out.returncode, "\n5. " in out.stdout) == (0, True), out.stderr


def test_one_round_is_told_to_its_end(capsys) -> None:
    example("one_round").main()
    out = capsys.readouterr().out
    assert all(f"\n{step}. " in out for step in range(1, 6))
    assert out.count(" accepted\n") >= 1 and out.count(" rejected\n") == 1 and "not tested\n" in out


def test_a_draft_that_obeys_the_schema_keeps_more(capsys) -> None:
    example("json_text").main()
    kept, free = (int(share) for share in re.findall(r"(\d+)% of its guesses", capsys.readouterr().out))
    assert kept > free


def test_all_lanes_write_the_text_of_generate(capsys) -> None:
    example("compare_generate").main()
    rows = capsys.readouterr().out.splitlines()[1:5]
    assert [row[:20].strip() for row in rows] == [
        "plain generate", "assisted generation", "our loop, no draft", "speculative",
    ]  # fmt: skip
    assert all(row.endswith("yes") for row in rows)


@pytest.mark.full
def test_a_pair_of_ones_own_is_measured_or_refused(capsys) -> None:
    module = example("own_pair")
    module.main(str(EMBEDDED / "target"), str(EMBEDDED / "draft"), "Once upon a time")
    assert "c = " in capsys.readouterr().out
    module.main(str(EMBEDDED / "target"))  # with the draft that it names as its default
    assert "Speculation at" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="There is no folder"):
        module.main("/no/such/folder")


@pytest.mark.full
def test_sampling_keeps_about_what_is_expected(capsys) -> None:
    example("sampling").main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:6]]
    for _, _, kept, expected, _ in rows:
        assert abs(float(kept.rstrip("%")) - float(expected.rstrip("%"))) < 15


@pytest.mark.full
def test_a_sweep_writes_its_chart(capsys, tmp_path) -> None:
    example("gamma_sweep").main()
    assert "γ 5: " in capsys.readouterr().out
    assert "predicted by the closed form" in (tmp_path / "gamma_sweep.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_lossy_acceptance_keeps_more_and_loses_the_text(capsys) -> None:
    example("lossy").main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:6]]
    lossless, *lossy = [(float(row[1].rstrip("%")), int(row[3])) for row in rows]
    assert lossless[1] == 96
    assert all(kept > lossless[0] and same < 96 for kept, same in lossy)


@pytest.mark.full
def test_a_drafter_of_ones_own_is_lossless(capsys) -> None:
    """The example's own drafter leaves the text unchanged. The script compares the texts itself."""
    example("own_drafter").main()
    assert "bigrams" in capsys.readouterr().out


@pytest.mark.full
def test_the_notebook_runs_from_top_to_bottom() -> None:
    """All steps of the notebook write the same text, as its last step asserts."""
    cells = json.loads((EXAMPLES / "from_scratch.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace: dict = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace("runs=3", "runs=1"), namespace)
    assert len(namespace["rates"]) == 6
    assert len(set(map(tuple, namespace["texts"].values()))) == 1


def test_own_trace_can_be_shown(capsys) -> None:
    """A trace from a loop that uses nothing of specdec gets a verdict, and both lanes wrote one text."""
    module = example("own_trace")
    module.TOKENS = 12
    assert "specdec." not in (EXAMPLES / "own_trace.py").read_text(encoding="utf-8").split('"""')[2]
    module.main(str(EMBEDDED / "target"), str(EMBEDDED / "draft"))
    verdict = json.loads(race_of(capsys.readouterr().out).splitlines()[-1])
    assert verdict["event"] == "verdict" and verdict["same"] and verdict["gain"]
