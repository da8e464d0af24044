"""The sentences of the test of losslessness and of the check in float32, by kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from specdec.lanes.table import row_of
from specdec.report import numbers, sentences
from specdec.report.figure_table import FigureTable

if TYPE_CHECKING:
    from specdec.measure.float32_check import Float32Check
    from specdec.measure.losslessness import LosslessnessResult, SampleComparison
    from specdec.measure.step_test import StepFindings

HEADLINES = {
    "lossless": "No difference found: plain and speculative samples agree. The same test catches a lossy version.",
    "not lossless": "Not lossless: the two samples differ by more than chance allows.",
    "steps": "Not lossless: {checks}.",
    "untested": "The draft made no guesses for this prompt, so nothing was tested.",
    "undecided": "Undecided: the test misses even the lossy version, so it is too weak.",
}
SEEN = "If speculation changed {detectable} of the draws or more, this test would find it 9 times in 10."
FOUND = (
    "{lane} {passes}: {found} of its draws would have to change to equal those of plain generate (total variation). "
    "Chance alone: {mean} on average, and at most {bound} in 999 of 1,000 tests. Lossy top-k acceptance {caught}."
)
STEPS = {
    "unrecorded": "This lane records no probabilities, so only the samples were compared.",
    "differs": "Step by step, in {tokens} tokens: {checks}.",
    "found none": "Step by step, no difference was found in {tokens} tokens{sees}. This relies on the probabilities "
    "that the lane records, which were checked against the target's logits; the samples rely on no record.",
}
SEES = "; this test finds a bias of {detectable} per token or more, 9 times in 10"
# Kind of a check: what it looks at, and what is wrong if it differs.
CHECKS = {
    "target": (
        "the recorded p is the target's distribution",
        "the recorded p is not the target's distribution at these settings",
    ),
    "rule": (
        "a guess is kept where its random number is below min(1, p/q)",
        "guesses are not accepted by min(1, p/q)",
    ),
    "residual": ("the residual is norm(max(0, p - q))", "corrections are not drawn from norm(max(0, p - q))"),
    "kept": ("guesses are kept as often as min(1, p/q) says", "guesses are not kept as often as min(1, p/q) says"),
    "guesses": ("guesses are drawn from q", "guesses do not come from the recorded q"),
    "corrections": ("corrections are drawn from the residual", "corrections do not come from the recorded residual"),
    "tokens": ("tokens are drawn from p", "the tokens written do not come from the target's distribution"),
}
STEP_COLUMNS = ("Check, step by step", "places", "largest or mean gap", "p", "verdict")
STEP_CAPTION = (
    "{tokens} tokens in {texts} of the tested lane, the first and every second one after it without top-k, top-p and "
    "min-p. The target's distribution is computed again, by its own forward pass and the logits processors of "
    "transformers' generate. Gap: between recorded figures and what they must be. p: chi-square tests; all checks "
    "together fail a lossless lane once in 1,000 times. Bias per token: the mean total variation of the distribution "
    "over the target's first choice, its second, its third and fourth, fifth to eighth, and all others"
)
VERDICTS = {True: "differs", False: "no difference found"}
UNTESTED = "There was no guess to test."
CAUGHT = {True: "is caught: {lossy}", False: "is missed ({lossy})"}
STOPPED = "Stopped early: no conclusion."
COLUMNS = ("Sample", "draws that differ", "by chance alone", "found from", "groups", "p", "verdict", "acceptance")
CAPTION = (
    "{draws} continuations of {tokens} tokens in each sample, compared with as many of plain generate; draft length "
    "\u03b3 {gamma}, temperature {temperature:g}, top-k {top_k}, seed {seed}. Groups: the different continuations, "
    "rare ones together. Draws that differ: how many of a sample's draws would have to change for all groups to be as "
    "large as those of plain generate (total variation: half the sum of the differences between the groups' shares); "
    "by chance alone: its mean if both samples come from one distribution, and the bound exceeded by chance once in "
    "1,000; found from: a bias of this size between the two distributions, whatever its kind, is found in at least 9 "
    "of 10 such tests. p: chi-square test of homogeneity; the samples differ where it is below {level:g}"
)

_NOT_TRIED = "The first difference was not checked in float32: the target's weights are {state}."
FLOAT32 = {
    "chosen": "In float32 the target chooses \u201c{text}\u201d there, {agrees}, with a logit margin of {margin:.3g}. "
    "In {dtype} the two lanes rounded differently.",
    "quantised": _NOT_TRIED.format(state="quantised"),
    "spread": _NOT_TRIED.format(state="spread or offloaded"),
    "memory": "The first difference was not checked in float32: the target would need {needed:.1f}\u00a0GB more "
    "memory.",
}
FLOAT32_FAILED = "The first difference could not be checked in float32; the log of the program gives the reason."


def losslessness_headline(found: LosslessnessResult) -> str:
    if found.steps is not None and found.steps.differs:
        return HEADLINES["steps"].format(checks=_faults(found.steps))
    return HEADLINES[found.verdict]


def losslessness_notes(found: LosslessnessResult) -> list[str]:
    """What is said below the headline: about the samples, and about the steps."""
    sees = [SEEN.format(detectable=size(found.lossless.detectable))] if found.verdict == "lossless" else []
    return [*sees, sentence(found), steps_sentence(found.steps)]


def steps_sentence(found: StepFindings | None) -> str:
    """What the test of every step found."""
    if found is None:
        return STEPS["unrecorded"]
    sees = "" if found.detectable is None else SEES.format(detectable=size(found.detectable))
    kind = "differs" if found.differs else "found none"
    return STEPS[kind].format(tokens=f"{found.tokens:,}", checks=_faults(found), sees=sees)


def _faults(found: StepFindings) -> str:
    return "; ".join(CHECKS[check.kind][1] for check in found.checks if check.differs)


def size(total_variation: float | None) -> str:
    """A total variation as a share of the draws, rounded up, so that a statement "from here on" stays true."""
    return numbers.percent(None if total_variation is None else math.ceil(100 * total_variation) / 100)


def share(total_variation: float) -> str:
    """A total variation as a share of the draws."""
    return numbers.percent(total_variation, 1)


def sentence(found: LosslessnessResult) -> str:
    """The figures behind the headline."""
    if not found.drafted:
        return UNTESTED
    lossless, caught = found.lossless, found.lossy.p_value < found.level
    return FOUND.format(
        lane=tested(found), passes="fails" if lossless.p_value < found.level else "passes",
        found=share(lossless.total_variation), mean=share(lossless.noise_mean), bound=share(lossless.noise_bound),
        caught=CAUGHT[caught].format(lossy=share(found.lossy.total_variation)),
    )  # fmt: skip


def tested(found: LosslessnessResult) -> str:
    """What was tested, as the beginning of a sentence."""
    choice = row_of(found.lane).choice
    return choice if choice.startswith("transformers") else sentences.capital(choice)


def sample_name(lane: str) -> str:
    """The name of the sample of the tested lane, which is given by its key."""
    return "speculative, lossless" if lane == "speculative" else row_of(lane).choice


def samples_table(found: LosslessnessResult) -> FigureTable:
    """A row for each sample."""
    params = found.params
    caption = CAPTION.format(
        draws=f"{found.draws:,}", tokens=params.max_new_tokens, gamma=found.gamma, temperature=params.temperature,
        top_k=params.top_k, seed=params.seed, level=found.level,
    )  # fmt: skip
    lossy = f"speculative, top-{found.accept_top_k} acceptance (lossy)"
    rows = [
        _row(sample_name(found.lane), found.lossless, found.alpha, found.level),
        _row(lossy, found.lossy, found.lossy_alpha, found.level),
    ]
    return FigureTable(caption, COLUMNS, rows, range(1, 6), minor=("by chance alone", "groups", "acceptance"))


def steps_table(found: StepFindings) -> FigureTable:
    """A row for each check of the recorded steps."""
    rows = [
        [
            sentences.capital(CHECKS[check.kind][0]),
            f"{check.places:,}",
            "\u2013" if check.gap is None else f"{check.gap:.1g}, allowed {check.allowed:g}",
            "\u2013" if check.p_value is None else f"{check.p_value:.2g}",
            VERDICTS[check.differs],
        ]
        for check in found.checks
    ]
    texts = f"{found.texts} text{'s' * (found.texts != 1)}"
    return FigureTable(STEP_CAPTION.format(tokens=f"{found.tokens:,}", texts=texts), STEP_COLUMNS, rows, range(1, 4))


def _row(name: str, found: SampleComparison, alpha: float | None, level: float) -> list[str]:
    return [
        name,
        share(found.total_variation),
        f"{share(found.noise_mean)}, up to {share(found.noise_bound)}",
        size(found.detectable),
        str(found.cells),
        f"{found.p_value:.2g}",
        VERDICTS[found.p_value < level],
        numbers.percent(alpha),
    ]


def float32_note(found: Float32Check, text_of: Callable[[int], str] = str) -> str:
    """What the check in float32 says about the first difference of two greedy texts."""
    return FLOAT32[found.kind].format(
        text="" if found.token_id is None else text_of(found.token_id),
        agrees=f"as the {found.agrees} lane did" if found.agrees else "as neither lane did",
        margin=found.margin or 0.0, dtype=found.dtype, needed=(found.needed_bytes or 0) / 1e9,
    )  # fmt: skip
