"""The sentences of the test of losslessness and of the check in float32, by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from specdec.lanes.table import row_of
from specdec.report import words

if TYPE_CHECKING:
    from specdec.measure.half_precision import Float32Check
    from specdec.measure.losslessness import Comparison, Findings

HEADLINES = {
    "lossless": "No difference found; the test detects the lossy version.",
    "not lossless": "Not lossless: the two samples differ by more than chance allows.",
    "untested": "The draft made no guesses for this prompt, so nothing was tested.",
    "undecided": "Undecided: the test misses even the lossy version, so it is too weak here.",
}
FOUND = (
    "{lane} {passes}: the two samples differ by {found} (total variation); chance alone gives {mean} on average, "
    "and at most {bound} in 999 of 1,000 tests. "
    "Lossy top-k acceptance {caught}."
)
UNTESTED = "There was no guess to test."
CAUGHT = {True: "is caught: {lossy}", False: "is missed ({lossy})"}
STOPPED = "Stopped early: no conclusion."
COLUMNS = ("Sample", "total variation", "by chance alone", "groups", "p", "verdict", "acceptance")
CAPTION = (
    "{draws} continuations of {tokens} tokens in each sample, compared with as many of plain generate; draft length "
    "\u03b3 {gamma}, temperature {temperature:g}, top-k {top_k}, seed {seed}. Groups: the different continuations, "
    "rare ones together. Total variation: half the sum of the differences between the shares of all groups, from 0 "
    "(alike) to 1 (nothing in common); by chance alone: its mean if both samples come from one distribution, and the "
    "bound exceeded by chance once in 1,000. p: chi-square test of homogeneity; the samples differ where it is below "
    "{level:g}."
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


def headline(found: Findings) -> str:
    return HEADLINES[found.verdict]


def sentence(found: Findings) -> str:
    """The figures behind the headline."""
    if found.verdict == "untested":
        return UNTESTED
    lossless, caught = found.lossless, found.lossy.p_value < found.level
    return FOUND.format(
        lane=tested(found), passes="fails" if lossless.p_value < found.level else "passes",
        found=f"{lossless.total_variation:.3f}", mean=f"{lossless.noise_mean:.3f}",
        bound=f"{lossless.noise_bound:.3f}", caught=CAUGHT[caught].format(lossy=f"{found.lossy.total_variation:.3f}"),
    )  # fmt: skip


def caption(found: Findings) -> str:
    params = found.params
    return CAPTION.format(
        draws=found.draws, tokens=params.max_new_tokens, gamma=found.gamma, temperature=params.temperature,
        top_k=params.top_k, seed=params.seed, level=found.level,
    )  # fmt: skip


def tested(found: Findings) -> str:
    """What was tested, as the beginning of a sentence."""
    choice = row_of(found.lane).choice
    return choice if choice.startswith("transformers") else words.capital(choice)


def sample_name(found: Findings) -> str:
    return "speculative, lossless" if found.lane == "speculative" else row_of(found.lane).choice


def rows(found: Findings) -> list[list[str]]:
    """A row for each sample, under ``COLUMNS``."""
    lossy = f"speculative, top-{found.accept_top_k} acceptance (lossy)"
    return [
        _row(sample_name(found), found.lossless, found.alpha, found.level),
        _row(lossy, found.lossy, found.lossy_alpha, found.level),
    ]


def _row(name: str, found: Comparison, alpha: float | None, level: float) -> list[str]:
    return [
        name,
        f"{found.total_variation:.3f}",
        f"{found.noise_mean:.3f}, up to {found.noise_bound:.3f}",
        str(found.cells),
        f"{found.p_value:.2g}",
        "differs" if found.p_value < level else "no difference found",
        words.percent(alpha),
    ]


def float32_note(found: Float32Check, text_of: Callable[[int], str] = str) -> str:
    """What the check in float32 says about the first difference of two greedy texts."""
    return FLOAT32[found.kind].format(
        text="" if found.token_id is None else text_of(found.token_id),
        agrees=f"as the {found.agrees} lane did" if found.agrees else "as neither lane did",
        margin=found.margin or 0.0, dtype=found.dtype, needed=(found.needed_bytes or 0) / 1e9,
    )  # fmt: skip
