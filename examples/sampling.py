"""Sample with speculative decoding: ``python -m examples.sampling``.

Temperature and top-k apply to both models, and the sampled text has the target's distribution. For several settings,
prints the share of tested guesses that were kept, the share to be expected (the mean of the sum of min(p, q) over the
vocabulary: Leviathan et al. 2211.17192, Corollary 3.6), and the tokens a target pass.
"""

from __future__ import annotations

import specdec

PROMPTS = ("Once upon a time", '"Can we go to the park?" asked Tom.')


def main() -> None:
    pair = specdec.load_pair()
    print(f"{'temperature':>11} {'top-k':>6} {'kept':>6} {'expected':>9} {'tokens a pass':>14}")
    for temperature, top_k in ((0.5, 0), (1.0, 0), (1.0, 20), (1.5, 0), (1.5, 20)):
        params = specdec.SamplingParams(96, temperature=temperature, top_k=top_k, seed=0, ignore_eos=True)
        runs = [specdec.collect(specdec.speculative(pair, prompt, params=params), pair.tokenizer) for prompt in PROMPTS]
        found = [run.metrics for run in runs]
        kept = sum(m.accepted for m in found) / sum(m.accepted + m.rejected for m in found)
        expected = sum(sum(m.overlap_at) for m in found) / sum(sum(m.tested_at) for m in found)
        length = sum(m.mean_acceptance_length * m.whole_passes for m in found) / sum(m.whole_passes for m in found)
        print(f"{temperature:11} {top_k or 'off':>6} {kept:6.0%} {expected:9.0%} {length:14.2f}")
    print(f"\nAt temperature 1.5 and top-k 20:\n{PROMPTS[0]}{runs[0].text}")


if __name__ == "__main__":
    main()
