"""Findings as HTML: every text of a person, a file or a model stays text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from specdec.ui import told

BITE = "<img src=x onerror='bite()'>\"&{{ 7 * 7 }}{% raw %}"
FINDING = SimpleNamespace(level=BITE, topic=BITE, sentence=BITE)


@pytest.mark.parametrize(
    "made",
    [
        told.verdict(BITE, BITE, [BITE, ""]), told.status(BITE, 0.5), told.error(BITE), told.note(BITE),
        told.table([BITE, "b"], [[BITE, BITE]], BITE, 0, {BITE}), told.header(BITE), told.share_place(BITE),
        told.facts([{"label": BITE, "value": BITE, "definition": BITE}]), told.findings([FINDING]),
        told.your_own(BITE, BITE),
    ],
)  # fmt: skip
def test_markup_stays_text(made: str) -> None:
    assert "<img" not in made and "'bite" not in made and "&lt;img" in made
    assert "{{ 7 * 7 }}" in made


def test_a_table_marks_its_row_and_hides_what_a_phone_leaves_out() -> None:
    made = told.table(["a", "b"], [["1", "2"], ["3", "4"]], "c", marked=1, minor={"b"})
    assert '<tr class="marked"><th scope="row">3</th><td class="minor">4</td></tr>' in made
    assert '<tr><th scope="row">1</th>' in made and '<th scope="col" class="minor">b</th>' in made
    assert "Further columns" in made and "Further columns" not in told.table(["a"], [["1"]], "c")


def test_nothing_to_say_is_nothing() -> None:
    assert told.status("") == "" and "<progress" not in told.status("a") and 'value="0.250"' in told.status("a", 0.25)
    assert "sd-factor" not in told.verdict("a")
