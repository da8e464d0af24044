"""The sentences of a verdict of speed, by kind, and the notes below it.

``specdec.report.judge`` decides the kind. The tables on top have one row for each kind, and the names in braces there
are figures of ``_fields``; tests/report/golden_sentences.txt has these sentences with their figures filled in. The
rows after them are filled in where they are used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from specdec.engine.policy import CONFIDENCE
from specdec.lanes.table import ENGINE
from specdec.report.judge import NOISE, Advice, Doubt, Judgement, Kind, Reason
from specdec.report.numbers import digits_of, duration, factor, number, percent, runs
from specdec.report.verdict import Figure, Note

# The ends of headlines that name both shares. They are left out where the shares stand beside the headline with their
# names.
_SHARES = "{engine}x from our loop, times {speculation}x from speculation."
ENDS_WITH_SHARES = {"clear": f": {_SHARES}", "noise": f". As measured, {_SHARES}"}

# The headline. ``subject`` is "speculative decoding", ``ONE_LENGTH``, ``FASTEST`` or another lane, as within a
# sentence; ``Subject`` is the same with a capital, as at its beginning.
HEADLINES = {
    Kind.FASTER: "{Subject} is {about}{times} times as fast as {plain}{runs}" + ENDS_WITH_SHARES["clear"],
    Kind.FASTER_UNSPLIT: "{Subject} is {about}{times} times as fast as {plain}{runs}.",
    Kind.FASTER_PERHAPS: "{Subject} is {about}{times} times as fast as {plain}{runs}. {engine}x is our loop alone; "
    "the {speculation}x of speculation is within the noise.",
    Kind.FASTER_BY_ENGINE: "{Subject} is {about}{times} times as fast as {plain}{runs}. Without speculation "
    "it would be faster still: {engine}x; speculation itself loses time ({speculation}x).",
    Kind.UNCLEAR: "No clear difference: {subject} runs at {about}{times}x the speed of {plain}{runs}.",
    Kind.UNCLEAR_UNSPLIT: "No clear difference: {subject} runs at {about}{times}x the speed of {plain}{runs}.",
    Kind.UNCLEAR_GAINS: "No clear difference: {subject} runs at {about}{times}x the speed of {plain}{runs}. "
    "Speculation itself pays ({speculation}x); our loop alone gives {engine}x.",
    Kind.UNCLEAR_LOSES: "No clear difference: {subject} runs at {about}{times}x the speed of {plain}{runs}. "
    "Speculation itself loses time ({speculation}x); our loop alone gives {engine}x.",
    Kind.SLOWER: "Slower: {subject} runs at {about}{times}x the speed of {plain}{runs}.",
    Kind.SLOWER_UNSPLIT: "Slower: {subject} runs at {about}{times}x the speed of {plain}{runs}.",
    Kind.SLOWER_PERHAPS: "Slower: {subject} runs at {about}{times}x the speed of {plain}{runs}. Our loop alone "
    "gives {engine}x; it is not clear whether speculation itself pays ({speculation}x).",
    Kind.SLOWER_BY_ENGINE: "Slower: {subject} runs at {about}{times}x the speed of {plain}{runs}. The loss comes "
    "from our loop ({engine}x); speculation itself pays ({speculation}x).",
    Kind.BUSY: "{Subject} runs at about {times}x the speed of {plain} ({gave}).",
    Kind.NOISY: "{Subject} runs at about {times}x the speed of {plain}{runs}.",
    Kind.NO_GUESSES: "{Unguessed}: this is {loop} against {plain}, {times}x{runs}.",
    Kind.NOTHING_GUESSED: "The draft made no guesses: this is {loop} against {plain}, {times}x{runs}.",
    Kind.TOO_FEW_TOKENS: "Too few tokens to compare.",
    Kind.NO_TOKEN: "No token was written.",
    Kind.INCOMPLETE: "{stopped} at {written} of {asked} tokens in the {lane} lane.",
    Kind.TOO_EARLY: "Too early to tell: {calls} of {planned} calls are done ({share}).",
    Kind.NOT_MEASURED: "Nothing to compare yet: no draft length has been measured together with {plain}.",
}

# Added to the headline of a figure that is noise: both shares, by whether speculation lost in every run.
NOISY_SHARES = {
    False: ENDS_WITH_SHARES["noise"].removeprefix(". "),
    True: "Our loop alone gives {engine}x; speculation on top loses time ({speculation}x).",
}

# The line below the headline. A kind without a row has none.
SHARES = {
    Kind.UNCLEAR: "Our loop alone gives {engine}x, times {speculation}x from speculation.",
    Kind.SLOWER: "Our loop alone gives {engine}x, times {speculation}x from speculation.",
    Kind.FASTER_UNSPLIT: "The share of speculation is not known, because our loop without a draft did not run.",
    Kind.UNCLEAR_UNSPLIT: "It is not known whether speculation pays, because our loop without a draft did not run.",
    Kind.SLOWER_UNSPLIT: "The share of speculation is not known, because our loop without a draft did not run.",
    Kind.INCOMPLETE: "Nothing to compare yet.",
    Kind.TOO_EARLY: "A verdict needs at least one call of every draft length on every prompt.",
}

# Why speculation loses: a round could break even, it cannot, or the closed form does not apply. Each says what it is
# compared with, because a lane can be faster than plain generate and slower than our loop.
_YIELDS = "each round yields {tokens} tokens for the time of {cost} {units}"
_AT_MOST = "a round takes as long as {cost} {units} but can yield at most {most} tokens"
_AS_FAST = "to be as fast as {rival}"
_NEEDS = "so \u03b3 {gamma} must keep {needed} of guesses " + _AS_FAST + "; it keeps {alpha}"
REASONS = {
    Reason.GUESSES_COST: (
        "{A_guess} takes as long as {c} {units}, " + _NEEDS + ".",
        "{A_guess} takes as long as {c} {units}: " + _AT_MOST + ".",
        "{A_guess} takes as long as {c} {units}: " + _YIELDS + ".",
    ),
    Reason.FEW_KEPT: (
        "Only {alpha} of guesses are kept; \u03b3 {gamma} needs {needed} " + _AS_FAST + ".",
        "Only {alpha} of guesses are kept: " + _AT_MOST + ".",
        "Only {alpha} of guesses are kept: " + _YIELDS + ".",
    ),
    Reason.CHECKING_GROWS: (
        "Checking a round takes {v} times as long as checking one token, " + _NEEDS + ".",
        "Checking a round takes {v} times as long as checking one token: " + _AT_MOST + ".",
        "Checking a round takes {v} times as long as checking one token: " + _YIELDS + ".",
    ),
    Reason.CHECKING_OR_LOOP: (
        "Checking a round and the work around it take as long as {rest} {units}, " + _NEEDS + ".",
        "Checking a round and the work around it take as long as {rest} {units}: " + _AT_MOST + ".",
        "Checking a round and the work around it take as long as {rest} {units}: " + _YIELDS + ".",
    ),
    Reason.UNEVEN: ("{alpha} of guesses are kept, but unevenly: " + _YIELDS + ".",) * 3,
    Reason.OVERHEAD: (
        "The guesses save time in the models' passes, but {overhead} of the time is spent outside the passes.",
    )
    * 3,
    Reason.CUT: ("The text is short, and the rounds that its end cuts short yield less than they cost.",) * 3,
    Reason.UNKNOWN: ("The reason is not known: {teller} does not tell what its guesses cost.",) * 3,
}

ADVICE = {
    Advice.SHORTER: "A shorter draft length may pay.",
    Advice.CHEAPER: "Use a draft that costs less.",
    Advice.CLOSER: "Use a draft that agrees with the target more often.",
    Advice.LONGER: "Measure over more tokens.",
}

DOUBTS = {
    Doubt.BUSY: "The machine was busy. In {busy} of {count}, a lane had a processor for as little as "
    "{share} of its time.",
    Doubt.TOO_FAST: "Speculation was measured as {speculation} times as fast as our loop without a draft, but a round "
    "yields only {all_tokens} tokens; this is measurement noise.",
    Doubt.LUCK: "\u03b3 {gamma} ran once and was far faster than the next shorter and the next longer draft; such a "
    "lead is often luck.",
    Doubt.ABOVE_LIMIT: "\u03b3 {gamma} was measured as faster than the computed limit of this machine, so one of both "
    "measurements is wrong; measure again on a quiet machine.",
    Doubt.STALL: "Something else slowed {stalled} of {count}. One round took over 5 times its usual time: repeat the "
    "race before you trust the figure.",
    Doubt.WIDE_SPREAD: "The runs differ widely: {gave}.",
    Doubt.CHECKING_SHRINKS: "Measurement noise: checking a round came out faster ({v}x) than one token.",
    Doubt.FEW_RUNS: "In {count}, such a difference can be chance: more runs are needed to confirm it.",
}

# Notes of a sweep or a benchmark, below the judge's headline.
NONE_PAYS = "No draft length pays."
LOOP_TOO = " Our loop without a draft: {times}."  # the end of the headline of a figure that is noise
AT, IN_MEDIAN_RUN = "At", "In the median run at"  # the first words of the terms of a gain
ONE_SERVER = "the server with draft length \u03b3 {gamma}"
UNTOLD_SERVER = "the other server"  # where it does not tell its draft length
ONE_LENGTH = "draft length \u03b3 {gamma}"  # a ``subject``, and this one of several lengths:
FASTEST = "the fastest draft length, \u03b3 {gamma},"
WITH_LOOP = "our loop with {length}"  # the same, where a part of the speed-up is our loop's
LOOP_FASTER = "Our loop without a draft (\u03b3 0) was faster: {times}."
ALIKE = "\u03b3 {alike} may be as fast as \u03b3 {gamma}: the runs show no clear difference."
MEASURED = "{calls} calls measured."
MEASURED_PARTLY = "{calls} of {planned} calls measured ({share})."
BLOCK = "A draft takes one pass, whatever \u03b3 is: drafting costs c in each round, not \u03b3 c.{bound}"
BLOCK_BOUND = " A draft has at most {most} guesses."
FORM_OFF = "The prediction of the theory is off by {error} (median over \u03b3 1 to 8)."
RIVALS = {
    "alone": "{Rival} runs at {times} the speed of plain generate.",
    "alone, unclear": "No clear difference: {Rival} runs at {times} the speed of plain generate.",
    "faster": "{Rival} is faster: {times}.",
    "faster still": "{Rival} is even faster: {times}.",
    "alike": "{Rival} may be as fast: {times}.",
}

# A race whose acceptance changes the output.
LOSSY = "Not lossless: {acceptance} acceptance changes the output."

# Where shown figures come from. "run" and "startup" were measured here, by the page's own server; "servers" by it too,
# on servers that somebody runs.
ORIGINS = {
    "run": "Measured on this machine",
    "servers": "Measured from this machine, on running servers",
    "startup": "Measured on this machine at start-up",
    "recording": "A recording, not measured here",
    "gallery": "A recording, not measured here",
    "file": "From the file {name}, not measured here",
    "unnamed file": "From a file, not measured here",
    "link": "From a link, not measured here",
}

# Several results in one table.
UNLIKE = "These rows cannot be compared directly: they differ in {settings}."
NOTHING_COMPARED = "There is nothing to compare: no prompt has a call of the plain lane and a call of another one."
ALIKE_ASKED = "All files have the same prompts, new tokens and temperature."

# How the two texts of a race compare.
TEXTS_LOSSY = "With this acceptance, sampled text does not follow the target's distribution."
TEXTS_CLAIMED = "Sampling: the two texts may differ. This acceptance claims the same distribution."
TEXTS_SAMPLED = "Sampling: the two texts may differ; their distribution is the same."
TEXTS_SAME = "Identical text: {same} of {tokens} tokens."
TEXTS_SAME_SO_FAR = "Identical text so far: {same} of {tokens} tokens."
TEXTS_DIFFER = "First difference at token {at}: plain {plain}, speculative {speculative}"
TOKEN, END = "\u201c{}\u201d", "the end"
# How exact the lane of a server is, and where its seconds come from.
EXACTNESS = {
    "rounds": "It told each round.",
    "counts": "It told how many guesses it made and kept, not in which round.",
    "speed": "It told nothing of its rounds: text and speed only.",
}
NO_LENGTHS_ON_SERVERS = "A server tells no times of its passes, so other draft lengths cannot be computed."
NO_PASSES_ON_SERVERS = "A server tells no times of its passes: a block ends when its tokens arrived here."
TWO_ENGINES = (
    "The servers run different engines ({plain} and {speculative}), so not all of the difference is speculation's."
)
TWO_MODELS = (
    "The servers name different models ({plain} and {speculative}). If these are two models, the figures compare them "
    "and say nothing about speculation."
)
AT_THE_CLIENT_TOO = "Measured at the client. Servers that share a machine ran in turns, never at the same time."
AT_THE_CLIENT = "Seconds are measured at the client, from the first token to the last."
# Of servers that tell no token ids.
TEXTS_SAME_LETTERS = "Identical text."
TEXTS_DIFFER_LETTERS = (
    "First difference at character {at}: plain \u201c{plain}\u201d, speculative \u201c{speculative}\u201d."
)
# By whether the texts had a repetition penalty.
FORCED = (
    "The grammar forced {kept} of the {accepted} kept guesses: only one token was allowed, so they cost no draft pass."
)
FORCED_OTHERS = " Of the other tested guesses {share} were kept."
CUT_OFF = "The text was cut before its end-of-text token, so as a whole it may not obey the grammar."
MARGIN = {False: "; logit margin {margin:.3g}", True: "; logit margin {margin:.3g} (before the repetition penalty)"}

# Other notes below the verdict on a race, and what a screen reader says of its chart.
STOPPED_ENDED = "{stopped} before all lanes ended. Only lanes that ended count."
STOPPED_COMPARED = "{stopped} at {written} of {asked} tokens; only tokens that both lanes wrote are compared."
REPEATS_ITSELF = "{share} of the text repeats earlier text, which is easy to guess. Other prompts may gain less."
CHOSEN_LENGTHS = "Draft length \u03b3 {gamma}: {mean:.1f} guesses per round on average."
CHOSEN_LENGTHS_WITH_NONE = (
    "Draft length \u03b3 {gamma}: {mean:.1f} guesses per round on average; {none} of {rounds} rounds had none."
)
LANE_ENDED = "{name} lane ended: {tokens} tokens, {duration} from the first to the last."
TIME = "Of these {whole}: drafting {draft}, checking {verify}, other work {rest}."
TIME_SHOWN = "Of the {whole} of run {shown}, which is shown: drafting {draft}, checking {verify}, other work {rest}."
# Beside the counts of tokens that two sampled texts have: plain / speculative.
WRITTEN = "tokens written, plain / speculative"
BY_CHANCE = "tokens; the texts differ by chance"
CHART = (
    "Tokens written over seconds. Plain: {plain} tokens in {plain_time}. "
    "Speculative: {speculative} tokens in {speculative_time}. {sentence}"
)

# A race at another draft length, computed from it.
COMPUTED = "\u03b3 {gamma} would run at {about}{times}x the speed of plain generate."
COMPUTED_FROM = "Computed from {runs}, not measured. Press Run race to measure it."
COMPUTED_RUN, COMPUTED_RUNS = "this run", "these {runs} runs"
COMPUTED_FASTEST = "Fastest by this computation: \u03b3 {gamma}, at {about}{times}x."
COMPUTED_STALL = "A round stalled in this run. The stall counts in what was measured, and not in what is computed."
COMPUTED_MEASURED = "The draft length that was measured: {policy}."
COMPUTED_ESTIMATED = "Some guesses of this length were never made in this run; they are estimated."

# The label of a pair of shapes, wherever it is shown.
SYNTHETIC = "synthetic: random weights, agreement set to {agreement:g}"
TIMING_ONLY = (
    "Timing only: random weights write no readable text. The draft is set to agree with the target at {agreement} of "
    "the places."
)
LEFT_OUT = "Not measured: {lane}. {reason}"

# The limit of a machine, after a benchmark or a sweep.
RATES = (
    "{Role}: {size} MB of weights. Measured: a buffer of that size is read at {bandwidth} GB/s, matrices are "
    "multiplied at {operations} billion operations/s."
)
NO_LIMIT = "No limit is computed. {reason}"

# The explanation of a race and of a sweep.
WHY = "Why"
WHY_TITLE = "Why {times}x: a round yields {tokens} tokens{cut} in the time {plain} writes {round_cost}"
WHY_CUT = " (fewer at the end)"
WHY_UNSPLIT = (
    "Per round, drafting takes as long as {drafting} tokens of {plain}, checking and the rest as long as "
    "{rest}. To learn both shares, run our loop without a draft (\u03b3 0) too."
)
WHY_TERMS = (
    "{at} \u03b3 {gamma} each round yields {tokens} tokens. {Drafting} costs {c_share} of a target pass over one "
    "token, and checking a round takes {v} times as long as one. {alpha} of tested guesses are kept{needs}."
)
_NOT_ENOUGH = "even 100\u00a0% would not be enough " + _AS_FAST
WHY_NEEDS = {True: "; {needed} are needed " + _AS_FAST, False: "; " + _NOT_ENOUGH, None: ""}
# If the measured gain contradicts the closed form.
_IF_THEORY = "; if guesses were kept independently of each other and all time went into passes, "
WHY_REFUTED = {
    True: _IF_THEORY + "{needed} would be needed " + _AS_FAST,
    False: _IF_THEORY + _NOT_ENOUGH,
    None: "",
}
NONE_IS_ENOUGH = "more than 100\u00a0%"
WHY_GAIN = "Speculation runs at {speculation}x the speed of our loop without a draft"
WHY_THEORY = "theory predicts {predicted}x from these figures"
WHY_ENGINE = "Our loop alone runs at {engine}x the speed of {plain}; this part does not come from speculation."
WHY_OFF = {
    "short": "many drafts were shorter than \u03b3",
    "uneven": "the theory assumes that guesses are kept independently of each other, and the measured tokens per pass "
    "differ from that",
    "overhead": "{overhead} of the time is spent outside drafting and checking",
    "unknown": "none of these figures explains it; other work on the machine may",
}


def headline(found: Judgement, subject: str | None = None, **more: str) -> str:
    """The headline; if the lane is slower, with the reason; if it is noise, with both shares.

    Without a ``subject`` it is our loop with speculation, or speculative decoding where our loop's share is not known.
    """
    if subject is None:
        subject = "our loop with speculation" if found.split and not found.on_servers else "speculative decoding"
    text = HEADLINES[found.kind].format(**_fields(found, subject) | more)
    if found.kind in NOISE and found.split and not found.on_servers:
        return f"{text} {fill(NOISY_SHARES[found.lost], found)}"
    slower = found.kind in (Kind.SLOWER, Kind.SLOWER_UNSPLIT)
    return f"{text} {reason(found)}" if slower and found.reason else text


def notes(found: Judgement) -> list[Note]:
    """The notes below the headline: every doubt, why speculation loses if the headline does not say it, both shares.

    The page shows the first of them and folds the rest.
    """
    said = [Note(doubt, fill(DOUBTS[doubt], found)) for doubt in found.doubts]
    if found.reason and found.kind not in (Kind.SLOWER, Kind.SLOWER_UNSPLIT):
        said.append(Note("reason", reason(found)))
    split = found.kind in SHARES and not found.on_servers  # both servers are engines of their own
    return said + ([Note("shares", fill(SHARES[found.kind], found))] if split else [])


def reason(found: Judgement) -> str:
    """Why speculation loses; empty if it does not."""
    if found.reason is None:
        return ""
    place = {True: 0, False: 1, None: 2}[found.can_break_even]
    return REASONS[found.reason][place].format(**_fields(found))


def advice(found: Judgement) -> str:
    """What may help if speculation loses; empty if nothing is known to help."""
    return ADVICE[found.advice] if found.advice else ""


def plain(servers: bool) -> str:
    """What the plain lane is called within a sentence."""
    return "the plain server" if servers else "plain generate"


def big(found: Judgement) -> str | None:
    """The large figure beside the headline; None if there is none, or if the difference is not clear.

    "about" is shown before it if ``found.is_about``.
    """
    if found.gain is None or found.kind.startswith("unclear"):
        return None
    return f"{factor(found.gain)}x"


def why_title(found: Judgement) -> str:
    """The title. It tells of rounds that the end of a text cut short, where its other figures do not give the gain."""
    cut = found.gain and found.round_cost and found.tokens and found.tokens / (found.gain * found.round_cost) > 1.02
    return fill(WHY_TITLE, found, cut=WHY_CUT if cut else "")


def fill(row: str, found: Judgement, **more: str) -> str:
    """A row of the tables above, with its figures filled in."""
    return row.format(**_fields(found) | more)


def kept_and_needed(found: Judgement) -> tuple[str, str]:
    """The acceptance rate and the one that breaks even, with enough digits to tell them apart."""
    if found.alpha is None or found.needed_alpha is None:
        return percent(found.alpha), percent(found.needed_alpha)
    for digits in (0, 1, 2):
        both = percent(found.alpha, digits), percent(found.needed_alpha, digits)
        if both[0] != both[1]:
            break
    return both


def gain_share(found: Judgement, value: float | None) -> str:
    """The share of our loop or of speculation in the gain, as a number. Their product is the gain that is shown.

    Where the gain is uncertain, those from 2.0 on have one digit after the point instead of two if they still do.
    """
    if found.is_about and found.gain and found.engine and found.speculation:
        one, other = (round(each, _share_digits(each)) for each in (found.engine, found.speculation))
        if factor(one * other) == factor(found.gain):
            return number(value, _share_digits(value or 0.0))
    return number(value, 2)


def gain_share_times(found: Judgement, value: float | None) -> str:
    """The same with its sign; a dash for None."""
    return gain_share(found, value) + "x" * (value is not None)


def _share_digits(value: float) -> int:
    return max(1, digits_of(value))


def _fields(found: Judgement, subject: str = "speculative decoding") -> dict[str, str]:
    """All figures of a judgement in the format of the sentences."""
    low, high = _ends(found)
    base = plain(found.on_servers)
    alpha, needed = kept_and_needed(found)
    drafting = None if found.c is None or found.draft_passes is None else found.c * found.draft_passes
    rest = None if found.cost is None or drafting is None else found.cost - drafting
    return {
        "subject": subject, "Subject": capital(subject),
        "times": "\u2013" if found.gain is None else factor(found.gain),
        "about": about(found), "gave": _gave(found),
        "gain": number(found.gain, 2), "low": low, "high": high,
        "engine": gain_share(found, found.engine), "speculation": gain_share(found, found.speculation),
        "predicted": number(found.predicted, 2), "alpha": alpha, "needed": needed,
        "c": number(found.c, 2), "c_share": percent(found.c), "v": number(found.v, 2),
        "tokens": number(found.tokens), "cost": number(found.cost),
        "round_cost": _cost(found.round_cost), "drafting": number(drafting), "rest": number(rest),
        "overhead": percent(found.overhead), "gamma": str(found.gamma),
        "most": str(found.gamma + 1) if isinstance(found.gamma, int) else "\u2013",
        "units": "target passes" if found.split else f"tokens of {base}",
        "rival": "our loop without a draft" if found.split else base,
        "Unguessed": "The other server does not speculate" if found.on_servers else "\u03b3 0 makes no guesses",
        "teller": "a server" if found.on_servers else "this lane",
        "plain": base, "loop": "the other server" if found.on_servers else "our loop",
        "A_guess": "A draft (one pass, whatever its length)" if found.one_pass else "A guess",
        "Drafting": "A draft is one pass, whatever \u03b3 is; it" if found.one_pass else "Drafting a guess",
        "busy": str(found.busy), "share": percent(found.cpu_share), "all_tokens": number(found.tokens_of_all, 2),
        "stalled": str(found.stalled), "count": runs(found.runs), "runs": _runs(found),
    }  # fmt: skip


def beside_shares(headline: str, shares: Iterable[Figure]) -> str:
    """``headline`` without its end that names both shares, for a place where ``shares`` stand beside it."""
    values = {figure.get("name"): figure["value"].removesuffix("x") for figure in shares}
    if "engine" not in values or "measured" not in values:
        return headline
    for end in ENDS_WITH_SHARES.values():
        said = end.format(engine=values["engine"], speculation=values["measured"])
        if headline.endswith(said):
            return f"{headline.removesuffix(said)}."
    return headline


def first_sentence(text: str) -> tuple[str, str]:
    """The first sentence of a text, and the rest; ``lib/sentences.js`` does the same.

    A text that quotes other texts stays whole, because they have full stops too.
    """
    found = re.match(r"[^\u201c]*?[.!?](?= [A-Z\u0391-\u03c9])", text)
    first = found.group() if found else text
    return first, text[len(first) + 1 :]


def capital(text: str) -> str:
    """With a capital, unless it begins with a Greek letter, because a capital gamma means something else."""
    return text[0].upper() + text[1:] if text[0].isascii() else text


def _runs(found: Judgement) -> str:
    """The number of runs of a figure, and their lowest and highest; for a single run whether it had a stall."""
    if found.runs < 2 or found.spread is None:
        return " (1 run, with a stall)" if found.stalled else " (1 run)"
    if found.runs == 2:  # the median of an even number of runs is the slower one in the middle
        return f" ({'' if _alike(found) else 'the slower of '}2 runs, {_each(found)})"
    return f" (median of {runs(found.runs)}, {_each(found)})"


def _alike(found: Judgement) -> bool:
    """Whether all runs have one gain, as it is shown."""
    low, high = _ends(found)
    return low == high


def _cost(tokens: float | None) -> str:
    """What a round costs, in tokens, with enough digits below 1 that the reader's own division gives the gain."""
    return number(tokens, 2 if (tokens or 1) < 1 else 1)


