"""The page's scripts in Node: their rules, and what they draw for the lines of races that are recorded here.

``tests/scripts/page.js`` is a page without a browser. What needs layout, or a person, is tested in Chromium.
"""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import byte_tokenizer, generated, noisy_copy, tiny
from needed import missing_node, require
from server_standins import StandIn

import specdec
from specdec.events import Grammar, SamplingParams
from specdec.lanes.table import DEFAULT_KEYS, FREE_DRAFT, LANES
from specdec.servers.address import Address
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.race_settings import RaceSettings
from specdec.ui.jobs.race_stream import stream
from specdec.ui.jobs.server_race import ServerRace, server_stream
from specdec.ui.script_tables import definitions, lane_list

ROOT = Path(specdec.__file__).parent.parent
SCRIPTS = ROOT / "tests" / "scripts"
PROMPT = "Once upon a time"
pytestmark = pytest.mark.xdist_group("scripts")  # the races are written once


SCHEMA = Grammar.json_schema({"enum": ["a long story about a dog", "a short one about <b>cats</b> ${1}"]})


def asked(
    tokens: int, prompt: str = PROMPT, temperature: float = 0.0, grammar: Grammar | None = None, **more
) -> RaceSettings:
    params = SamplingParams(max_new_tokens=tokens, temperature=temperature, seed=7, grammar=grammar)
    return RaceSettings(prompt, params=params, **more)


RACES = {
    "greedy": asked(64),
    "sampled": asked(48, temperature=1.0),
    "block": asked(48, temperature=1.0, acceptance="block"),
    "lossy": asked(16, acceptance="top-k", accept_top_k=4),
    "lanes": asked(16, lanes=tuple(lane.key for lane in LANES if lane.key != FREE_DRAFT)),
    "grammar": asked(60, grammar=SCHEMA, lanes=(*DEFAULT_KEYS, FREE_DRAFT)),
    "ended": asked(100),
    "repeated": asked(12, runs=5),
    "loop": asked(12, gamma=0),
    "hostile": asked(4, prompt="<img src=x onerror='window.bitten=1'>${bitten}{{bitten}}\u202eabc\u200b"),
    "stopped": asked(100),
    "early": asked(100),
}


def pair_of(eos: int | None = None) -> specdec.Pair:
    """A tiny pair, whose draft is often right; its words mean nothing."""
    target = tiny("llama", 3, layers=3, vocab_size=300, eos=eos, context=512)
    return specdec.Pair(target, noisy_copy(target, 1, scale=0.006), byte_tokenizer(), name="tiny")


# Races on servers, by the kind of the one that is compared with a plain one.
ON_SERVERS = {"servers": "vllm", "pieces": "text"}


def on_servers(kind) -> str:
    """The lines of a race on two servers."""
    with StandIn("text" if kind == "text" else "plain") as plain, StandIn(kind) as other:
        ask = ServerRace(
            (Address("plain", plain.url), Address("spec", other.url)), PROMPT, SamplingParams(max_new_tokens=48),
            until_clear=False,
        )  # fmt: skip
        context = JobContext(SimpleNamespace(pair=None, facts=None), lambda task: iter(()), threading.Event())
        *_, last = server_stream(context, ask, limits=Limits())
    assert last.verdict, last.problem
    return last.text


@pytest.fixture
def races(hurried, tmp_path_factory) -> Path:
    """A folder with the lines of each of ``RACES`` and of ``ON_SERVERS``.

    "ended" has a target whose text ends, "grammar" one that obeys a schema, "stopped" is stopped in its second lane
    and "early" in its first one.
    """
    require(missing_node())
    folder = tmp_path_factory.getbasetemp() / "races"
    if (folder / "definitions.json").exists():  # made for another test of this process
        return folder
    folder.mkdir()
    pair = pair_of()
    written = generated(pair.target, pair.encode(PROMPT)[0], 40)
    for name, ask in RACES.items():
        ends = {"ended": written[30], "grammar": 1}
        one = pair_of(eos=ends[name]) if name in ends else pair

        def one_by_one(task, pair=one):
            """A batch for each event, so that a stop comes where it is wanted."""
            for step in task.run(pair):
                yield from ([event] for event in step) if isinstance(step, list) else [step]

        context, text = JobContext(SimpleNamespace(pair=one, facts=one.facts()), one_by_one, threading.Event()), ""
        for text, *_ in stream(context, ask, limits=Limits()):
            rounds = text.count('"event":"round"')
            if (name == "stopped" and rounds > ask.params.max_new_tokens + 12) or (name == "early" and rounds > 12):
                context.stop.set()
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    for name, kind in ON_SERVERS.items():
        (folder / f"{name}.jsonl").write_text(on_servers(kind), encoding="utf-8")
    (folder / "lanes.json").write_text(lane_list(), encoding="utf-8")
    (folder / "definitions.json").write_text(definitions(), encoding="utf-8")
    return folder


@pytest.mark.parametrize("file", sorted(path.name for path in SCRIPTS.glob("*.test.js")))
def test_scripts(file: str, races: Path) -> None:
    """Each file in Node. What it prints of a failure is shown."""
    command = ["node", "--test", "--test-reporter=spec", str(SCRIPTS / file)]
    ran = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"SPECDEC_RACES": str(races)}, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout[ran.stdout.rfind("failing tests:") :] + ran.stderr
