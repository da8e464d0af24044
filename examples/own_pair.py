"""Try a pair of your own: ``python -m examples.own_pair TARGET [DRAFT] [PROMPT]``.

TARGET is a hub id or a folder. DRAFT is one too, or "prompt-lookup" (the default), "suffix" or "early-exit:4". Prints
why the pair is refused, or whether speculation pays with it and what a round costs.
"""

from __future__ import annotations

import sys
from statistics import median

import specdec

GAMMA, RUNS = 5, 3


def main(target: str, draft: str = "prompt-lookup", prompt: str = "def add(a, b):\n") -> None:
    try:
        pair = specdec.load_pair(target, draft)
    except specdec.SpecdecError as error:  # says what was found and what to do
        raise SystemExit(f"This pair does not work. {error}") from error
    params = specdec.SamplingParams(max_new_tokens=64, ignore_eos=True)

    def measured(gamma: int) -> specdec.Result:
        return specdec.collect(specdec.driven(specdec.speculative(pair, prompt, gamma=gamma, params=params)))

    measured(GAMMA)  # warms up
    loops, ours = zip(*((measured(0), measured(GAMMA)) for _ in range(RUNS)), strict=True)
    assert ours[0].token_ids == loops[0].token_ids, "greedy text is the target's own"
    pairs = [(one.metrics, other.metrics) for one, other in zip(loops, ours, strict=True)]
    gains = [other.tokens_per_second / one.tokens_per_second for one, other in pairs]
    print(
        f"Speculation at γ {GAMMA}: {median(gains):.2f}x our loop without a draft ({min(gains):.2f}-{max(gains):.2f})"
    )
    one, found = pairs[gains.index(median(gains))]  # all other figures are of this run, so that they fit together
    if not found.drafted:
        print("The draft made no guess here.")
        return
    # Costs are counted in target passes over one token: c is the time of a draft pass, v that of checking a round.
    one_token = one.verify_seconds / one.target_passes
    c = found.draft_seconds / found.drafted / one_token
    v = found.verify_seconds / found.target_passes / one_token
    guesses = found.drafted / found.target_passes
    print(f"Guesses kept, of those tested: {found.alpha:.0%}")
    print(f"A target pass writes {found.mean_acceptance_length:.2f} tokens.")
    print(f"A round costs {guesses * c + v:.2f} target passes: {guesses:.1f} guesses at c = {c:.2f}, and v = {v:.2f}.")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*sys.argv[1:4])
