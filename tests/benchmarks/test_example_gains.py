"""A line of the table of the page's examples, computed from trials whose figures are known."""

from __future__ import annotations

from judged import drafting, loop, plain, trial

from benchmarks.examples import GAMMA, SPECULATIVE, row
from specdec.lanes.table import BASELINE, LOOP


def test_a_line_names_both_shares_and_their_product() -> None:
    """Plain takes 1 s a token and our loop 0.5 s. All guesses are accepted, so a round writes six tokens in 2.4 s."""
    lane = drafting(GAMMA, (GAMMA,), 0.28, 1.0)
    found = [trial(0, BASELINE, plain(1.0)), trial(0, LOOP, loop(0.5)), trial(0, SPECULATIVE, lane)]
    name, tokens, kept, a_pass, over_plain, engine, speculation, repeated = row("Story", found)
    assert (name, tokens, kept, a_pass, repeated) == ("Story", "64", "100\u00a0%", "6.00", "0\u00a0%")
    assert (engine, over_plain[:2], speculation[:2]) == ("2.00x", "2.", "1.")
