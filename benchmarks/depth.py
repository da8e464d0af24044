"""Measures what the embedded target's depth is worth to speculation: ``python -m benchmarks.depth``.

Eight of its twelve layers were split into two halves each (``specdec.embedded.train``, stage ``deepen``). Joined again
(the mean of both halves' weights, their two output matrices summed) they give targets of 12 and 14 layers that write
nearly as well. Each target runs with the same draft: plain ``generate``, our loop without a draft, and speculative
decoding at γ 3 and 5, targets in turns. Prints medians (lowest-highest) over the runs: the speed-up over plain
``generate``, speculation's own share, the cost of a guess (c), how much more a pass over a round's rows costs than one
over a token (v), and what share of the guesses is kept.
"""

from __future__ import annotations

import argparse
import copy
from collections import defaultdict
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table
from transformers import LlamaForCausalLM

import specdec
from specdec.cli.arguments import leave_a_core
from specdec.embedded.train import SPLIT
from specdec.lanes.table import BASELINE, LOOP, Entrant
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.summary import find, summarise
from specdec.measure.trials import trials
from specdec.models.pair import silence_libraries
from specdec.report import words

GAMMAS = (3, 5)
JOINED = {20: (), 14: set(SPLIT) - {6, 9}, 12: set(SPLIT)}  # which of the twelve layers are one again


@torch.no_grad()
def joined(model: LlamaForCausalLM, whole: set[int]) -> LlamaForCausalLM:
    """The embedded target with the two halves of each layer of ``whole`` as one layer."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    leave_a_core()
    silence_libraries()
    whole = specdec.load_pair()
    pairs = {depth: replace(whole, target=joined(whole.target, set(layers))) for depth, layers in JOINED.items()}
    entrants = (BASELINE, LOOP, *(Entrant("speculative", gamma) for gamma in GAMMAS))
    params = specdec.SamplingParams(128, seed=0, ignore_eos=True)
    plan = Plan(tuple(read_prompts(EXAMPLES)), entrants, params, runs=1)
    found: dict[int, list[Trial]] = defaultdict(list)
    for run in range(runs):
        for depth, pair in pairs.items():
            found[depth] += [replace(trial, run=run) for trial in trials(pair, plan) if trial]
    columns = ("layers", "γ", "over plain generate", "speculation's share", "c", "v", "kept")
    table = Table(*columns, title="The embedded target with fewer layers, the same draft")
    for depth, some in found.items():
        summaries = summarise(some)
        for gamma in GAMMAS:
            lane = find(summaries, Entrant("speculative", gamma))
            costs = [[getattr(side, name) for side in lane.sides] for name in ("guess_cost", "verify_growth")]
            table.add_row(
                str(depth),
                str(gamma),
                words.times(lane.gains),
                words.times([side.speculation for side in lane.sides]),
                *(f"{sorted(values)[len(values) // 2]:.2f}" for values in costs),
                words.percent(lane.middle("alpha")),
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
