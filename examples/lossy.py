"""See what top-k acceptance gains and loses: ``python -m examples.lossy``.

Top-k acceptance keeps a guess that is among the target's k most likely tokens. It keeps more guesses and is not
lossless. For several k this prints the acceptance rate and the tokens a target pass, which is the gain. It also prints
how many tokens equal plain decoding before the first difference, and the target's mean log-probability of a written
token, which is the loss.
"""

from __future__ import annotations

import torch

import specdec

PROMPT = '"Can we go to the park?" asked Tom.'


def main() -> None:
    pair = specdec.load_pair()
    params = specdec.SamplingParams(max_new_tokens=96, ignore_eos=True)
    plain = specdec.collect(specdec.generate(pair, PROMPT, params=params))
    print(f"{'acceptance':>10} {'kept':>6} {'tokens a pass':>14} {'same tokens':>12} {'log-probability':>16}")
    for k in (None, 2, 3, 5, 10):
        how = {} if k is None else {"acceptance": "top-k", "accept_top_k": k}
        found = specdec.collect(specdec.speculative(pair, PROMPT, params=params, **how), pair.tokenizer)
        both = enumerate(zip(found.token_ids, plain.token_ids, strict=True))
        same = next((place for place, (ours, theirs) in both if ours != theirs), len(found.token_ids))
        name, m = "lossless" if k is None else f"top-{k}", found.metrics
        score = log_probability(pair, found.token_ids)
        print(f"{name:>10} {m.alpha:6.0%} {m.mean_acceptance_length:14.2f} {same:12} {score:16.2f}")
    print(f"\nTop-10 acceptance writes:\n{PROMPT}{found.text}")


@torch.no_grad()
def log_probability(pair: specdec.Pair, token_ids: list[int]) -> float:
    """The target's mean log-probability of the written tokens, each after all tokens before it."""
    prompt_ids = pair.encode(PROMPT)[0].tolist()
    logits = pair.target(torch.tensor([prompt_ids + token_ids])).logits[0]
    logs = logits[len(prompt_ids) - 1 : -1].log_softmax(-1)
    return float(logs.gather(1, torch.tensor(token_ids)[:, None]).mean())


if __name__ == "__main__":
    main()
