"""Names what limits a speculative lane, from what was measured, each cause with one thing to do.

The causes are a closed list. Each has a rule on measured figures, and its figure stands in its sentence. A race gives
all of them but load, which ``specdec load`` measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec.measure.gain import RunMetrics
from specdec.measure.metrics import Metrics
from specdec.report import numbers
from specdec.report.judge import LOSING, Doubt, Judgement, Kind
from specdec.report.verdict import Note

ENOUGH = 20  # guesses tested; with fewer a share says little
NEVER, ALWAYS = 0.05, 1.0  # of tested guesses kept, below which and at which something is probably wrong
FALL = 0.6  # kept at a later place / kept at the first one; below this the later guesses are of little use
GROWS = 1.3  # v above this is a cause
PART = 0.25  # of the time of a lane that loses, from which on drafting is a cause; of one that gains, twice as much
OUTSIDE = 0.3  # of the time outside the models' passes, from which on they wait for the program
COPIES = 0.05  # of the time spent on rolling back recurrent state

CAUSES = {
    "busy": "The machine was busy, so the figures are uncertain. Run it again while nothing else runs.",
    "short text": "The text is too short to tell. Ask for more tokens.",
    "no speculation": "No guess was asked for. Choose a draft length of 1 or more, or a server that speculates.",
    "untold": "The server does not tell its rounds, so what limits it is not known. vLLM tells them if it was started "
    "with --per-request-spec-decode-metrics detailed, SGLang with --stream-interval 1. llama.cpp tells them, but for "
    "some texts whose characters take several tokens.",
    "no guesses": "The draft made no guesses. Lookup finds none where the text does not repeat itself: use a draft "
    "model, or a head of this target.",
    "never kept": "Of {tested} tested guesses {all_kept} are kept, too few for a draft that fits. Check that it was "
    "made for this very target and that both use one chat template: a wrong hidden state, norm or window looks like "
    "this.",
    "always kept": "All {tested} tested guesses are kept. Check that the draft is not the target itself; if it is not, "
    "a longer draft length may pay.",
    "few kept": "{alpha} of tested guesses are kept, too few for what a round costs. Use a draft that agrees with the "
    "target more often, or a shorter draft length.",
    "later places": "Of the guesses at place 1 {first} are kept, at place {place} {later}. Try \u03b3 {shorter}.",
    "guesses cost": "Drafting takes {part} of the time; a guess costs {c} target passes. Use a smaller draft, a head, "
    "or lookup.",
    "checking grows": "Checking a round takes {v} times as long as checking one token, as it does on a processor and "
    "for a mixture of experts. Use a shorter draft length.",
    "recurrent": "Rolling back recurrent state takes {copies} of the time. Use a shorter draft length, of which "
    "less is rejected.",
    "host": "{outside} of the time is spent outside the models' passes, so the program around them sets the speed. Use "
    "the graph engine on a GPU, or a larger target.",
    "grammar": "{outside} of the time is spent outside the models' passes, where the program also follows the grammar. "
    "Use a simpler grammar, or a larger target.",
    "round costs": "A round takes as long as {cost} tokens of the plain server and yields {tokens}. Start the server "
    "with fewer guesses a step.",
    "none": "Nothing stands out: {alpha} of tested guesses are kept, and a round yields {tokens} tokens.",
}


def diagnose(found: Judgement, run: RunMetrics, drafting: Metrics, obeys: bool = False) -> list[Note]:
    """The causes that a race shows, the gravest first, each with one thing to do; at least one.

    ``found`` is the judgement on it, ``run`` its shown run, and ``drafting`` the speculative lane of all runs as one.
    ``obeys``: under a grammar, which forces guesses that are always kept, and keeps passes out of graphs.
    """
    facts = _Facts(found, run, drafting, obeys)
    named = [name for name, rule in RULES if rule(facts)]
    return [Note(name, CAUSES[name].format(**facts.words)) for name in named or ["none"]]


@dataclass(frozen=True)
class _Facts:
    found: Judgement
    run: RunMetrics
    drafting: Metrics
    obeys: bool

    @property
    def waits(self) -> bool:
        """Whether the models wait for the program."""
        return (self.run.lane.overhead_share or 0.0) > OUTSIDE

    @property
    def tested(self) -> int:
        return (self.drafting.accepted or 0) + (self.drafting.rejected or 0)

    @property
    def alpha(self) -> float | None:
        """Of the shown run, as beside it; ``drafting.alpha`` is that of all runs."""
        return self.run.lane.alpha

    @property
    def told(self) -> bool:
        """Whether guesses were made and are known."""
        return bool(self.drafting.drafted)

    @property
    def guessing(self) -> float | None:
        """The share of a round that drafting takes."""
        lane = self.run.lane
        if lane.draft_seconds is None or not lane.decode_seconds:
            return None
        return lane.draft_seconds / lane.decode_seconds

    @property
    def copies(self) -> float:
        lane = self.run.lane
        spent = lane.state_seconds + (lane.reread_seconds or 0.0)
        return spent / lane.decode_seconds if lane.decode_seconds else 0.0

    @property
    def losing(self) -> bool:
        return self.found.kind in LOSING

    @property
    def fall(self) -> int | None:
        """The first place, from 1 on, at which far fewer guesses are kept than at place 1."""
        places = zip(self.drafting.kept_at, self.drafting.tested_at, strict=True)
        shares = [kept / tested if tested >= ENOUGH else None for kept, tested in places]
        if not shares or not shares[0]:
            return None
        return next((at + 1 for at, share in enumerate(shares) if share is not None and share < FALL * shares[0]), None)

    @property
    def words(self) -> dict[str, str]:
        """The figures of the sentences."""
        lane, kept, tested = self.run.lane, self.drafting.kept_at, self.drafting.tested_at
        place = self.fall or 1
        later = kept[place - 1] / tested[place - 1] if len(tested) >= place and tested[place - 1] else None
        return {
            "tested": f"{self.tested:,}",
            "alpha": numbers.percent(self.alpha),
            "all_kept": numbers.percent(self.drafting.alpha, 1 if 0 < (self.drafting.alpha or 0.0) < 0.01 else 0),
            "first": numbers.percent(kept[0] / tested[0] if tested and tested[0] else None),
            "later": numbers.percent(later),
            "place": str(place),
            "shorter": str(max(1, place - 1)),
            "part": numbers.percent(self.guessing),
            "c": numbers.number(self.found.c, 2),
            "v": numbers.number(self.found.v, 2),
            "copies": numbers.percent(self.copies),
            "outside": numbers.percent(lane.overhead_share),
            "cost": numbers.number(self.found.round_cost or self.run.round_cost),
            "tokens": numbers.number(lane.mean_acceptance_length),
        }


def _unkept(facts: _Facts) -> bool:
    alpha = facts.drafting.alpha
    return facts.tested >= ENOUGH and alpha is not None and alpha < NEVER


def _too_few(facts: _Facts) -> bool:
    """Whether more guesses kept would have been enough: the round's cost alone is not the cause."""
    needed, alpha = facts.found.needed_alpha, facts.alpha
    return facts.losing and not _unkept(facts) and alpha is not None and needed is not None and alpha < needed


