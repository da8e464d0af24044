"""Tell one round of speculative decoding step by step: ``python -m examples.one_round [PROMPT]``.

The embedded pair writes sampled text until the target rejects a guess. That round is printed: the draft, the target's
single pass, the test of each guess, the outcome, and what both caches keep.
"""

from __future__ import annotations

import sys

import specdec

GAMMA = 4


def main(prompt: str = "Once upon a time") -> None:
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=64, temperature=1.0, seed=3)

    def text(*ids: int) -> str:
        return repr(pair.tokenizer.decode(ids))

    committed: list[int] = []
    for event in specdec.speculative(pair, prompt, gamma=GAMMA, params=params):
        if isinstance(event, specdec.Started):
            committed = list(event.prompt_ids)
        elif isinstance(event, specdec.Round):
            if event.token_kind == "correction":
                break
            committed += event.committed_ids
    else:
        print("The target accepted every guess of this text; try another prompt.")
        return

    print(f"Before the round, {len(committed)} tokens are committed. The text ends with {text(*committed[-8:])}.")
    print("The target's cache holds all of them but the last, which its next pass reads.\n")

    drafted = [token.token_id for token in event.draft]
    print(f"1. The draft model writes {len(drafted)} guesses, one pass each ({1e3 * event.draft_seconds:.1f} ms):")
    print(f"   {' | '.join(text(token) for token in drafted)}\n")

    print(f"2. The target reads the last committed token and the guesses in one pass of {len(drafted) + 1} rows")
    print(f"   ({1e3 * event.verify_seconds:.1f} ms). Row i gives the target's distribution p at guess i.\n")

    print("3. The guesses are tested in order. A guess x is kept if a uniform number u is below p(x) / q(x):")
    print(f"   {'guess':>12}  {'q(x)':>6}  {'p(x)':>6}  {'p / q':>6}  {'u':>6}  outcome")
    for token in event.draft:
        if token.status == "discarded":
            print(f"   {text(token.token_id):>12}  {token.draft_prob:6.3f}  {'':22}  not tested")
            continue
        p, q = token.target_prob, token.draft_prob
        print(f"   {text(token.token_id):>12}  {q:6.3f}  {p:6.3f}  {p / q:6.2f}  {token.draw:6.3f}  {token.status}")

    print("\n4. After the rejection the target draws a token from the residual, norm(max(0, p - q)). Its top three:")
    for token_id, probability in event.decision.residual[:3]:
        print(f"   {text(token_id):>12}  {probability:6.3f}")
    print(f"   It draws {text(event.token_id)}, the correction.\n")

    kept = len(committed) + len(event.committed_ids)
    print(f"5. The round commits {len(event.committed_ids)} tokens: {text(*event.committed_ids)}.")
    print(
        f"   Now {kept} tokens are committed, and the caches are cut back to {kept - 1} tokens: the rejected guess and"
    )
    print("   those after it are forgotten.")


if __name__ == "__main__":
    main(*sys.argv[1:2])
