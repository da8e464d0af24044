"""The sentences about whether a server that speculates writes what a plain one writes. Kinds: ``servers.court``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec.report import numbers
from specdec.report.losslessness import SEEN, share, size
from specdec.servers.court import NEAR, VERDICTS, TextFinding

if TYPE_CHECKING:
    from specdec.measure.losslessness import SampleComparison

HEADLINES = {
    "same": "Same text: {other} writes what {plain} writes on {prompts}.",
    "near tie": "No fault found: {other} writes what {plain} writes, except at near ties.",
    "batch": "No fault found: {other} differs only where {plain} itself changes its text beside other calls.",
    "unknown": "Undecided: the texts differ, and what {plain} tells does not say whose choice was right.",
    "fault": "Fault: {other} wrote tokens that {plain} clearly would not choose.",
}
COUNTED = {
    "same": "{count} the same", "near tie": "{count} with a near tie", "batch": "{count} changed by the batch",
    "unknown": "{count} not known", "fault": "{count} with a fault",
}  # fmt: skip
WHAT = {
    "near tie": "a near tie: both tokens are almost equally likely to {plain}, and rounding decides",
    "batch": "{plain} writes another text there too, when it runs again or beside other calls",
    "unknown": "how clear {plain}'s choice was is not known",
    "fault": "{plain}'s choice was clear",
}
LEFT = "{plain} left the token that it tells as its own clear choice, and {other} wrote that"
DIFFERS = "{prompt}: at {unit} {at}, {plain} wrote {mine} and {other} wrote {theirs}"
NEAR_TIE = (
    f"Margin: the difference of the two best log-probabilities. Up to {NEAR:g}, where bfloat16 may round two passes "
    "apart, it counts as a near tie."
)
SAMPLED = {
    "not lossless": "Not lossless: the samples of {plain} and {other} differ by more than chance allows.",
    "found none": "No difference found between the samples of {plain} and {other}.",
    "weak": "Undecided: with so few continuations no difference could be found.",
}
APART = (
    "Of {draws} continuations of {tokens} tokens from each, {found} would have to change for both samples to be equal "
    "(total variation). Chance alone: {mean} on average, and at most {bound} in 999 of 1,000 tests. A chi-square test "
    "of the same groups decides: {p}."
)
DECIDES = {True: "p is {p}, below {level:g}", False: "p is {p}, not below {level:g}"}


def court_headline(findings: Sequence[TextFinding], plain: str, other: str) -> str:
    """The gravest verdict over all prompts, in a sentence."""
    worst = next(verdict for verdict in VERDICTS if any(found.verdict == verdict for found in findings))
    prompts = "the prompt" if len(findings) == 1 else f"all {len(findings)} prompts"
    return HEADLINES[worst].format(plain=plain, other=other, prompts=prompts)


def court_counts(findings: Sequence[TextFinding]) -> str:
    """How many prompts had which verdict."""
    counts = Counter(found.verdict for found in findings)
    parts = [COUNTED[verdict].format(count=counts[verdict]) for verdict in reversed(VERDICTS) if counts[verdict]]
    return f"{len(findings)} prompt{'s' * (len(findings) != 1)}: {', '.join(parts)}."


def finding_sentence(found: TextFinding, plain: str, other: str) -> str:
    """Where two texts part, what each server chose there, and why."""
    if found.at is None:
        return f"{found.prompt}: the same."
    texts = ["the end" if not text else f"\u201c{text}\u201d" for text in (found.plain, found.other)]
    said = DIFFERS.format(
        prompt=found.prompt, unit="token" if found.ids else "character", at=found.at + 1, plain=plain, other=other,
        mine=texts[0], theirs=texts[1],
    )  # fmt: skip
    margin = "" if found.margin is None else f" (margin {numbers.number(found.margin, 3)})"
    what = LEFT if found.verdict == "unknown" and found.rank == 1 else WHAT[found.verdict]
    return f"{said}{margin}: {what.format(plain=plain, other=other)}."


def sampled_sentences(
    found: SampleComparison, level: float, draws: int, tokens: int, names: tuple[str, str]
) -> list[str]:
    """What two samples of servers show. ``names``: of the plain and of the other server."""
    kind = "not lossless" if found.p_value < level else "found none" if found.detectable is not None else "weak"
    said = [SAMPLED[kind].format(plain=names[0], other=names[1])]
    if kind == "found none":
        said.append(SEEN.format(detectable=size(found.detectable)))
    sizes = {"found": found.total_variation, "mean": found.noise_mean, "bound": found.noise_bound}
    apart = {name: share(value) for name, value in sizes.items()}
    p = DECIDES[found.p_value < level].format(p=f"{found.p_value:.2g}", level=level)
    return [*said, APART.format(draws=draws, tokens=tokens, p=p, **apart)]
