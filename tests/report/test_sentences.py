"""All sentences of ``specdec.report.sentences`` are kept in one file.

``PYTHONPATH=.:tests python tests/report/test_sentences.py`` writes it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from judged import texts

from specdec.report import numbers, sentences
from specdec.report.judge import Advice, Doubt, Judgement, Kind, Reason
from specdec.report.why import why_paragraph

JUDGED = {
    "HEADLINES",
    "SHARES",
    "REASONS",
    "ADVICE",
    "DOUBTS",
    "CONFIDENCE",
    "ENGINE",
    "NOISE",
}  # whose rows stand in the file filled in
GOLDEN = Path(__file__).with_name("golden_sentences.txt")
ONE = Judgement(
    Kind.FASTER, 4, runs=1, gain=1.19, spread=(1.19, 1.19), engine=1.43, speculation=0.83, c=0.2, v=1.5, alpha=0.48,
    needed_alpha=0.68, cost=2.3, tokens=1.9, guesses=4.0, draft_passes=4.0, round_cost=1.6, predicted=0.85,
    overhead=0.12,
)  # fmt: skip
BLOCK = replace(ONE, one_pass=True, draft_passes=1.0, c=0.8)
FIVE = replace(ONE, runs=5, gain=2.96, spread=(2.8, 3.1))
UNSPLIT = replace(ONE, engine=None, speculation=None, v=None, predicted=None)
RACE = {"stopped": "Stopped", "written": "1", "asked": "128", "lane": "speculative"}
# By the first word of a kind: gain, lowest and highest of one run and of five.
FITTING = {"unclear": ((1.02, 1.02, 1.02), (1.02, 0.98, 1.05)), "slower": ((0.89, 0.89, 0.89), (0.84, 0.81, 0.9))}
SWEEP = {"calls": "5", "planned": "57", "share": numbers.percent(0.08)}


def all_sentences() -> Iterator[str]:
    """All sentences by their kind."""
    for kind in Kind:
        yield f"[{kind.name}]"
        one, five = FITTING.get(kind.value.partition("_")[0], ((1.19, 1.19, 1.19), (2.96, 2.8, 3.1)))
        for found, (gain, *ends) in ((ONE, one), (replace(FIVE, stalled=1), five)):
            yield sentences.headline(replace(found, kind=kind, gain=gain, spread=tuple(ends)), **RACE, **SWEEP)
        yield from texts(sentences.notes(replace(ONE, kind=kind)))
    for reason in Reason:
        yield f"[{reason.name}]"
        unsplit = reason is Reason.CHECKING_OR_LOOP
        for change in ({}, {"needed_alpha": None, "cost": 6.2}, {"gamma": "auto", "needed_alpha": None}):
            yield sentences.reason(replace(UNSPLIT if unsplit else ONE, reason=reason, **change))
    for advice in Advice:
        yield f"[{advice.name}]"
        yield sentences.advice(replace(ONE, advice=advice))
    for doubt in Doubt:
        yield f"[{doubt.name}]"
        yield from texts(sentences.notes(replace(FIVE, kind=Kind.UNCLEAR_GAINS, doubts=(doubt,), stalled=2)))
    yield "[What is needed to break even]"
    for speculation in (0.83, 1.07):
        for change in ({}, {"alpha": 0.75}, {"needed_alpha": None, "cost": 6.2}, {"gamma": "auto"}):
            yield why_paragraph(replace(ONE, speculation=speculation, **change))
    yield "[A draft of one pass]"
    for change in ({}, {"needed_alpha": None, "cost": 6.2}, {"gamma": "auto", "needed_alpha": None}):
        yield sentences.reason(replace(BLOCK, reason=Reason.GUESSES_COST, **change))
    yield why_paragraph(BLOCK)
    yield why_paragraph(replace(BLOCK, engine=None, speculation=None, v=None, predicted=None))
    yield "[A stall in one run]"
    yield sentences.headline(replace(ONE, stalled=1))
    yield "[An uncertain figure]"
    for kind in (Kind.FASTER, Kind.UNCLEAR, Kind.SLOWER_UNSPLIT):
        yield sentences.headline(replace(FIVE, kind=kind, doubts=(Doubt.WIDE_SPREAD,)))
    yield "[Two runs]"
    for found in (replace(FIVE, runs=2), replace(FIVE, runs=2, kind=Kind.BUSY, doubts=(Doubt.BUSY,))):
        yield sentences.headline(found)
        yield from texts(sentences.notes(found))
    yield "[Noise, and speculation lost in every run]"
    for kind in (Kind.BUSY, Kind.NOISY):
        yield sentences.headline(replace(FIVE, kind=kind, gain=3.8, engine=4.83, speculation=0.79, lost=True))
    yield "[Rows that are filled in where they are used]"
    for name, value in vars(sentences).items():
        if name.isupper() and not name.startswith("_") and name not in JUDGED:
            yield from ([value] if isinstance(value, str) else map(str, dict(value).values()))


def test_every_sentence_is_that_of_the_golden_file() -> None:
    found, golden = [*all_sentences()], GOLDEN.read_text(encoding="utf-8").splitlines()
    assert found == golden, (
        "PYTHONPATH=.:tests python tests/report/test_sentences.py writes the file again; look at the difference"
    )


@pytest.mark.parametrize(("speculation", "alpha", "flat"), [
    (0.83, 0.5, True), (1.07, 0.5, False), (1.07, 0.75, True), (0.83, 0.75, False),
])  # fmt: skip
def test_the_needed_acceptance_is_hedged_where_the_gain_contradicts_it(speculation, alpha, flat) -> None:
    text = why_paragraph(replace(ONE, speculation=speculation, alpha=alpha))
    assert ("are needed" in text, "if guesses were kept independently" in text) == (flat, not flat)


def test_no_sentence_on_servers_speaks_of_a_pair_on_this_machine() -> None:
    """Their plain lane is a server, no loop of ours is between them, and neither tells its passes."""
    served = replace(UNSPLIT, on_servers=True, runs=5, spread=(1.1, 1.3), c=None, needed_alpha=None, cost=None)
    for kind in Kind:
        found = replace(served, kind=kind, reason=Reason.UNKNOWN)
        if kind.endswith(("gains", "loses", "perhaps", "by_engine")) or kind in (
            Kind.FASTER,
            Kind.UNCLEAR,
            Kind.SLOWER,
        ):
            continue  # they need our loop
        said = [sentences.headline(found, **RACE, **SWEEP), *texts(sentences.notes(found))]
        for local in ("plain generate", "our loop", "this lane", "\u03b3 0"):
            assert not any(local in sentence.lower() for sentence in said), said


@pytest.mark.parametrize("table", [sentences.HEADLINES, sentences.REASONS, sentences.ADVICE, sentences.DOUBTS])
def test_every_kind_has_its_row(table: dict) -> None:
    kinds = type(next(iter(table)))
    assert set(table) == set(kinds)


def test_a_share_needed_is_told_from_the_share_kept() -> None:
    """The needed and the kept share are never printed as equal: 48.3 and 48.4 would both round to 48 %."""
    alpha, needed = sentences.kept_and_needed(replace(ONE, alpha=0.4831, needed_alpha=0.4842))
    assert alpha != needed


def test_the_first_sentence_of_a_note_is_whole() -> None:
    assert sentences.first_sentence("3 runs gave 1.5x. In 2 of them it stalled.") == (
        "3 runs gave 1.5x.",
        "In 2 of them it stalled.",
    )
    for whole in ("Identical text: 64 of 64 tokens.", "At token 3: plain \u201ca. B\u201d. It differs."):
        assert sentences.first_sentence(whole) == (whole, "")


def test_what_is_saved_is_the_difference_of_the_times_beside_it() -> None:
    for plain, lane in ((2.064, 0.686), (0.686, 2.064), (12.34, 4.561), (1.0, 1.0)):
        shown = [float(numbers.seconds(value).split("\u00a0")[0]) for value in (plain, lane)]
        difference = float(numbers.saved(plain, lane).split("\u00a0")[0])
        assert difference == pytest.approx(abs(shown[0] - shown[1]))
        assert numbers.saved(plain, lane).endswith("saved" if plain >= lane else "lost")


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(all_sentences()) + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("engine", "speculation", "about", "said"),
    [
        (2.89, 3.85, True, ("2.9", "3.9")),  # "about 11x" of runs from 8 to 13x has no third digit
        (2.89, 3.85, False, ("2.89", "3.85")),
        (4.83, 0.79, True, ("4.8", "0.79")),
        (2.44, 2.44, True, ("2.44", "2.44")),  # the product of 2.4 and 2.4 is 5.8, and the headline says 6.0
        (10.4, 1.3, True, ("10.4", "1.30")),
    ],
)
def test_the_shares_of_an_uncertain_gain_have_fewer_digits_and_still_give_it(engine, speculation, about, said) -> None:
    kind = Kind.NOISY if about else Kind.FASTER
    found = replace(FIVE, kind=kind, gain=engine * speculation, engine=engine, speculation=speculation)
    shown = sentences.gain_share(found, engine), sentences.gain_share(found, speculation)
    assert found.is_about == about and shown == said
    assert numbers.factor(float(shown[0]) * float(shown[1])) == numbers.factor(found.gain)
