"""``specdec bench`` as a person ends it: what was measured is kept, and the next start goes on from there."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from specdec.cli import bench
from specdec.measure import bench as measuring


@pytest.fixture(autouse=True)
def alone(monkeypatch) -> None:
    """The settings that a program makes for its whole process are not made for the other tests."""
    monkeypatch.setattr(bench, "leave_a_core", lambda: None)
    monkeypatch.setattr(bench, "silence_libraries", lambda: None)


@pytest.fixture
def interrupt(monkeypatch):
    """Let Ctrl-C come after a number of calls, None: not at all. Returns the calls that are then measured."""
    whole = measuring.trials

    def after(calls: int | None) -> list:
        measured = []

        def some(*arguments):
            steps = whole(*arguments)

            def run():
                for trial in islice(filter(None, steps), calls):
                    measured.append(trial.key)
                    yield trial
                if calls is not None:
                    raise KeyboardInterrupt

            return run()

        monkeypatch.setattr(measuring, "trials", some)
        return measured

    return after


def command(folder) -> list[str]:
    (folder / "set.jsonl").write_text(json.dumps({"name": "one", "prompt": "Once upon a time"}) + "\n")
    options = ["--tokens", "32", "--runs", "1", "--gammas", "3", "5", "--lanes", "generate", "speculative"]
    return ["--device", "cpu", "--prompts", str(folder / "set.jsonl"), *options]


def test_what_was_measured_before_ctrl_c_is_kept(tmp_path, capsys, interrupt) -> None:
    results = tmp_path / "results.jsonl"
    first = interrupt(2)
    with pytest.raises(SystemExit) as ended:
        bench.main([*command(tmp_path), "--results", str(results)])
    assert ended.value.code == 130 and len(first) == 2
    said = capsys.readouterr().err
    assert "2 of 3 calls" in said and str(results) in said and "Traceback" not in said
    second = interrupt(None)
    bench.main([*command(tmp_path), "--results", str(results)])
    assert len(second) == 1 and not set(first) & set(second), "what is kept is not measured again"


def test_without_a_file_it_says_that_nothing_is_kept(tmp_path, capsys, interrupt) -> None:
    interrupt(1)
    with pytest.raises(SystemExit) as ended:
        bench.main(command(tmp_path))
    assert ended.value.code == 130 and "--results" in capsys.readouterr().err


def test_ctrl_c_while_models_load(tmp_path, capsys, monkeypatch) -> None:
    def pair_of(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "pair_of", pair_of)
    with pytest.raises(SystemExit) as ended:
        bench.main(command(tmp_path))
    assert ended.value.code == 130 and "before anything was measured" in capsys.readouterr().err
