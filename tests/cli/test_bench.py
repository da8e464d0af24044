"""``specdec bench`` keeps its measurements when a person stops it, and continues from them at the next start."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from specdec.cli import bench
from specdec.cli.parsers import parser_of
from specdec.closed_forms import expected_speedup
from specdec.measure import bench as measuring
from specdec.measure import roofline
from specdec.models.presets import SHAPES


@pytest.fixture(autouse=True)
def alone(monkeypatch) -> None:
    """Keep the settings that a program makes for its process away from the other tests."""
    monkeypatch.setattr(bench, "leave_a_core", lambda: None)
    monkeypatch.setattr(bench, "silence_libraries", lambda: None)


@pytest.fixture
def interrupt(monkeypatch):
    """Press Ctrl-C after a number of calls, or never for None. Returns the list of measured calls."""
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


def run_bench(*words: str) -> None:
    bench.main(parser_of("bench").parse_args(words))


SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["red", "blue"]}},
    "required": ["a"],
    "additionalProperties": False,
}


def test_a_grammar_is_measured_with_a_draft_that_obeys_and_with_one_that_does_not(tmp_path, capsys) -> None:
    (tmp_path / "set.jsonl").write_text(json.dumps({"name": "one", "prompt": "Once upon a time"}) + "\n")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    out = tmp_path / "out.json"
    asked = ["--json-schema", str(tmp_path / "schema.json"), "--tokens", "32", "--runs", "1", "--gammas", "0", "3"]
    run_bench("--device", "cpu", "--prompts", str(tmp_path / "set.jsonl"), *asked, "--export", str(out))
    assert "Draft without grammar" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["trials"][0]["finish_reason"] == "eos"
    texts = {tuple(trial["token_ids"]) for trial in found["trials"]}
    assert len(texts) == 1, "greedy text is the same in all lanes"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json-schema", "missing.json"], "missing.json cannot be read"),
        (["--regex", "((("], "cannot be read as a regular expression"),
        (["--lanes", "generate", "free-draft"], "for calls with a grammar"),
    ],
)
def test_a_grammar_that_cannot_be_used_ends_bench_in_a_sentence(words, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        run_bench("--device", "cpu", "--runs", "1", "--tokens", "32", "--first", "1", *words)
    assert said in str(ended.value) + capsys.readouterr().err


def command(folder) -> list[str]:
    (folder / "set.jsonl").write_text(json.dumps({"name": "one", "prompt": "Once upon a time"}) + "\n")
    options = ["--tokens", "32", "--runs", "1", "--gammas", "3", "5", "--lanes", "generate", "speculative"]
    return ["--device", "cpu", "--prompts", str(folder / "set.jsonl"), *options]


def test_what_was_measured_before_ctrl_c_is_kept(tmp_path, capsys, interrupt) -> None:
    results = tmp_path / "results.jsonl"
    first = interrupt(2)
    with pytest.raises(SystemExit) as ended:
        run_bench(*command(tmp_path), "--results", str(results))
    assert ended.value.code == 130 and len(first) == 2
    said = capsys.readouterr().err
    assert "2 of 3 calls" in said and str(results) in said and "Traceback" not in said
    second = interrupt(None)
    run_bench(*command(tmp_path), "--results", str(results))
    assert len(second) == 1 and not set(first) & set(second), "what is kept is not measured again"


def test_the_first_prompts_of_each_category_are_measured(tmp_path, capsys, monkeypatch) -> None:
    """The first prompts of each category are measured, and the files name them. Chat is refused without a template."""
    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    arguments, out = command(tmp_path), tmp_path / "out.json"
    rows = [{"category": name, "turns": [f"Once upon {number}"]} for name in ("a", "b") for number in range(3)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_bench(*arguments, "--first", "1", "--temperature", "0.5", "--export", str(out))
    said = capsys.readouterr().out
    assert "2 prompts of set.jsonl, the first 1 of each category." in said and "temperature 0.5, seed 0" in said
    found = json.loads(out.read_text())
    assert [item["name"] for item in found["prompts"]] == ["1", "4"] and found["chosen"]["first"] == 1
    with pytest.raises(SystemExit, match="whole number, 1 or more"):
        run_bench(*arguments, "--first", "0")
    with pytest.raises(SystemExit, match="no chat template"):
        run_bench(*arguments, "--chat")


def test_results_files_are_compared_without_measuring(tmp_path, capsys, monkeypatch) -> None:
    """Two measurements at different lengths give one table. A file that holds no results is refused by name."""
    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path, tokens in zip(files, ("32", "40"), strict=True):
        run_bench(*command(tmp_path), "--tokens", tokens, "--results", str(path))
    capsys.readouterr()
    monkeypatch.setattr(bench, "run_plan_distributed", lambda *arguments: pytest.fail("measured"))
    run_bench("--compare", *map(str, files))
    said = " ".join(capsys.readouterr().out.split())
    assert "they differ in new tokens." in said and "40 new tokens" in said
    (tmp_path / "diary.jsonl").write_text("Dear diary\n")
    for name, words in (("diary.jsonl", "diary.jsonl has no results"), ("none.jsonl", "cannot be read from none")):
        with pytest.raises(SystemExit, match=words):
            run_bench("--compare", str(files[0]), str(tmp_path / name))


def test_without_a_file_it_says_that_nothing_is_kept(tmp_path, capsys, interrupt) -> None:
    interrupt(1)
    with pytest.raises(SystemExit) as ended:
        run_bench(*command(tmp_path))
    assert ended.value.code == 130 and "--results" in capsys.readouterr().err


def test_ctrl_c_while_models_load(tmp_path, capsys, monkeypatch) -> None:
    def pair_of(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "pair_of", pair_of)
    with pytest.raises(SystemExit) as ended:
        run_bench(*command(tmp_path))
    assert ended.value.code == 130 and "before anything was measured" in capsys.readouterr().err


# --- shapes with random weights --------------------------------------------------------------------------------------

SHAPE = {"model_type": "llama", "hidden_size": 96, "intermediate_size": 96, "num_attention_heads": 4, "vocab_size": 300}


@pytest.fixture
def shape(monkeypatch, tmp_path) -> list[str]:
    monkeypatch.setitem(SHAPES, "tiny", SHAPE | {"num_hidden_layers": 3})
    monkeypatch.setitem(SHAPES, "tinier", SHAPE | {"num_hidden_layers": 1})
    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    (tmp_path / "set.jsonl").write_text(json.dumps({"name": "one", "prompt": "Once upon a time"}) + "\n")
    options = ["--tokens", "64", "--runs", "1", "--gammas", "4", "--prompts", str(tmp_path / "set.jsonl")]
    return ["--shape", "tiny:tinier", "--device", "cpu", *options]


def test_a_shape_is_labelled_synthetic_wherever_it_is_shown(shape, tmp_path, capsys) -> None:
    files = {suffix: tmp_path / f"out.{suffix}" for suffix in ("json", "csv", "md")}
    results = tmp_path / "results.jsonl"
    run_bench(*shape, "--agreement", "0.9", "--results", str(results), "--export", *map(str, files.values()))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("synthetic: random weights, agreement set to 0.9") >= 4, "the pair's line and every table's title"
    assert "Synthetic: random weights, agreement set to 0.9. " in said, "the verdict"
    assert "transformers' assisted generation cannot use" in said
    assert "predicted" in said and "least ms per token (computed)" in said
    found = json.loads(files["json"].read_text())
    assert all("synthetic" in row["synthetic"] for row in (found, *found["rows"]))
    assert found["pair"]["draft"]["kind"] == "synthetic" and found["pair"]["draft"]["agreement"] == 0.9
    assert {row["lane"] for row in found["rows"]} == {"generate", "speculative"}
    assert all(row["same_text"] == row["compared"] for row in found["rows"])
    (form,) = found["closed_form"]
    assert form["predicted"] == pytest.approx(expected_speedup(form["alpha"], 4, form["c"], form["v"]))
    assert len(found["limit"]["rows"]) == 3
    lines = files["csv"].read_text().splitlines()
    assert ",synthetic," in lines[0] and all("synthetic" in line for line in lines)
    assert "synthetic" in files["md"].read_text().splitlines()[0].lower()
    assert '"agreement":0.9' in results.read_text().splitlines()[0]
    with pytest.raises(SystemExit, match="another measurement"):
        run_bench(*shape, "--agreement", "0.5", "--results", str(results))


def test_a_measured_pair_is_not_labelled(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(roofline, "SECONDS", 0.001)
    out = tmp_path / "out.json"
    run_bench(*command(tmp_path), "--export", str(out))
    assert "synthetic" not in capsys.readouterr().out.lower()
    assert all(row["synthetic"] is None for row in json.loads(out.read_text())["rows"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--target", "gpt2"], "names both models"),
        (["--draft", "prompt-lookup"], "names both models"),
        (["--agreement", "2"], "from 0 to 1"),
        (["--lanes", "generate", "assisted"], "cannot use a synthetic draft"),
    ],
)
def test_options_that_contradict_a_shape_are_refused(shape, more: list[str], said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        run_bench(*shape, *more)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--tokens=8", "too few"),
        ("--runs=0", "runs is 0"),
        ("--temperature=1", "greedy"),
    ],
)
def test_a_bad_setting_is_refused_before_models_are_made(shape, monkeypatch, asked: str, said: str) -> None:
    """A bad setting is refused before a large model is made, which takes minutes."""
    monkeypatch.setattr(bench, "shape_pair", lambda *arguments: pytest.fail("models were made"))
    with pytest.raises(SystemExit, match=said):
        run_bench(*shape, asked)


@pytest.mark.parametrize("text", ["17", "-1", "soon"])
def test_what_is_no_draft_length_is_named(shape, capsys, text: str) -> None:
    with pytest.raises(SystemExit):
        run_bench(*shape, f"--gammas={text}")
    assert f"'{text}' is not a draft length" in capsys.readouterr().err


def test_an_agreement_needs_a_shape(tmp_path) -> None:
    with pytest.raises(SystemExit, match="--shape"):
        run_bench(*command(tmp_path), "--agreement", "0.8")