def _short(facts: _Facts) -> bool:
    """Whether there is no speed, or every round with guesses was cut by the end of the text."""
    cut = facts.told and facts.drafting.mean_acceptance_length is None
    return cut or facts.found.kind in (Kind.TOO_FEW_TOKENS, Kind.NO_TOKEN)


def _untold(facts: _Facts) -> bool:
    return facts.found.on_servers and facts.drafting.drafted is None and not _short(facts)


def _round_costs(facts: _Facts) -> bool:
    cost, tokens = facts.run.round_cost, facts.run.lane.mean_acceptance_length
    return facts.found.on_servers and facts.told and cost is not None and tokens is not None and cost > tokens


RULES: tuple[tuple[str, Callable[[_Facts], bool]], ...] = (
    ("busy", lambda f: f.found.kind is Kind.BUSY or bool({Doubt.BUSY, Doubt.STALL} & set(f.found.doubts))),
    ("short text", _short),
    ("no speculation", lambda f: f.found.kind is Kind.NO_GUESSES),
    ("untold", _untold),
    ("no guesses", lambda f: f.found.kind is Kind.NOTHING_GUESSED),
    ("never kept", _unkept),
    ("always kept", lambda f: f.tested >= 5 * ENOUGH and f.drafting.alpha == ALWAYS and not f.obeys),
    ("few kept", _too_few),
    ("later places", lambda f: f.fall is not None and not _unkept(f)),
    ("guesses cost", lambda f: (f.guessing or 0.0) > (PART if f.losing else 2 * PART)),
    ("checking grows", lambda f: (f.found.v or 0.0) > GROWS),
    ("recurrent", lambda f: f.copies > COPIES),
    ("host", lambda f: f.waits and not f.obeys),
    ("grammar", lambda f: f.waits and f.obeys),
    ("round costs", _round_costs),
)
