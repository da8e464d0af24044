"""Compare with transformers' own ways: ``python -m examples.compare_generate``.

Plain ``generate``, assisted generation, our loop without a draft and speculative decoding write the same text in turns.
Prints one of three runs, that with the median speed-up of speculative decoding: seconds, tokens/s, speed-up over plain
``generate``, the share of time saved, and whether the text is that of plain ``generate``.
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

    # Medians of each figure would be of different runs, and the ratio of two of them would be another speed-up.
    gains = [
        ours.metrics.tokens_per_second / plain.metrics.tokens_per_second  # after the first token
        for ours, plain in zip(results["speculative"], results["plain generate"], strict=True)
    ]
    shown = gains.index(median(gains))
    plain = results["plain generate"][shown]
    print(f"{'':20} {'seconds':>8} {'tokens/s':>9} {'speed-up':>9} {'time saved':>11}  same text")
    for name, runs in results.items():
        lane = runs[shown].metrics
        seconds, rate = lane.prefill_seconds + lane.decode_seconds, lane.tokens_per_second
        gain = rate / plain.metrics.tokens_per_second
        same = "yes" if runs[shown].token_ids == plain.token_ids else "no"
        print(f"{name:20} {seconds:8.2f} {rate:9.1f} {gain:8.2f}x {1 - 1 / gain:11.0%}  {same}")
    print(f"\n{PROMPT}{results['speculative'][0].text}")


if __name__ == "__main__":
    main()
