"""Measures what recurrent state costs speculation: ``python -m benchmarks.hybrid_cost``.

Two targets of the same size have random weights. One has attention layers only (Qwen3); in the other, three layers of
four have recurrent state (Qwen3.5). Each has a draft of one layer whose guesses are right with a set probability
(``specdec.drafters.synthetic``). Our loop without a draft and speculative decoding run in turns at each probability.
Prints medians over the runs: the speed-up over our loop, the tokens that a round reads again, and the time of copying
the state and of reading again, in target passes over one token. Puts the table into docs/performance.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import median

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, Qwen3_5TextConfig, Qwen3Config

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import asked_runs
from specdec.drafters.synthetic import SyntheticDraft
from specdec.measure.metrics import Metrics, compute_metrics

AGREEMENTS = (0.3, 0.5, 0.7, 0.8, 0.9)
GAMMA, TOKENS = 4, 96
SIZES = dict(
    vocab_size=4096, hidden_size=512, intermediate_size=1408, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
    max_position_embeddings=1024, bos_token_id=None, eos_token_id=None, pad_token_id=None,
)  # fmt: skip
STATE = dict(
    linear_num_key_heads=8, linear_num_value_heads=8, linear_key_head_dim=64, linear_value_head_dim=64,
)  # fmt: skip


def models(family: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """A target of eight layers and a draft of one, random."""
    torch.manual_seed(0)
    found = []
    for layers in (8, 1):
        if family == "attention":
            config = Qwen3Config(**SIZES, num_hidden_layers=layers)
        else:
            kinds = (["linear_attention"] * 3 + ["full_attention"]) * 2 if layers > 1 else ["full_attention"]
            config = Qwen3_5TextConfig(**SIZES, **STATE, num_hidden_layers=layers, layer_types=kinds)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        model.generation_config = GenerationConfig(eos_token_id=None)
        found.append(model)
    return tuple(found)


def calls(
    target: torch.nn.Module, draft: torch.nn.Module, agreement: float, run: int
) -> Iterator[tuple[str, Metrics, float]]:
    """One call of each lane: its name, its figures and the tokens read again a round."""
    prompt_ids = torch.arange(3, 19)
    params = specdec.SamplingParams(max_new_tokens=TOKENS, seed=run)
    plain = specdec.collect(specdec.speculative(specdec.Pair(target), prompt_ids, gamma=0, params=params))
    given = {tuple(prompt_ids.tolist()): tuple(plain.token_ids)}
    pair = specdec.Pair(target, SyntheticDraft(draft, agreement=agreement, continuations=given))
    for name, gamma in (("loop", 0), ("speculative", GAMMA), ("auto", "auto")):
        events = list(specdec.speculative(pair, prompt_ids, gamma=gamma, params=params))
        rounds = [event for event in events if isinstance(event, specdec.Round)][1:]
        reread = sum(event.reread for event in rounds) / len(rounds)
        yield name, compute_metrics(events), reread


def main() -> None:
    runs = asked_runs(__doc__)
    pairs = {family: models(family) for family in ("attention", "recurrent")}
    found: dict[tuple[str, float], dict[str, list]] = defaultdict(lambda: defaultdict(list))
    for run in range(-1, runs):  # the first is a warm-up
        for agreement in AGREEMENTS:
            for family, (target, draft) in pairs.items():
                for name, lane, reread in calls(target, draft, agreement, max(run, 0)):
                    if run >= 0:
                        found[family, agreement][name].append((lane, reread))
    rows = []
    for (family, agreement), lanes in sorted(found.items()):
        loop = [lane for lane, _ in lanes["loop"]]
        single = median(lane.verify_seconds / lane.target_passes for lane in loop)
        gains = {
            name: [
                lane.tokens_per_second / base.tokens_per_second
                for (lane, _), base in zip(lanes[name], loop, strict=True)
            ]
            for name in ("speculative", "auto")
        }
        ours = lanes["speculative"]
        reread = median(count for _, count in ours)
        copying = median(lane.state_seconds / lane.target_passes for lane, _ in ours) / single
        known = [lane.reread_seconds / lane.target_passes for lane, _ in ours if lane.reread_seconds is not None]
        again = f"{median(known) / single:.2f}" if known else "not known"
        spread = (
            f"{median(gains['speculative']):.2f}x ({min(gains['speculative']):.2f}-{max(gains['speculative']):.2f})"
        )
        cells = (family, agreement, spread, f"{median(gains['auto']):.2f}x", f"{reread:.1f}", f"{copying:.2f}", again)
        rows.append([str(cell) for cell in cells])
    columns = ("Target", "agreement", "γ 4 over our loop", "γ auto", "tokens read again", "copying", "reading again")
    about = f"`python -m benchmarks.hybrid_cost --runs {runs}`, one thread.\n\n"
    write("hybrid_cost", about + table(columns, rows))


if __name__ == "__main__":
    main()
