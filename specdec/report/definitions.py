"""Defines every figure that is shown: its name, its unit, what it means, and what it is not.

The page shows the meaning as a hint beside a figure. docs/metrics.md is made from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

from specdec.report.verdict import Figure


@dataclass(frozen=True)
class Definition:
    """``name``: what the figure is called unless it has a label of its own. ``is_not``: what it is not."""

    name: str
    unit: str
    meaning: str
    is_not: str


# Words of the page that a newcomer does not know, by the key of the lane or the kind of token that they name.
WORDS = {
    "pair": "A pair is a target and a draft. The target, named first, is the model whose text you get. The draft, "
    "behind the arrow, guesses tokens cheaply: a small model, a part of the target, or a search in the text. The "
    "target checks every guess.",
    "gamma": "\u03b3 (gamma) is how many tokens the draft guesses in a round. One pass of the target checks them all.",
    "generate": "transformers' own generate(), with the target alone: one pass for each token. The speed-up is "
    "measured against it.",
    "speculative": "The draft guesses \u03b3 tokens, and one pass of the target checks them all. What stands is kept, "
    "and each round ends with a token of the target's own.",
    "speculative:0": "The same loop without guesses (\u03b3 0). What it gains over generate() does not come from "
    "speculation.",
    "generate:server": "The first server, which makes no guesses: one pass of its model for each token. The speed-up "
    "is measured against it.",
    "speculative:server": "The server that speculates: its draft guesses tokens, and one pass of its model checks them "
    "all.",
    "accepted": "A guess that the target kept.",
    "correction": "The target's own token, in place of the first guess that it did not keep.",
    "bonus": "A token that the target adds for nothing when it kept every guess of the round.",
    "rejected": "The first guess of a round that the target did not keep. The correction stands in its place.",
    "discarded": "A guess after a rejected one. It continued a wrong token, so it is thrown away.",
}
DEFINITIONS = {
    "speed-up": Definition(
        "speed-up",
        "factor",
        "Seconds per token of the plain lane / seconds per token of this lane, over the tokens after the first. "
        "With several runs it is that of the median run.",
        "The time to the first token is not in it. It is not speculation's share: our loop gains a part of it.",
    ),
    "engine": Definition(
        "our loop vs generate()",
        "factor",
        "Seconds per token of plain generate / seconds per token of our loop at \u03b3 0. This part does not come from "
        "speculation.",
        "It says nothing about guesses: no guess is made at \u03b3 0.",
    ),
    "measured": Definition(
        "speculation on top",
        "factor",
        "Seconds per token of our loop at \u03b3 0 / seconds per token of the speculative lane: what guessing gains on "
        "top of our loop.",
        "It is not the gain over plain generate, which is both shares multiplied.",
    ),
    "predicted": Definition(
        "predicted gain",
        "factor",
        "The gain over our loop at \u03b3 0 by theory: (1 - \u03b1^(\u03b3+1)) / ((1 - \u03b1)(\u03b3 c + v)). "
        "Leviathan et al., Theorem 3.8, with the v measured at this \u03b3. Where a draft takes one pass, c + v stands "
        "in place of \u03b3 c + v.",
        "It is computed, not measured. It assumes that guesses are kept independently of each other.",
    ),
    "saved": Definition(
        "time saved",
        "share of time",
        "The share of the plain lane's time after its first token that speculative decoding saves: 1 - 1 / speed-up.",
        "It is not a speed-up: 50 % of the time saved is a factor of 2.",
    ),
    "with the prompt": Definition(
        "speed-up including the prompt",
        "factor",
        "The speed-up, including the time to the first token.",
        "It depends on the length of the text: the longer it is, the closer this comes to the speed-up.",
    ),
    "tokens/s": Definition(
        "tokens/s",
        "tokens a second",
        "Tokens written after the first one / seconds from the first token to the last. With several runs "
        "it is that of the run with the median speed-up.",
        "It is not characters or words a second, and the prompt's tokens do not count.",
    ),
    "first token": Definition(
        "first token",
        "seconds",
        "Seconds from the call to the first token. In this time the target reads the prompt, and so does the draft if "
        "there is one.",
        "Loading the models and waiting in the queue are not in it.",
    ),
    "acceptance": Definition(
        "tested guesses kept",
        "share of guesses",
        "Guesses kept / guesses tested, the acceptance rate \u03b1. A guess after the first rejected one is never "
        "tested and does not count.",
        "It is not the share of all drafted tokens (vLLM's draft acceptance rate), nor of the text's tokens.",
    ),
    "drafted and kept": Definition(
        "guesses kept, untested ones included",
        "share of guesses",
        "Guesses kept / all guesses, including those that were never tested.",
        "It is not \u03b1, and it falls with \u03b3 by itself. vLLM calls it the draft acceptance rate.",
    ),
    "tokens per pass": Definition(
        "tokens per target pass",
        "tokens",
        "Tokens written per target pass, including the correction or bonus token. The first token and rounds cut short "
        "by the end of the text are not counted.",
        "It is not the speed-up: a round also costs drafting, and more time to check.",
    ),
    "cost coefficient": Definition(
        "cost coefficient (c)",
        "target passes over one token",
        "Seconds of a draft pass / seconds of a target pass over one token (our loop at \u03b3 0). Each guess takes a "
        "pass, so drafting costs \u03b3 c in a round. A block drafter (such as DFlash) takes one pass for all "
        "guesses, so drafting costs c at every \u03b3.",
        "It is not the ratio of the models' sizes: on small models and fast GPUs the number of layers sets the "
        "time of a pass.",
    ),
    "verify growth": Definition(
        "verify growth (v)",
        "target passes over one token",
        "Mean seconds of the target passes of all rounds / mean seconds of a target pass over one token. A round of "
        "\u03b3 guesses has \u03b3 + 1 tokens (rows), so v is a curve, measured at each number of rows that ran. The "
        "papers assume 1.",
        "It does not include drafting. At another number of rows it is not known.",
    ),
    "draft cost": Definition(
        "cost of a guess",
        "tokens of plain generate",
        "Seconds of a draft pass / seconds per token of the plain lane. Each guess takes a pass; a block drafter takes "
        "one for all guesses of a draft.",
        "It is not c, which is counted in passes of our own loop.",
    ),
    "round cost": Definition(
        "cost of a round",
        "tokens of plain generate",
        "Seconds per round / seconds per token of the plain lane. A round that yields this many tokens is as fast as "
        "that lane.",
        "It is not \u03b3 c + v: all work around the passes is in it.",
    ),
    "break-even": Definition(
        "acceptance needed to break even",
        "share of guesses",
        "The acceptance rate above which speculation gains over our loop at \u03b3 0, by theory: "
        "(1 - \u03b1^(\u03b3+1)) / (1 - \u03b1) = \u03b3 c + v, with the measured v; c + v where a draft takes one "
        "pass.",
        "It is computed, for this \u03b3 only. Another draft length needs another rate.",
    ),
    "loop overhead": Definition(
        "outside drafting and checking",
        "share of time",
        "The share of the lane's time that is neither drafting nor checking.",
        "It is not the time outside the models' passes: choosing tokens is a part of drafting and checking.",
    ),
    "outside": Definition(
        "time outside the models' passes",
        "share of time",
        "The share of the speculative lane's time after its first token that is not spent inside the models' passes.",
        "It is not idle time: it is sampling, comparing, rolling back and events.",
    ),
    "same": Definition(
        "tokens identical",
        "tokens",
        "Tokens that are equal in the two texts, counted from the start to the first difference, in the run that is "
        "shown.",
        "It is not a similarity: after the first difference two correct texts may have nothing in common.",
    ),
    "written": Definition(
        "tokens written",
        "tokens",
        "Tokens that the plain and the speculative lane wrote in the run that is shown. With sampling each draws "
        "by chance, so the texts differ. Lossless acceptance gives both the same distribution.",
        "It is no test of losslessness: the tab Lossless? has one.",
    ),
    "tested": Definition(
        "tested",
        "drafts",
        "Drafts in which the guess at this place was tested: all guesses before it were kept.",
        "It is not the number of guesses made at this place.",
    ),
    "kept, of tested": Definition(
        "kept, of tested",
        "share of guesses",
        "Guesses kept at this place / guesses tested at this place.",
        'It is not vLLM\'s rate by position, which is called "kept, of all drafts" here.',
    ),
    "expected, of tested": Definition(
        "expected, of tested",
        "share of guesses",
        "The mean of the sum of min(p, q) over the vocabulary: the chance that such a guess is kept (before it is "
        "drawn). It varies less from run to run than the share that was kept.",
        "It is not known for greedy text, where p and q are one-hot.",
    ),
    "kept, of all drafts": Definition(
        "kept, of all drafts",
        "share of drafts",
        "Guesses kept at this place / all drafts. vLLM calls this the acceptance rate by position.",
        "It is not a chance by itself: it falls from place to place, because all guesses before must be kept too.",
    ),
    "share of passes": Definition(
        "share of passes",
        "share of passes",
        "Target passes that wrote this many tokens / all target passes after the prompt.",
        "Passes cut short by the end of the text are counted here.",
    ),
    "bias found": Definition(
        "bias that would have been found",
        "total variation",
        "The smallest total variation between the distributions of plain generate and of the tested lane, over the "
        "groups of continuations in the table, that such a test finds in at least 9 of 10 times, however it is spread "
        "over the groups. With \u03bb the noncentrality at which the chi-square test at level 0.001 has power 0.9, and "
        "n draws in each sample: \u221a(\u03bb / 2n).",
        "It is not the difference that was measured, nor a bias inside a group. A bias in few groups is found from a "
        "smaller size on.",
    ),
    "bias per token": Definition(
        "bias per token that would have been found",
        "total variation",
        "The smallest mean total variation of a token's distribution, over the target's first choice, its second, its "
        "third and fourth, fifth to eighth, and all others, that the test step by step finds in at least 9 of 10 "
        "times.",
        "It is not the bias of a whole continuation, which can be up to as many times larger as it has tokens.",
    ),
}


def make_figure(value: str, key: str, label: str = "") -> Figure:
    """A figure with a row in the table. ``label`` is shown in place of the name there."""
    if key not in DEFINITIONS:
        raise KeyError(f"no definition is called {key!r}")
    return Figure(value=value, name=key, label=label) if label else Figure(value=value, name=key)


def label_of(figure: Figure) -> str:
    """What a figure is called."""
    return figure.get("label") or DEFINITIONS[figure["name"]].name
