"""A grammar that takes minutes to read is refused after seconds, before anything runs."""

from __future__ import annotations

import json
import time

import pytest

import specdec
from specdec.events import Grammar
from specdec.ui.jobs.grammar_cost import SECONDS, require_read_in_time

MINUTES = json.dumps({"allOf": [{"type": "integer", "multipleOf": prime} for prime in (101, 103, 107, 109)]})


def test_a_grammar_that_takes_minutes_is_refused_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(specdec.InvalidInput, match="takes more than 3 s to read"):
        require_read_in_time(Grammar("json-schema", MINUTES))
    assert time.monotonic() - began < SECONDS + 2


def test_a_grammar_that_ends_what_reads_it_is_not_read_by_the_page(monkeypatch) -> None:
    monkeypatch.setattr("specdec.ui.jobs.grammar_cost._READ", "import os; os.abort()")
    with pytest.raises(specdec.InvalidInput, match="grammar ends the program that reads it; use a simpler one"):
        require_read_in_time(Grammar("regex", "[a-c]+"))


def test_others_pass_and_are_read_once(monkeypatch) -> None:
    for grammar in (Grammar("regex", "[a-z]+"), Grammar("json-schema", "{"), Grammar("function", "len")):
        require_read_in_time(grammar)
    monkeypatch.setattr("subprocess.run", None)
    require_read_in_time(Grammar("regex", "[a-z]+"))
