"""What other tools call the figures of this one, with an example whose figures are computed by ``compute_metrics``.

Read in the code and documents of vLLM 0.32, SGLang, llama.cpp and TensorRT-LLM of autumn 2026, and in the documents of
AIPerf 0.14 and of LM Studio's SDK.
"""

from __future__ import annotations

from specdec.events import DraftToken, Event, Finished, Round
from specdec.measure.metrics import Metrics, compute_metrics

TOOLS = ("vLLM", "SGLang", "llama.cpp", "TensorRT-LLM", "LM Studio", "AIPerf")
KEPT = (5, 2, 0, 5, 3)  # guesses kept in each round of the example, of GUESSES made
GUESSES = 5
NONE = "\u2013"

# The figure here, its value in the example, and its name in each of ``TOOLS``; "" where a tool has none.
NAMES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("rounds", "rounds", (
        "`num_drafts`, `num_spec_steps`", "`spec_verify_ct`", "`num_drafts`", "", "", "`num_spec_steps`",
    )),
    ("guesses made", "drafted", (
        "`num_draft_tokens`", "", "`draft_n`", "", "`totalDraftTokensCount`", "`num_draft_tokens`",
    )),
    ("guesses kept", "accepted", (
        "`num_accepted_tokens`", "", "`draft_n_accepted`", "", "`acceptedDraftTokensCount`",
        "`num_accepted_draft_tokens`",
    )),
    ("tested guesses kept", "alpha", ("", "", "", "", "", "")),
    ("guesses kept, untested ones included", "rate", (
        "draft acceptance rate", "`spec_accept_rate`", "draft acceptance rate", "", "", "draft acceptance rate",
    )),
    ("tokens per target pass", "length", (
        "mean acceptance length", "`spec_accept_length`", "", "`avg_decoded_tokens_per_iter`", "",
        "mean acceptance length",
    )),
    ("kept, of all drafts, by place", "by_place", (
        "acceptance rate by position (`num_accepted_tokens_per_pos`)", "", "", "", "", "",
    )),
    ("kept, of tested, by place", "of_tested", ("", "", "", "", "", "")),
    ("rounds by guesses kept, 0 to \u03b3", "histogram", (
        "`acceptance_histogram`", "`spec_accept_histogram`", "", "", "", "acceptance histogram",
    )),
)  # fmt: skip


def example() -> Metrics:
    """The figures of the example: rounds of ``GUESSES`` guesses, of which ``KEPT`` are kept."""
    rounds: list[Event] = [_round(0, ())]
    for index, kept in enumerate(KEPT, start=1):
        statuses = ["accepted"] * kept + ["rejected"] * (kept < GUESSES)
        rounds.append(_round(index, tuple(statuses + ["discarded"] * (GUESSES - len(statuses)))))
    found = compute_metrics([*rounds, Finished("length", 0.1, 1.0)])
    assert found is not None
    return found


def _round(index: int, statuses: tuple[str, ...]) -> Round:
    draft = tuple(DraftToken(0, status, *[None] * 6) for status in statuses)  # type: ignore[arg-type]
    kept = statuses.count("accepted")
    return Round(index, draft, 0, "target", (0,) * (kept + 1), None, None, 0.1 * (index + 1))


def other_names() -> str:
    """The table of names in Markdown, with the example above it."""
    found = example()
    rounds = len(KEPT)
    places = range(GUESSES)
    values = {
        "rounds": str(rounds),
        "drafted": str(found.drafted),
        "accepted": str(found.accepted),
        "alpha": f"{found.accepted} / {sum(found.tested_at)} = {100 * (found.alpha or 0):.0f} %",
        "rate": f"{found.accepted} / {found.drafted} = {100 * (found.draft_acceptance_rate or 0):.0f} %",
        "length": f"{found.decode_tokens} / {rounds} = {found.mean_acceptance_length:.1f}",
        "by_place": ", ".join(f"{found.kept_at[at]}/{rounds}" for at in places),
        "of_tested": ", ".join(f"{found.kept_at[at]}/{found.tested_at[at]}" for at in places),
        "histogram": ", ".join(str(KEPT.count(kept)) for kept in range(GUESSES + 1)),
    }
    head = f"| Here | In the example | {' | '.join(TOOLS)} |\n|{' --- |' * (2 + len(TOOLS))}\n"
    rows = "".join(
        f"| {name} | {values[key]} | {' | '.join(other or NONE for other in others)} |\n" for name, key, others in NAMES
    )
    kept = ", ".join(map(str, KEPT))
    return (
        f"In the example, {rounds} rounds make {GUESSES} guesses each and keep {kept} of them. Tools count the same "
        "events under other names, and some\ncount other events under the same name: a *draft acceptance rate* divides "
        "by all guesses, \u03b1 by those that were tested.\n\n" + head + rows
    )