def about(found: Judgement) -> str:
    """The word before an uncertain gain, with a space; empty before a clear one."""
    return "about " if found.is_about else ""


def _gave(found: Judgement) -> str:
    """What the runs gave, as a part of a sentence."""
    return "1 run" if found.runs < 2 else f"{runs(found.runs)} gave {_each(found)}"


def _each(found: Judgement) -> str:
    """The gains of several runs: both, or the lowest and the highest."""
    low, high = _ends(found)
    if _alike(found):
        return f"{low}x each"
    return f"{low}x and {high}x" if found.runs == 2 else f"{low}\u2013{high}x"


def _ends(found: Judgement) -> tuple[str, str]:
    """The lowest and the highest run, with as many digits as the median, so that it lies between them as shown."""
    if found.spread is None or found.gain is None:
        return number(None), number(None)
    low, high = found.spread
    return number(low, digits_of(found.gain)), number(high, digits_of(found.gain))


def lengths(gammas: Sequence[int | str]) -> str:
    """One or more draft lengths in rising order, with ranges: ``2, 4–8 and auto``."""
    numbers = sorted(gamma for gamma in gammas if isinstance(gamma, int))
    parts = []
    for _, row in groupby(enumerate(numbers), lambda at: at[1] - at[0]):
        (_, first), *rest = row
        parts.append(f"{first}\u2013{rest[-1][1]}" if rest else str(first))
    parts += [gamma for gamma in gammas if not isinstance(gamma, int)]
    return listed(parts)


