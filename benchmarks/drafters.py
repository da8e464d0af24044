"""Measures the ways to draft for the embedded target, in turns: ``python -m benchmarks.drafters``.

The 2-layer draft (also at γ auto), the EAGLE-3 head, prompt lookup, suffix decoding, token recycling and two
combinations write 128 greedy tokens after each example prompt, and after texts that begin a second time. Two tables
have the speed-up over plain ``generate``, speculation's share of it, c, v (docs/metrics.md), acceptance in total and by
position, and the tokens per target pass. Speed-ups are medians (lowest-highest) over the runs. Puts the tables into
docs/performance.md, and prints the bytes of each method's weights.
"""

from __future__ import annotations

import inspect
from typing import Any

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import COLUMNS, Turn, asked_runs, cells, in_turns
from specdec import closed_forms, text
from specdec.drafters.combined import LOOKUP
from specdec.engine import policy
from specdec.measure.metrics import Metrics, pool
from specdec.measure.prompts import EXAMPLES, PromptItem, read_prompts
from specdec.report import numbers

PASSAGE, BEGUN = 300, 60  # tokens of a text, and of its second beginning


def copies(tokenizer: Any) -> list[PromptItem]:
    """Texts of this program, each followed by its own beginning."""
    items = []
    for module in (closed_forms, text, policy):
        ids = tokenizer(inspect.getsource(module))["input_ids"][:PASSAGE]
        items.append(PromptItem(module.__name__, "copy", tokenizer.decode(ids + ids[:BEGUN])))
    return items


def by_place(lanes: list[Metrics]) -> str:
    """The share of tested guesses that were kept, at each of the first five places of a draft, over all runs."""
    whole = pool(lanes)
    places = list(zip(whole.kept_at, whole.tested_at, strict=True))[:5]
    return " ".join(f"{100 * kept / tested:.0f}" for kept, tested in places if tested)


def main() -> None:
    runs = asked_runs(__doc__)
    model, head = specdec.load_pair(), specdec.load_pair(draft=specdec.Eagle3("embedded"))

    def drafting(draft: Any, *gammas: int) -> Turn:
        return Turn(specdec.Pair(model.target, draft, model.tokenizer), gammas)

    turns = {
        "2-layer draft": Turn(model, (3, 5, "auto")),
        "EAGLE-3 head": drafting(head.draft, 3, 5),
        "prompt lookup": drafting(specdec.PromptLookup(), 5),
        "suffix decoding": drafting(specdec.Suffix(), 5, 16),
        "token recycling": drafting(specdec.Recycling(), 3, 5),
        "prompt lookup, else the draft": drafting(specdec.Combined(LOOKUP, model.draft), 3, 5),
        "suffix decoding, else the draft": drafting(specdec.Combined(specdec.Suffix(), model.draft), 5),
    }
    text = f"`python -m benchmarks.drafters --runs {runs}`, 128 greedy tokens of each prompt.\n"
    for title, items in (
        ("The six example prompts:", read_prompts(EXAMPLES)),
        ("Three texts of this program, each begun a second time:", copies(model.tokenizer)),
    ):
        rows = []
        for (name, gamma), lane in in_turns(turns, items, runs).items():
            length = numbers.number(lane.figure("mean_acceptance_length"), 2)
            rows.append([name, str(gamma), *cells(lane), by_place([side.lane for side in lane.sides]), length])
        text += f"\n{title}\n\n" + table(
            ("Draft", "γ", *COLUMNS, "kept at each place, %", "tokens a target pass"), rows
        )
    text += "\n"
    for name, weights in (("2-layer draft", model.draft.models[0]), ("EAGLE-3 head", head.draft.head)):
        size = sum(weight.numel() * weight.element_size() for weight in weights.parameters())
        text += f"The {name} has {size / 1e6:.1f} MB of weights in memory.\n"
    write("drafters", text)


if __name__ == "__main__":
    main()
