"""Compare with transformers' own ways: ``python -m examples.compare_generate``.

Plain ``generate``, assisted generation, our loop without a draft and speculative decoding write the same text in turns.
Prints the medians of three runs: seconds, tokens/s, speed-up over plain ``generate``, the share of time saved, and
whether the text is that of plain ``generate``.
"""

from __future__ import annotations

from statistics import median

import specdec

PROMPT, RUNS = "Once upon a time", 3


def main() -> None:
    pair = specdec.load_pair()  # the embedded pair; or load_pair("gpt2-large", "gpt2")
    params = specdec.SamplingParams(max_new_tokens=96, ignore_eos=True)
    lanes = {
        "plain generate": lambda: specdec.generate(pair, PROMPT, params=params),
        "assisted generation": lambda: specdec.assisted(pair, PROMPT, gamma=5, params=params),
        "our loop, no draft": lambda: specdec.speculative(pair, PROMPT, gamma=0, params=params),
        "speculative": lambda: specdec.speculative(pair, PROMPT, gamma=5, params=params),
    }
    results = {name: [] for name in lanes}
    for run in range(RUNS + 1):  # the first run warms up and does not count
        for name, lane in lanes.items():
            # ``driven`` runs every lane on one thread, so that their times compare.
            result = specdec.collect(specdec.driven(lane()), pair.tokenizer)
            if run:
                results[name].append(result)

    plain = results["plain generate"]
    print(f"{'':20} {'seconds':>8} {'tokens/s':>9} {'speed-up':>9} {'time saved':>11}  same text")
    for name, runs in results.items():
        rates = [run.metrics.tokens_per_second for run in runs]  # after the first token
        # Run by run, so that a slow moment of the machine falls on both sides of a ratio.
        gain = median(rate / p.metrics.tokens_per_second for rate, p in zip(rates, plain, strict=True))
        seconds = median(run.metrics.prefill_seconds + run.metrics.decode_seconds for run in runs)
        same = "yes" if runs[0].token_ids == plain[0].token_ids else "no"
        print(f"{name:20} {seconds:8.2f} {median(rates):9.1f} {gain:8.2f}x {1 - 1 / gain:11.0%}  {same}")
    print(f"\n{PROMPT}{results['speculative'][0].text}")


if __name__ == "__main__":
    main()