def listed(parts: Sequence[str]) -> str:
    """One or more words as a list in a sentence."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def policy(gamma: int | str) -> str:
    """How a draft length is chosen: \u03b3 5, \u03b3 auto, by confidence, or by a server that does not tell it."""
    if gamma == ENGINE:
        return "draft length not told"
    if isinstance(gamma, str) and gamma.startswith(CONFIDENCE):
        return f"stop below confidence {gamma.removeprefix(CONFIDENCE)}"
    return f"\u03b3 {gamma}"


def length(gamma: int | str) -> str:
    """A draft length in a column of draft lengths."""
    return "not told" if gamma == ENGINE else str(gamma)


def ahead(jobs: int, left: float | None) -> str:
    """How long a job waits: the number of jobs before it, and their seconds if known."""
    return f"{jobs} ahead." if left is None else f"{jobs} ahead, about {duration(left)}."


def calls(count: int, tokens: int, grammar: str = "") -> str:
    """The work of a measurement: calls that write so many tokens each, or that ``grammar`` ends earlier."""
    found = f"{count:,} call{'s' * (count != 1)} of "
    return f"{found}at most {tokens:,} tokens, whose texts obey {grammar}" if grammar else f"{found}{tokens:,} tokens"


def work_ahead(work: str, seconds: float | None) -> str:
    """The work of a measurement, with its time if the speed of this machine is known."""
    return f"{work}." if seconds is None else f"About {duration(seconds)}: {work}."


def calls_left(done: int, planned: int, seconds: float | None) -> str:
    """How far a measurement is. ``seconds`` is the time of a call, if known."""
    left = "" if seconds is None else f", about {duration(seconds * (planned - done))} left"
    return f"{done:,} of {planned:,} calls{left}."
