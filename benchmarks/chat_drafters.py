"""Measures drafts without a second model for a chat model: ``python -m benchmarks.chat_drafters --target FOLDER``.

Prompt lookup (also at γ auto), suffix decoding, token recycling and a combination write 64 greedy tokens of each
answer, in turns with plain ``generate`` and our loop without a draft. The prompts are chat messages of the kinds of
Spec-Bench (Xia et al. 2401.07851): writing, a summary, a question with its text, code to change, sums; and a letter to
correct. Puts two tables into docs/performance.md: of the letter and the code, where an answer repeats its prompt, and
of the others.
"""

from __future__ import annotations

from dataclasses import replace

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import COLUMNS, asked, cells
from specdec.drafters.combined import LOOKUP
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import Choice, PromptItem
from specdec.measure.summary import find, summarise
from specdec.measure.trials import trials
from specdec.report import numbers

TOKENS = 64
TEXT = (
    "The lighthouse on the northern cape was built in 1871. For ninety years a keeper lived there with his family. He "
    "lit the lamp each evening and wrote the weather into a book. In 1961 the lamp was changed for one that lights "
    "itself, and the last keeper left. The book is now in the museum of the harbour."
)
CODE = (
    "def total(prices, tax):\n    result = 0\n    for price in prices:\n        result = result + price\n"
    "    return result + result * tax\n"
)
REPEATING = {
    "letter": "Correct the spelling of this letter and write it again, with no other change: Dear Anna, thank you for "
    "your leter. We was very glad to here that you arived safely. The children ask every day when you will com back.",
    "code": f"Write this Python function again and rename the variable result to amount:\n\n{CODE}",
}
OTHERS = {
    "writing": "Write a short post about a first visit to the sea.",
    "summary": f"Summarise this text in two sentences: {TEXT}",
    "question": f"{TEXT}\n\nWhere is the keeper's book today, and what did he write into it?",
    "sums": "A box has 12 eggs. Tom buys 3 boxes and uses 7 eggs. How many eggs are left? Explain each step.",
}


def main() -> None:
    given = asked(__doc__, "target")
    if not given.target:
        raise SystemExit("Name the chat model's folder or hub id with --target.")
    pair = specdec.load_pair(given.target, specdec.PromptLookup())
    drafts = {
        "prompt lookup": (specdec.PromptLookup(), (5, "auto")),
        "suffix decoding": (specdec.Suffix(), (5,)),
        "token recycling": (specdec.Recycling(), (3,)),
        "prompt lookup, else token recycling": (specdec.Combined(LOOKUP, specdec.Recycling()), (3,)),
    }
    text = f"`python -m benchmarks.chat_drafters --runs {given.runs}`, {TOKENS} greedy tokens of each answer.\n"
    for title, prompts in (("Answers that repeat their prompt:", REPEATING), ("Other answers:", OTHERS)):
        items = tuple(PromptItem(name, "chat", prompt) for name, prompt in prompts.items())
        found: dict[str, list[Trial]] = {name: [] for name in ("", *drafts)}
        for run in range(given.runs):
            found[""] += measured(pair, items, (BASELINE, LOOP), run)
            for name, (draft, gammas) in drafts.items():
                configs = tuple(LaneConfig("speculative", gamma) for gamma in gammas)
                found[name] += measured(specdec.Pair(pair.target, draft, pair.tokenizer), items, configs, run)
        rows = []
        for name, (_, gammas) in drafts.items():
            for gamma in gammas:
                lane = find(summarise([*found[""], *found[name]]), LaneConfig("speculative", gamma))
                length = numbers.number(lane.figure("mean_acceptance_length"), 2)
                rows.append([name, str(gamma), *cells(lane), length])
        text += f"\n{title}\n\n" + table(("Draft", "γ", *COLUMNS, "tokens a target pass"), rows)
    write("chat_drafters", text)


def measured(
    pair: specdec.Pair, items: tuple[PromptItem, ...], configs: tuple[LaneConfig, ...], run: int
) -> list[Trial]:
    """One call of each config on each prompt, as those of the run ``run``."""
    params = specdec.SamplingParams(TOKENS, seed=0, ignore_eos=True)
    plan = Plan(items, configs, params, 1, Choice(chat=True))
    return [replace(trial, run=run) for trial in trials(pair, plan) if trial]


if __name__ == "__main__":
    main()
