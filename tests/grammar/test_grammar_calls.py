"""Grammars over several calls: in threads, after calls that ended early, in warm-ups, and where no token may follow."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import pytest
from fakes import ids_of, rounds_of

import specdec
from specdec.engine.decode import decode
from specdec.engine.request import make_request
from specdec.errors import GrammarStuck
from specdec.events import Grammar
from specdec.lanes.race import warm_up
from specdec.lanes.table import race_configs
from specdec.runtime import guidance
from tests.grammar.grammars import GRAMMARS
from tests.grammar.test_grammar_equality import EOS, PROMPT, TOKENS, expected, pair_of


def test_calls_at_the_same_time_may_share_a_grammar_and_a_request() -> None:
    names = ("person", "escapes", "/words/", "one of objects") * 3
    params = {name: specdec.SamplingParams(TOKENS, grammar=GRAMMARS[name]) for name in names}
    request = make_request(pair_of("model"), PROMPT, params["person"])

    def written(name: str) -> tuple[int, ...]:
        if name == "person":
            return ids_of(list(decode(request, 3)))
        return ids_of(list(specdec.speculative(pair_of("model"), PROMPT, gamma=3, params=params[name])))

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(written, names)] == [expected(name) for name in names]


def test_the_prompts_of_a_measurement_share_a_grammar_that_is_read_once(monkeypatch) -> None:
    """To read one takes up to three seconds on a page, which can neither stop that nor count it against its limit."""
    read, apart = [], guidance._apart
    monkeypatch.setattr(guidance, "_apart", lambda work: read.append(work) or apart(work))
    pair, texts = pair_of("model"), []
    for name in ("/even/", "/even/", "/date/", "/even/"):
        params = specdec.SamplingParams(TOKENS, grammar=GRAMMARS[name])
        texts.append(ids_of(list(specdec.speculative(pair, PROMPT, gamma=3, params=params))))
        assert texts[-1] == expected(name)
    assert len(read) == 3, "the last one is kept"


def test_a_call_that_ends_early_leaves_nothing_behind() -> None:
    """Closed within its text, and ended by an error of the function that is its grammar."""
    request = make_request(pair_of("model"), PROMPT, specdec.SamplingParams(TOKENS, grammar=GRAMMARS["person"]))
    left = decode(request, 4)
    assert len([*islice(left, 6)]) == 6
    beside = ids_of(list(decode(request, 4)))
    left.close()
    assert beside == ids_of(list(decode(request, 4))) == expected("person")

    failing = [True]

    def ascending(ids: tuple[int, ...]) -> Any:
        if failing[0] and len(ids) == 3:
            raise ConnectionError("lost")
        return [EOS] if len(ids) == 5 else range(max(ids, default=1) + 1, 300)

    params, texts = specdec.SamplingParams(9, grammar=ascending), []  # type: ignore[arg-type]
    for start in (specdec.speculative, specdec.generate, specdec.assisted):
        failing[0] = True
        with pytest.raises(ConnectionError, match="lost"):
            list(start(pair_of("model"), PROMPT, params=params))
        failing[0] = False
        texts.append(ids_of(list(start(pair_of("model"), PROMPT, params=params))))
    assert texts[0] == texts[1] == texts[2] and len(texts[0]) == 6


@pytest.mark.parametrize("lane", ["speculative", "free-draft"])
def test_a_short_grammar_does_not_shorten_a_warm_up(lane: str) -> None:
    """So each length is drafted by the draft model, as without a grammar."""
    params = specdec.SamplingParams(TOKENS, grammar=Grammar("regex", "a"))
    request, config = make_request(pair_of("model"), PROMPT, params), next(iter(race_configs([lane], 4).values()))
    rounds = rounds_of(list(warm_up(request, config)))
    assert [len(event.draft) for event in rounds] == [0, 0, 4, 3, 2, 1]
    assert not any(event.drafted_by for event in rounds)


def test_each_lane_reports_a_text_up_to_where_nothing_may_follow() -> None:
    def dead_end(ids: tuple[int, ...]) -> Any:
        return range(2, 300) if len(ids) < 4 else []

    for start in (specdec.speculative, specdec.generate, specdec.assisted):
        found: list = []
        with pytest.raises(GrammarStuck):
            params = specdec.SamplingParams(9, grammar=dead_end)  # type: ignore[arg-type]
            for event in start(pair_of("model"), PROMPT, params=params):
                found.append(event)
        whole = ids_of(list(specdec.generate(pair_of("model"), PROMPT, params=specdec.SamplingParams(4))))
        assert ids_of(found) == whole


def test_who_waits_for_a_grammar_is_told_and_may_stop(monkeypatch) -> None:
    monkeypatch.setattr(guidance, "PATIENCE", 1)
    read = threading.Event()
    stop = threading.Timer(1.2, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores the signal
    try:
        stop.start()
        with pytest.warns(UserWarning, match="still being read"), pytest.raises(KeyboardInterrupt):
            guidance._apart(read.wait)
    finally:
        signal.signal(signal.SIGINT, before)
        read.set()
    assert guidance._apart(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        guidance._apart(lambda: 1 // 0)
