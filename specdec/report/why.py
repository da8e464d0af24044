"""Why speculation pays or does not, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdec.closed_forms import expected_tokens
from specdec.lanes.table import LOOP
from specdec.measure.metrics import Metrics, no_clear_difference, round_cost
from specdec.measure.summary import Summary, find
from specdec.measure.terms import Terms, terms, terms_of
from specdec.report import words

NOTICEABLE = 0.03  # a share of time below which a term is not worth a sentence
FULL = 0.95  # guesses made / gamma a round: drafts as good as whole


def headline(summaries: Sequence[Summary]) -> str:
    """A sweep or a benchmark in short: which draft length is fastest here, whether it pays, and what is faster."""
    best, loop = _fastest(summaries), find(summaries, LOOP)
    rivals = [s for s in summaries if s.lane in ("assisted", "prompt-lookup") and s.gains]
    rival = max(rivals, key=lambda s: s.gain, default=None)
    named = rival.entrant.label if rival else ""
    if not best and not rival:
        return "Nothing to compare yet: no draft length has been measured beside plain generate."
    if not best:
        unclear = "No clear difference from plain generate: " * no_clear_difference(rival.gains)
        return f"{unclear}{named}, runs at {words.times(rival.gains)} plain generate."
    beaten, unclear = loop and loop.gains and best.gain <= loop.gain, no_clear_difference(best.gains)
    lost = beaten or (best.gain <= 1 and not unclear)
    single = sum(bool(s.gains) for s in _drafting(summaries)) == 1
    the_best = f"\u03b3 {best.gamma}" if single else f"the best, \u03b3 {best.gamma},"
    if lost:
        pays = f"\u03b3 {best.gamma} does not pay here: it" if single else f"No draft length pays here: {the_best}"
        alone = f", our loop without a draft at {words.times(loop.gains)}" if loop and loop.gains else ""
        text = f"{pays} runs at {words.times(best.gains)} plain generate{alone}."
    elif unclear:
        text = f"No clear difference from plain generate: {the_best} runs at {words.times(best.gains)}."
    elif single:
        text = f"\u03b3 {best.gamma} pays here: {words.times(best.gains)} plain generate."
        text += " No other draft length was measured."
    else:
        text = f"\u03b3 {best.gamma} is fastest here: {words.times(best.gains)} plain generate."
    leader = loop if beaten else best
    if not rival or rival.gain <= leader.gain:
        return text
    if no_clear_difference([theirs / ours for theirs, ours in zip(rival.gains, leader.gains, strict=False)]):
        return f"{text} {named}, may be as fast: {words.times(rival.gains)}."
    return f"{text} Faster{'' if lost else ' still'} is {named[0].lower()}{named[1:]}: {words.times(rival.gains)}."


def reasons(summaries: Sequence[Summary]) -> str:
    """Why, in plain words: the draft lengths that may be as fast as the best, and the terms of the best."""
    found = best_terms(summaries)
    lengths = [s.gamma for s in _drafting(summaries) if isinstance(s.gamma, int)]
    why = paragraph(found, shorter_lost=bool(found) and min(lengths) < found.gamma) if found else ""
    return " ".join(filter(None, [_alike(summaries), why]))


def _fastest(summaries: Sequence[Summary]) -> Summary | None:
    return max((s for s in _drafting(summaries) if s.gains), key=lambda s: s.gain, default=None)


def _drafting(summaries: Sequence[Summary]) -> list[Summary]:
    """Our lanes that draft: all but the loop."""
    return [s for s in summaries if s.lane == LOOP.lane and s.entrant != LOOP]


def _alike(summaries: Sequence[Summary]) -> str:
    """The draft lengths, our loop as 0 among them, that the runs cannot tell from the fastest; else nothing."""
    best = _fastest(summaries)
    others = [s for s in summaries if best and s is not best and s.lane == best.lane]
    ratios = {s.gamma or 0: [a / b for a, b in zip(s.gains, best.gains, strict=False)] for s in others if s.gains}
    alike = [gamma for gamma, found in ratios.items() if no_clear_difference(found)]
    if not alike:
        return ""
    return f"\u03b3 {words.lengths(alike)} may be as fast as \u03b3 {best.gamma}: the runs do not tell them apart."


def best_terms(summaries: Sequence[Summary]) -> Terms | None:
    """The terms of the fastest lane that drafts a fixed number of tokens, whether it pays or not."""
    best = _fastest([s for s in summaries if isinstance(s.gamma, int)])
    return terms_of(summaries, best) if best else None


def of_race(plain: Metrics, lane: Metrics, loop: Metrics | None, gamma: int | str) -> dict[str, Any] | None:
    """Why a race came out as it did: a title, a paragraph, and with our loop at gamma 0 in it the terms and steps."""
    cost = round_cost(plain, lane)
    if cost is None or not lane.drafted or lane.draft_seconds is None:
        return None
    tokens = lane.mean_acceptance_length or lane.decode_tokens / lane.target_passes
    title = f"Why: a round writes {tokens:.1f} tokens and costs {cost:.1f} plain ones"
    found = terms(plain, loop, lane, gamma) if loop else None
    if found:
        steps = [list(step) for step in found.steps]
        return {"title": title, "text": paragraph(found), "figures": figures(found), "steps": steps}
    drafting = lane.draft_seconds / lane.target_passes / plain.seconds_per_token
    text = (
        f"In the time of plain tokens, guessing takes {drafting:.1f} a round, checking and all else "
        f"{cost - drafting:.1f}. What of this is the engine's and not speculation's shows once the lane "
        "\u201cour loop at \u03b3 0\u201d, under Settings, races too."
    )
    return {"title": title, "text": text, "figures": [], "steps": []}


def paragraph(found: Terms, shorter_lost: bool = False) -> str:
    """The terms in plain words, the verdict last. ``shorter_lost``: shorter drafts were measured and are no better."""
    said = [
        f"At \u03b3 {found.gamma} a round writes {found.whole:.1f} tokens. Measured in target passes over one token, "
        f"a guess costs {found.cost:.2f} and checking a round {found.growth:.2f}; {words.percent(found.alpha)} of the "
        "guesses tested are kept."
    ]
    said.append(f"That makes it {found.measured:.2f}x our own loop without a draft" + _against(found))
    if abs(found.engine - 1) >= NOTICEABLE:
        said.append(f"The loop itself runs at {found.engine:.2f}x plain generate: that part is the engine's.")
    if found.measured < 1:
        said.append(no_gain(found.alpha, found.cost, found.gamma != 1 and not shorter_lost))
    return " ".join(said)


def no_gain(alpha: float, cost: float, shorter: bool = True) -> str:
    """What stands in the way where speculation loses. Corollary 3.9 takes checking many tokens for as cheap as one.

    ``shorter``: whether a shorter draft is still to be tried.
    """
    kept = words.percent(alpha)
    if cost >= 1:
        return (
            f"A draft pass costs {cost:.2f} of a target pass: no \u03b3 can pay on this machine, whatever is kept. "
            "Use a draft that costs less, or compile both models where launching work takes the time."
        )
    if alpha > cost and shorter:
        return "A shorter draft may still pay: guesses are kept more often than they cost."
    if alpha > cost:
        return "What the guesses save, checking more tokens a pass and the work around it take again."
    if cost >= 0.5:
        return (
            f"A draft pass costs {cost:.2f} of a target pass, so more than {words.percent(cost)} of the guesses would "
            f"have to be kept; {kept} are. No \u03b3 can pay on this machine: use a draft that costs less."
        )
    return (
        f"Too few guesses are kept: {kept}, where each costs {cost:.2f} of a target pass and more than "
        f"{words.percent(cost)} is needed. No \u03b3 can pay with this draft here: use one that agrees with the target "
        "more often."
    )


def _against(found: Terms) -> str:
    if found.predicted is None:
        return "."
    off = found.measured / found.predicted - 1
    text = f"; the closed form makes {found.predicted:.2f}x of these figures."
    if abs(off) < NOTICEABLE:
        return text
    causes = []
    if found.drafted < FULL:
        causes.append("many drafts were shorter than \u03b3")
    if abs(found.whole / expected_tokens(found.alpha, found.gamma) - 1) >= NOTICEABLE:
        causes.append("guesses do not hit independently, which the form takes for granted")
    if found.overhead >= NOTICEABLE:
        causes.append(f"{words.percent(found.overhead)} of the time is spent outside drafting and checking")
    return text + (f" The difference: {'; '.join(causes)}." if causes else "")


def figures(found: Terms) -> list[dict[str, str]]:
    """The terms as values with labels and definitions, for a fold."""
    values = [
        ("cost coefficient", f"{found.cost:.2f}", "Cost coefficient c"),
        ("verify growth", f"{found.growth:.2f}", "Verify growth v"),
        ("acceptance", words.percent(found.alpha), "Acceptance rate \u03b1"),
        ("loop overhead", words.percent(found.overhead), "Outside drafting and checking"),
        ("predicted", "\u2013" if found.predicted is None else f"{found.predicted:.2f}x", "Predicted gain"),
        ("measured", f"{found.measured:.2f}x", "Measured gain over our loop at \u03b3 0"),
        ("engine", f"{found.engine:.2f}x", "Our loop at \u03b3 0 over plain generate"),
        ("break-even", _needed(found), "Acceptance needed to break even"),
    ]
    return [{"value": value, "label": label, "definition": words.DEFINITIONS[name]} for name, value, label in values]


def _needed(found: Terms) -> str:
    return "none is enough" if found.cost >= 1 else f"above {words.percent(found.cost)}"
