"""Findings as HTML: text from people, files and models stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest

from specdec.report.definitions import make_figure
from specdec.report.figure_table import FigureTable
from specdec.report.sentences import ENDS_WITH_SHARES
from specdec.ui import html

BITE = "<img src=x onerror='bite()'>\"&{{ 7 * 7 }}{% raw %}"
FINDING = SimpleNamespace(level=BITE, topic=BITE, sentence=BITE)


@pytest.mark.parametrize(
    "made",
    [
        html.verdict_html(BITE, BITE, [BITE, ""]),
        html.status(BITE, 0.5),
        html.verdict_html(BITE, BITE, [BITE, BITE]),
        html.folded(BITE, html.paragraph(BITE)),
        html.error(BITE),
        html.note(BITE),
        html.table_html(FigureTable(BITE, [BITE, "b"], [[BITE, BITE]], range(1, 2), 0, {BITE})),
        html.header(BITE, BITE),
        html.facts([{"label": BITE, "value": BITE, "name": "engine"}]),
        html.findings([FINDING]),
        html.your_own(BITE, BITE),
    ],
)
def test_markup_stays_text(made: str) -> None:
    assert "<img" not in made and "'bite" not in made and "&lt;img" in made
    assert "{{ 7 * 7 }}" in made


def test_a_table_marks_its_row_and_hides_what_a_phone_leaves_out() -> None:
    table = FigureTable("c", ["a", "b"], [["1", "2"], ["3", "4"]], range(2), marked=1, minor={"b"})
    made = html.table_html(table)
    assert '<tr class="marked"><th scope="row">3</th><td class="minor">4</td></tr>' in made
    assert '<tr><th scope="row">1</th>' in made and '<th scope="col" class="minor">b</th>' in made
    assert "more columns" in made and "more columns" not in html.table_html(replace(table, minor=()))


def test_empty_fragments_are_empty() -> None:
    assert html.status("") == "" and "<progress" not in html.status("a") and 'value="0.250"' in html.status("a", 0.25)
    assert "sd-factor" not in html.verdict_html("a")
    assert "<details" not in html.verdict_html("a", None, ["one note"]), "there is nothing to open"


def test_no_line_ends_inside_a_range_or_a_date() -> None:
    """The words stay the same, and what looks like markup in them stays text."""
    words = "The fastest of \u03b3 1\u201316 (8.5\u201310.3x), 28 November 2026, <b>1\u20132</b>"
    made = html.note(words)
    pieces = re.findall(r'<span class="sd-together">(.*?)</span>', made)
    assert pieces == ["\u03b3 1\u201316", "(8.5\u201310.3x),", "28 November 2026", "&lt;b&gt;1\u20132&lt;/b&gt;"]
    assert unescape(re.sub(r"<[^>]+>", "", made)) == words


def test_the_shares_of_a_figure_stand_below_it_with_their_names() -> None:
    made = html.verdict_html("a", "3.0x", shares=[make_figure("2.00x", "engine"), make_figure("1.50x", "measured")])
    assert 'class="sd-verdict split"' in made and "split" not in html.verdict_html("a", "3.0x")
    shares = re.findall(r">([^<>]+)</dt><dd>(.*?)</dd>", made)
    assert shares == [("our loop vs generate()", "2.00x"), ("speculation on top", "1.50x")]


@pytest.mark.parametrize("end", ENDS_WITH_SHARES.values())
def test_the_headline_does_not_repeat_the_shares_below_its_figure(end: str) -> None:
    shares = [make_figure("2.00x", "engine"), make_figure("1.50x", "measured")]
    whole = "It is fast" + end.format(engine="2.00", speculation="1.50")
    assert ">It is fast.</p>" in html.verdict_html(whole, "3.0x", shares=shares)
    assert whole in html.verdict_html(whole, "3.0x"), "where they do not stand below it"
    assert whole in html.verdict_html(whole, "3.0x", shares=[make_figure("2.1x", "engine"), shares[1]]), "other figures"


def test_a_command_is_shown_as_it_is_typed_and_its_options_stay_whole() -> None:
    command = "serve MODEL --port 8000 --long-option it's \\\n  --json '{\"a\": 5}'"
    made = html.how_to_serve("before", [("one", command)], "after `a < b`")
    shown = re.search('<pre class="sd-command">(.*?)</pre>', made, re.DOTALL)[1]
    assert unescape(re.sub("<.*?>", "", shown)) == command
    options = [unescape(option) for option in re.findall("<span>(.*?)</span>", shown, re.DOTALL)]
    assert options == ["serve MODEL", "--port 8000", "--long-option it's \\", "  --json '{\"a\": 5}'"]
    assert made.endswith('<p class="sd-paragraph">after <code>a &lt; b</code></p>')
