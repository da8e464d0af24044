"""The figures of the model card: ``python -m training.evaluate --corpus DIR``.

It prints these tables as Markdown:

- the sizes of the models
- the held-out loss of each domain
- how much the loss rises without each of the target's layers
- whether the example prompts occur in the training text
- acceptance by domain, greedy and at temperature 1, and the share of repeated 4-grams
- the loss by position, up to the full context
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import torch
import torch.nn.functional as F

import specdec
from specdec.measure.metrics import repeated_ngrams
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.pair import silence_libraries
from specdec.report import numbers
from training import corpus
from training.train import CONTEXT, WINDOW, Windows

LOSS_WINDOWS = 96
ACCEPTANCE_PROMPTS = 12


@torch.inference_mode()
def loss(model: torch.nn.Module, ids: torch.Tensor, states: torch.Tensor | None = None) -> torch.Tensor:
    """Nats a token at each position, averaged over the rows: (length,) from (rows, length + 1).

    ``states`` (rows, length, width) go into the first layer instead of the embeddings.
    """
    states = model.get_input_embeddings()(ids[:, :-1]) if states is None else states
    losses = []
    for rows, inputs in zip(ids.split(8), states.split(8), strict=True):
        logits = model(inputs_embeds=inputs, use_cache=False).logits.float()
        losses.append(
            F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(len(rows), -1)
        )
    return torch.cat(losses).mean(0)


def held_out_windows(windows: Windows, name: str, length: int, count: int) -> torch.Tensor:
    """Evenly spaced windows of a domain's held-out text, (rows, length + 1)."""
    stream = windows.streams[name]
    count = max(1, min(count, (len(stream) - 1) // length))
    starts = torch.linspace(0, len(stream) - length - 1, count).long().tolist()
    return torch.stack([stream[s : s + length + 1] for s in starts])


@torch.inference_mode()
def leave_one_out(target: torch.nn.Module, ids: torch.Tensor) -> list[float]:
    """Held-out loss with each layer left out, minus the loss with all of them; nats a token."""
    layers = target.model.layers
    # What goes into each layer; those before the one that is left out need not run again.
    inputs = target.model(ids[:, :-1], use_cache=False, output_hidden_states=True).hidden_states

    def loss_from(first: int, states: torch.Tensor) -> float:
        target.model.layers = layers[first:]
        return loss(target, ids, states).mean().item()

    last = len(layers) - 1
    whole = loss_from(last, inputs[last])
    costs = [loss_from(i + 1, inputs[i]) - whole for i in range(len(layers))]
    target.model.layers = layers
    return costs


def acceptance(pair: specdec.Pair, prompts: list, temperature: float, gamma: int = 5) -> tuple[float, float, float]:
    """Over all prompts: alpha, tokens a target pass, and the mean share of repeated 4-grams in 128 new tokens."""
    accepted = tested = 0
    lengths, repeats = [], []
    for seed, prompt in enumerate(prompts):
        params = specdec.SamplingParams(max_new_tokens=128, temperature=temperature, seed=seed, ignore_eos=True)
        result = specdec.collect(specdec.speculative(pair, prompt, gamma=gamma, params=params))
        accepted += result.metrics.accepted
        tested += result.metrics.accepted + result.metrics.rejected
        lengths.append(result.metrics.mean_acceptance_length)
        repeats.append(repeated_ngrams(result.token_ids))
    return accepted / tested, statistics.mean(lengths), statistics.mean(repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    arguments = parser.parse_args()
    silence_libraries()
    pair = specdec.load_pair()
    documents, held_out = corpus.load(arguments.corpus)
    windows = Windows(held_out, pair.tokenizer, torch.device("cpu"))

    print("| | target | draft |\n|---|---|---|")
    facts = pair.describe()
    for name in ("layers", "parameters"):
        print(f"| {name} | {facts['target'][name]:,} | {facts['draft'][name]:,} |")
    folders = [Path(m.config.name_or_path) for m in (pair.target, pair.draft.model)]
    sizes = [sum(f.stat().st_size for f in folder.iterdir()) / 1e6 for folder in folders]
    print(f"| MB on disk | {sizes[0]:.1f} | {sizes[1]:.1f} |\n")

    print("Held-out loss, nats a token:\n\n| domain | target | draft | difference |\n|---|---|---|---|")
    for name in windows.streams:
        ids = held_out_windows(windows, name, WINDOW, LOSS_WINDOWS)
        ours, theirs = loss(pair.target, ids).mean().item(), loss(pair.draft.model, ids).mean().item()
        print(f"| {name} | {ours:.3f} | {theirs:.3f} | {theirs - ours:.3f} |", flush=True)

    ids = torch.cat([held_out_windows(windows, name, WINDOW, 16) for name in ("story", "children", "python")])
    costs = leave_one_out(pair.target, ids)
    print("\nNats a token that leaving out one target layer costs (story, children, python):\n")
    print(", ".join(f"layer {i + 1}: {cost:.3f}" for i, cost in enumerate(costs)) + "\n", flush=True)

    text = "\n".join(doc for name in corpus.MIXTURE if name != "copy" for doc in documents[name])
    rows = read_prompts(EXAMPLES)
    print("Example prompts, 128 greedy tokens each (an end-of-text token does not end them), gamma 5:\n")
    print("| prompt | in the training text | acceptance | tokens a pass | repeated 4-grams |\n|---|---|---|---|---|")
    for row in rows:
        alpha, length, repeated = acceptance(pair, [row.prompt], 0.0)
        found = "yes" if row.prompt in text else "no"
        print(
            f"| {row.name} | {found} | {numbers.percent(alpha)} | {length:.2f} | {numbers.percent(repeated)} |",
            flush=True,
        )

    print(f"\nAcceptance on {ACCEPTANCE_PROMPTS} held-out openings of 48 tokens a domain, 128 new tokens, gamma 5:\n")
    print("| domain | temperature | acceptance | tokens a pass | repeated 4-grams |\n|---|---|---|---|---|")
    for name in ("story", "children", "python", "copy"):
        starts = windows.starts[name][:: max(1, len(windows.starts[name]) // ACCEPTANCE_PROMPTS)][:ACCEPTANCE_PROMPTS]
        prompts = [windows.streams[name][s : s + 48] for s in starts]
        for temperature in (0.0, 1.0):
            alpha, length, repeated = acceptance(pair, prompts, temperature)
            print(
                f"| {name} | {temperature:g} | {numbers.percent(alpha)} | {length:.2f} | {numbers.percent(repeated)} |",
                flush=True,
            )

    late = loss(pair.target, held_out_windows(windows, "tales", CONTEXT, 8))
    print("\nTarget loss on the held-out tales by position, nats a token: ", end="")
    edges = (0, 256, 1024, 2048, CONTEXT)
    print(", ".join(f"{a}-{b}: {late[a:b].mean():.2f}" for a, b in zip(edges, edges[1:], strict=False)))


if __name__ == "__main__":
    main()
