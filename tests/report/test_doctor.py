"""The causes that a race names: each by its figures, each with one thing to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judged import drafting, plain

from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import Metrics
from specdec.report.doctor import CAUSES, RULES, diagnose
from specdec.report.judge import Doubt, Judgement, Kind
from specdec.report.race_verdict import race_verdict

PLAIN = Metrics(
    new_tokens=101, target_passes=100, accepted=0, rejected=0, discarded=0, mean_acceptance_length=1.0,
    whole_passes=100, prefill_seconds=0.1, decode_tokens=100, decode_seconds=1.0, tokens_per_second=100.0,
    draft_seconds=0.0,
    verify_seconds=1.0, stall_seconds=0.0,
)  # fmt: skip
LANE = replace(
    PLAIN, target_passes=25, accepted=75, rejected=20, discarded=5, alpha=75 / 95, mean_acceptance_length=4.0,
    decode_seconds=0.5, tokens_per_second=200.0, draft_seconds=0.1, verify_seconds=0.35, overhead_share=0.1,
    tested_at=(25, 24, 24), kept_at=(24, 24, 23),
)  # fmt: skip
FOUND = Judgement(Kind.FASTER, 3, gain=2.0, c=0.1, v=1.1, alpha=75 / 95, tokens=4.0, guesses=4.0, round_cost=2.0)


def causes(found: dict[str, Any] | None = None, lane: dict[str, Any] | None = None, obeys: bool = False) -> list[str]:
    speculative = replace(LANE, **lane or {})
    run = RunMetrics(PLAIN, speculative)
    return [note.kind for note in diagnose(replace(FOUND, **found or {}), run, speculative, obeys)]


SLOWER = {"kind": Kind.SLOWER, "gain": 0.8}


@pytest.mark.parametrize(
    ("cause", "found", "lane"),
    [
        ("busy", {"kind": Kind.BUSY}, {}),
        ("busy", {"doubts": (Doubt.STALL,)}, {}),
        ("short text", {"kind": Kind.TOO_FEW_TOKENS}, {}),
        ("short text", {}, {"mean_acceptance_length": None}),
        ("no speculation", {"kind": Kind.NO_GUESSES}, {"accepted": 0, "rejected": 0, "discarded": 0, "alpha": None}),
        ("untold", {"on_servers": True}, {"accepted": None, "rejected": None, "discarded": None, "alpha": None}),
        ("no guesses", {"kind": Kind.NOTHING_GUESSED, "alpha": None}, {"accepted": 0, "rejected": 0, "alpha": None}),
        ("never kept", SLOWER, {"accepted": 1, "rejected": 60, "alpha": 1 / 61, "kept_at": (1,), "tested_at": (61,)}),
        ("always kept", {}, {"accepted": 100, "rejected": 0, "alpha": 1.0}),
        ("few kept", SLOWER | {"needed_alpha": 0.9}, {}),
        ("later places", {}, {"tested_at": (25, 24, 20), "kept_at": (24, 20, 4)}),
        ("guesses cost", SLOWER, {"draft_seconds": 0.2}),
        ("checking grows", {"v": 1.9}, {}),
        ("recurrent", {}, {"state_seconds": 0.05}),
        ("host", {}, {"overhead_share": 0.5}),
        ("round costs", SLOWER | {"on_servers": True, "c": None, "v": None}, {"decode_seconds": 1.3}),
        ("none", {}, {}),
    ],
)
def test_each_cause_is_named_by_its_figures(cause: str, found: dict[str, Any], lane: dict[str, Any]) -> None:
    assert cause in causes(found, lane)
    assert causes() == ["none"], "and a good race has none of them"


def test_of_figures_that_are_uncertain_nothing_is_called_inconspicuous() -> None:
    assert causes({"kind": Kind.BUSY}) == ["busy"]


def test_of_a_server_nothing_is_said_that_it_does_not_tell() -> None:
    """Its rounds are pieces of its text, so their cost is that of no guesses; nor is a dash put for a figure."""
    slow = {"decode_seconds": 3.0, "mean_acceptance_length": 1.0, "alpha": None}
    untold, plain = ({"accepted": n, "rejected": n, "discarded": n} for n in (None, 0))
    assert causes(SLOWER | {"on_servers": True}, slow | untold) == ["untold"]
    assert causes(SLOWER | {"on_servers": True, "kind": Kind.NO_GUESSES}, slow | plain) == ["no speculation"]


def test_a_share_is_that_of_the_run_beside_it() -> None:
    run, every = RunMetrics(PLAIN, replace(LANE, alpha=0.5)), replace(LANE, alpha=0.7)
    (note,) = diagnose(FOUND, run, every)
    assert note.text.startswith("Nothing stands out: 50\u00a0% of tested guesses")


def test_a_race_that_is_too_short_has_its_cause() -> None:
    runs = [{"generate": plain(1.0, text=(10,)), "speculative": drafting(4, (4,), 0.1, 1.0, text=(10,))}]
    assert race_verdict(runs).why["causes"] == ["The text is too short to tell. Ask for more tokens."]


def test_under_a_grammar_no_cause_asks_for_what_cannot_help() -> None:
    """A grammar forces guesses, which are always kept, and its calls run without graphs."""
    assert causes({}, {"overhead_share": 0.5}, obeys=True) == ["grammar"]
    assert causes({}, {"accepted": 100, "rejected": 0, "alpha": 1.0}, obeys=True) == ["none"]


def test_every_cause_has_a_rule_and_a_sentence() -> None:
    assert [name for name, _ in RULES] == [name for name in CAUSES if name != "none"]


def test_a_cause_says_its_figure_and_what_to_do() -> None:
    lane = replace(LANE, tested_at=(25, 24, 20), kept_at=(24, 20, 4))
    (note,) = (note for note in diagnose(FOUND, RunMetrics(PLAIN, lane), lane) if note.kind == "later places")
    assert note.text == "Of the guesses at place 1 96\u00a0% are kept, at place 3 20\u00a0%. Try \u03b3 2."
