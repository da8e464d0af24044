"""Measures what the embedded target's depth is worth to speculation: ``python -m benchmarks.depth``.

Eight of its twelve layers were split into two halves each (``training.train``, stage ``deepen``). Joining them
again (the mean of both halves' weights, the sum of their two output matrices) gives targets of 12 and 14 layers that
write nearly as well. Each target runs with the same draft, in turns: plain ``generate``, our loop without a draft, and
speculative decoding at γ 3 and 5. Prints medians (lowest-highest) over the runs: the speed-up over plain ``generate``,
what of it comes from speculation, c, v (docs/metrics.md), and the share of guesses that were kept.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaForCausalLM

import specdec
from benchmarks.in_turns import COLUMNS, Turn, asked_runs, cells, in_turns
from specdec.measure.prompts import EXAMPLES, read_prompts
from training.train import SPLIT

GAMMAS = (3, 5)
JOINED = {20: (), 14: set(SPLIT) - {6, 9}, 12: set(SPLIT)}  # by depth: which of the twelve layers are joined


@torch.no_grad()
def joined(model: LlamaForCausalLM, whole: set[int]) -> LlamaForCausalLM:
    """The embedded target, with the two halves of each layer of ``whole`` joined."""
    halves = [i for i in range(model.config.num_hidden_layers - len(SPLIT)) for _ in range(1 + (i in SPLIT))]
    groups: list[list[int]] = []
    for place, layer in enumerate(halves):
        if groups and layer in whole and halves[place - 1] == layer:
            groups[-1].append(place)
        else:
            groups.append([place])
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(groups)
    short = LlamaForCausalLM(config).eval()
    short.load_state_dict({k: v for k, v in model.state_dict().items() if ".layers." not in k}, strict=False)
    for layer, places in zip(short.model.layers, groups, strict=True):
        parts = [model.model.layers[place].state_dict() for place in places]
        for name, weight in layer.state_dict().items():
            total = sum(part[name] for part in parts)
            weight.copy_(total if name.endswith(("o_proj.weight", "down_proj.weight")) else total / len(parts))
    short.generation_config = model.generation_config
    return short


def main() -> None:
    runs = asked_runs(__doc__)
    whole = specdec.load_pair()
    turns = {
        str(depth): Turn(replace(whole, target=joined(whole.target, set(some))), GAMMAS)
        for depth, some in JOINED.items()
    }
    table = Table("layers", "γ", *COLUMNS, title="The embedded target with fewer layers, the same draft")
    for (depth, gamma), lane in in_turns(turns, read_prompts(EXAMPLES), runs).items():
        table.add_row(depth, str(gamma), *cells(lane))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
