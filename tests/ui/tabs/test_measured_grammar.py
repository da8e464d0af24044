"""Best gamma obeys the grammar of the race's form and Benchmark its own. Both say so, and their results hold it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest
from fakes import byte_tokenizer, noisy_copy, shared_tiny

import specdec
from specdec.errors import InvalidInput
from specdec.events import Grammar
from specdec.lanes.table import lane_configs
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.results.format import Results, figures_only, read_results
from specdec.ui.jobs.context import Job, JobContext
from specdec.ui.jobs.limits import LOCAL, PUBLIC, Limits
from specdec.ui.jobs.log import JobLog
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.tabs import benchmark, best_gamma, prompt_set
from specdec.ui.tabs.race_form import RaceForm

SCRIPTS = dict.fromkeys(("files", "results", "takehome"), '"x.js"')
EXPRESSION = "[a-z]{33}(end|over)"


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = shared_tiny("llama", seed=3, layers=3, eos=1)
    return specdec.Pair(target, noisy_copy(target), byte_tokenizer())


def tabs(pair: specdec.Pair, limits: Limits = LOCAL) -> tuple[RaceForm, Any, Any]:
    """The race's form, Best gamma and Benchmark, as on a page."""
    slot = SimpleNamespace(pair=pair, facts=pair.describe(), loaded=True)
    jobs = JobQueue(slot, lambda task: task.run(pair), limits, JobLog())
    with gr.Blocks():
        ask = RaceForm(limits)
        ask.prompt_field("Once"), ask.setting_fields(), ask.chat_field(), ask.grammar_fields()
        with gr.Tab("Best gamma"):
            gamma = best_gamma.GammaTab(jobs, read_prompts(EXAMPLES), limits, ask, SCRIPTS)
        with gr.Tab("Benchmark"):
            bench = benchmark.BenchTab(jobs, limits, SCRIPTS)
    return ask, gamma, bench


def shown(job: Job, pair: specdec.Pair) -> dict[Any, Any]:
    """The last values of all components that a job fills."""
    slot = SimpleNamespace(pair=pair, facts=pair.describe())
    values: dict[Any, Any] = {}
    for step in job.work(JobContext(slot, lambda task: task.run(pair), threading.Event())):
        values |= step
    return values


def texts(found: Results) -> Iterable[str]:
    return (byte_tokenizer().decode(trial.token_ids[:-1]) for trial in found.trials)


def results_in(values: dict[Any, Any]) -> Results:
    (files,) = (value for value in values.values() if isinstance(value, str) and ".results.jsonl" in value)
    name, text = next((name, text) for name, text in json.loads(files).items() if name.endswith(".results.jsonl"))
    return read_results(text, name)


def test_a_sweep_obeys_the_grammar_of_the_race(pair, monkeypatch) -> None:
    monkeypatch.setattr(best_gamma, "CONFIGS", lane_configs(("generate", "speculative"), (0, 3)))
    _, tab, _ = tabs(pair)
    job = tab._sweep_job("Once upon a time", False, [best_gamma.OWN], 64, 1, 0, "regex", EXPRESSION)
    values = shown(job, pair)
    found = results_in(values)
    assert found.plan.params.grammar == Grammar("regex", EXPRESSION) and not found.plan.params.ignore_eos
    assert len(found.trials) == 3 and all(re.fullmatch(EXPRESSION, text) for text in texts(found))
    said = " ".join(value for value in values.values() if isinstance(value, str))
    assert "Each text obeys a regular expression." in said
    assert f'specdec.Grammar("regex", "{EXPRESSION}")' in said.replace("\\", "")
    assert job.settings["grammar"] == "regex", "the log has the kind alone"


def test_a_benchmark_obeys_its_own_grammar(pair, monkeypatch) -> None:
    monkeypatch.setattr(prompt_set, "read_prompts", lambda path: read_prompts(path)[:1])
    _, _, tab = tabs(pair)
    asked = (None, None, ["free-draft"], "3", 64, 1, "1", 0, False)
    found = results_in(shown(tab._job(*asked, "regex", EXPRESSION), pair))
    assert found.plan.params.grammar == Grammar("regex", EXPRESSION)
    assert {trial.lane for trial in found.trials} == {"generate", "speculative", "free-draft"}
    assert all(re.fullmatch(EXPRESSION, text) for text in texts(found))
    assert tab._job(*asked, "", EXPRESSION).settings["grammar"] is None, "what was typed stays in its field"


def test_what_if_is_refused_before_a_text_is_recorded(pair) -> None:
    _, tab, _ = tabs(pair)
    with pytest.raises(InvalidInput, match="obeys a grammar, .* other draft lengths must be run"):
        tab._what_if_job("Once", False, [best_gamma.OWN], 64, 0, "regex", EXPRESSION)
    tab._what_if_job("Once", False, [best_gamma.OWN], 64, 0, "", EXPRESSION)


def test_strangers_measure_with_no_longer_grammar_than_they_race(pair) -> None:
    _, gamma, bench = tabs(pair, PUBLIC)
    long = "a" * (PUBLIC.grammar_characters + 1)
    with pytest.raises(InvalidInput, match="grammar has 4,001 characters; this page reads at most 4,000. Nothing ran"):
        gamma._sweep_job("Once", False, [best_gamma.OWN], 64, 1, 0, "regex", long)
    with pytest.raises(InvalidInput, match="grammar has 4,001 characters"):
        bench._job(None, None, [], "3", 64, 1, "1", 0, False, "regex", long)
    for kind, text, said in (("regex", " ", "give the text of a regex"), ("gbnf", "x", "the kinds are")):
        with pytest.raises(InvalidInput, match=said):
            gamma._sweep_job("Once", False, [best_gamma.OWN], 64, 1, 0, kind, text)


def test_what_there_is_to_do_names_the_grammar() -> None:
    said = "57 calls of at most 64 tokens, whose texts obey a JSON schema"
    assert best_gamma._size(["Story"], 64, 3, "json-schema")[0] == f"{said}, as set for the race"
    assert benchmark._size(["a"] * 19, [], "3", 64, 1, "", "json-schema")[0] == said


def test_a_file_and_a_link_hold_the_grammar(pair, monkeypatch) -> None:
    """Also one that is as long as a page reads, and longer as JSON."""
    monkeypatch.setattr(best_gamma, "CONFIGS", lane_configs(("generate", "speculative"), (0,)))
    _, tab, _ = tabs(pair)
    for text in (EXPRESSION, EXPRESSION + "|" + "\n" * (LOCAL.grammar_characters - len(EXPRESSION) - 1)):
        asked = tab._sweep_job("Once", False, [best_gamma.OWN], 64, 1, 0, "regex", text)
        found = results_in(shown(asked, pair))
        assert found.plan.params.grammar == Grammar("regex", text)
        assert read_results(figures_only(found), "It").plan.params.grammar == Grammar("regex", text)
