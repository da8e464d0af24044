"""Compare plain decoding with speculative decoding: ``python examples/compare.py``. Public names only, no network."""

from __future__ import annotations

from itertools import chain

import specdec


def main() -> None:
    pair = specdec.load_pair()  # the embedded pair; or load_pair("gpt2-large", "gpt2")
    params = specdec.SamplingParams(max_new_tokens=64)
    prompt = "Once upon a time"
    lanes = {
        "plain": specdec.generate(pair, prompt, params=params),
        "speculative": specdec.speculative(pair, prompt, gamma=5, params=params),
    }
    for name, lane in lanes.items():
        # driven runs each lane on the one decoding thread, so that their times compare.
        result = specdec.collect(chain.from_iterable(specdec.driven(lane)), pair.tokenizer)
        print(f"{name}: {result.metrics.tokens_per_second:.1f} tokens/s\n{result.text}\n")


if __name__ == "__main__":
    main()
