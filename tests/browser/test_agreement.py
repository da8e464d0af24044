"""On one screen, figures under one name are equal: many recorded races are rendered, and their figures compared.

The races are of small tables. Their times are made up: of very fast and very slow machines, with noise and stalls.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from comparison import FULL
from fakes import letters, random_table, table_pair

import specdec
from browser.conftest import DRAWN
from browser.test_static import alone
from specdec.lanes.race import race
from specdec.report.recording import Recorder
from specdec.report.sentences import beside_shares
from specdec.report.trace import race_of
from specdec.ui.static_page import shipped_recordings, single_page

pytestmark = pytest.mark.xdist_group("browser")
RACES = 300 if FULL else 16
PARTS = ("draft_seconds", "verify_seconds", "model_seconds")
# Every figure that the view of a race shows, by its name, and all places that show the time of a lane.
SHOWN = """() => {
    const texts = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
    const terms = [...document.querySelectorAll("dl > div")].map((row) => [
        (row.querySelector("dt .sd-term") ?? row.querySelector("dt")).textContent,
        row.querySelector("dd").textContent,
    ]);
    const cells = [...document.querySelectorAll(".sd-more tbody tr")].flatMap((row) =>
        [...row.cells].slice(1).map((cell) => [row.cells[0].textContent, cell.dataset.label, cell.textContent]),
    );
    const lane = (key) => ({
        box: texts(`.sd-box.${key} .sd-boxStatus`)[0],
        strip: texts(`.sd-stripRow.${key} .sd-stripEnd`)[0],
        chart: texts(`.sd-plot .sd-label.${key}`).join(" "),
    });
    return {
        factor: texts(".sd-verdict .sd-factor")[0],
        headline: texts(".sd-headline")[0],
        why: texts(".sd-why:not([hidden]) summary")[0],
        notes: texts(".sd-verdictNotes"),
        words: texts(".sd-stripWords")[0],
        terms, cells, plain: lane("generate"), ours: lane("speculative"),
    };
}"""


def warped(events: list, rng: random.Random, pace: float) -> list:
    """The events of a lane with other times: noise, and perhaps a stall. ``pace`` is that of the machine."""
    noise, pace = rng.choice((0.02, 0.2, 0.8)), pace * rng.lognormvariate(0, 0.7)
    stall = rng.randrange(len(events)) if rng.random() < 0.2 else None
    found, before, now, first = [], 0.0, 0.0, 0.0
    for at, event in enumerate(events):
        if isinstance(event, specdec.Round):
            factor = pace * rng.lognormvariate(0, noise) * (30 if at == stall else 1)
            now += factor * (event.elapsed_seconds - before)
            before, first = event.elapsed_seconds, first or now
            parts = {name: value and value * factor for name in PARTS if (value := getattr(event, name)) is not None}
            event = replace(event, elapsed_seconds=now, **parts)
        elif isinstance(event, specdec.Finished):
            event = replace(event, prefill_seconds=first, elapsed_seconds=now)
        found.append(event)
    return found


def recording(number: int) -> str:
    """The recording of a race that is made of this number."""
    rng, size = random.Random(number), 12
    target = random_table(size, 3, seed=number, scale=2.0)
    pair = table_pair(target, target + random_table(size, 3, seed=number + 1, scale=rng.choice((0.0, 0.5, 3.0))))
    temperature = rng.choice((0.0, 0.0, 0.9))
    params = specdec.SamplingParams(rng.choice((2, 9, 40)), temperature=temperature, seed=number)
    settings = {"gamma": rng.choice((1, 2, 3, 7)), "runs": rng.choice((1, 1, 3, 5)), "interval": 0.0}
    lanes: list[list] = []
    for batch in race(pair, torch.tensor([1, 2, 3]), params=params, **settings):
        for event in batch:
            if isinstance(event, specdec.Started):
                lanes.append([])
            lanes[-1].append(event)
    recorder, pace = Recorder(letters(size)), 10 ** rng.uniform(-1, 3)
    return race_of("".join(recorder.line(event) for lane in lanes for event in warped(lane, rng, pace)), at=1e9)


def number_of(text: str) -> tuple[float, float]:
    """The first number of a text, and half a unit of its last digit."""
    found = re.search(r"[0-9][0-9,]*(\.[0-9]+)?", text)
    assert found, text
    return float(found[0].replace(",", "")), 0.5 * 10.0 ** -len((found[1] or ".")[1:])


def agree(one: str, other: str) -> bool:
    """Whether two texts can be the same figure, rounded to different digits."""
    (a, half), (b, other_half) = number_of(one), number_of(other)
    return abs(a - b) <= half + other_half + 1e-9


def contradictions(seen: dict) -> list[str]:
    """What differs on one screen."""
    wrong, by_name = [], defaultdict(set)
    for name, value in seen["terms"]:
        by_name[name.lower()].add(value)
    wrong += [f"{name}: {values}" for name, values in by_name.items() if len(values) > 1]
    cells = {(lane, name): value for lane, name, value in seen["cells"]}
    pairs = {
        "our time": (seen["ours"]["box"], seen["ours"]["strip"]),
        "plain time": (seen["plain"]["box"], seen["plain"]["strip"]),
    }
    for side in ("ours", "plain"):
        pairs[f"{side} in the chart"] = (seen[side]["strip"], re.sub("^[^0-9]*", "", seen[side]["chart"]))
    if (factor := seen["factor"]) and seen["headline"]:
        pairs["factor in the table"] = (factor, cells.get(("Speculative", "speed-up"), factor))
        if " \u00b7 " in seen["ours"]["chart"]:
            pairs["factor in the chart"] = (factor, seen["ours"]["chart"].split(" \u00b7 ")[1])
        if seen["why"] and re.match("Why [0-9]", seen["why"]):
            pairs["factor in why"] = (factor, seen["why"])
    for name, (one, other) in pairs.items():
        if one and other and not agree(one, other):
            wrong.append(f"{name}: {one} | {other}")
    return wrong


def test_figures_of_one_name_are_equal_on_one_screen(browser, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(single_page(shipped_recordings()[:1]), encoding="utf-8")
    found = {}
    with alone(browser, path.as_uri()) as page:
        page.emulate_media(reduced_motion="reduce")
        for number in range(RACES):
            text = recording(number)
            page.evaluate("(text) => window.specdec.open(text, 'file')", text)
            page.evaluate(DRAWN)  # labels in the chart are drawn with the next frame
            seen = page.evaluate(SHOWN)
            verdict = json.loads(text.splitlines()[-1])
            assert seen["headline"] == beside_shares(verdict["sentence"], verdict["figures"]), "the race is shown"
            if wrong := contradictions(seen):
                found[number] = wrong
    assert not found, found
