"""Checks the gains that ``specdec load`` computes against a batched loop: ``python -m benchmarks.batched_loop``.

The loop decodes B sequences greedily with transformers' own passes, plainly and speculatively. Each sequence keeps its
own number of guesses. What a sequence rejected stays in the cache behind a mask until no sequence needs its columns. So
this loop pays for a difference that the computed gains leave out. Two kinds of batches are measured: B copies of one
prompt, which all keep the same guesses, and B different prompts of equally many tokens. For the computed gains, passes
are timed in turns with the loops, and the acceptance is that of our loop on the same prompts, one by one. Seconds are
processor time on one thread, so that other programs on the machine count less. Puts the table into docs/performance.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import PreTrainedModel

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import asked_runs
from specdec.engine.request import machine_facts
from specdec.events import SamplingParams
from specdec.forward.hf_cache import new_cache
from specdec.measure.batched_passes import draft_model_of, pass_times
from specdec.measure.load import kept_by_place, load_gains
from specdec.measure.metrics import pool
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.measure.result import collect
from specdec.models.pair import Pair
from specdec.report import numbers

BATCHES, GAMMA = (1, 4, 8), 3
PROMPT, NEW = 32, 96  # tokens of a sequence


def processor_seconds(device: torch.device, work: Callable[[], object]) -> float:
    """Processor time of this thread, which runs all of a pass."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


class Batch:
    """One model's cache for B sequences whose rejected tokens are masked."""

    def __init__(self, model: PreTrainedModel, ids: torch.Tensor):
        self._model, self._cache = model, new_cache(model)
        self._mask = torch.ones_like(ids)
        self.logits = model(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1).logits

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, used: torch.Tensor | None = None) -> torch.Tensor:
        """The most likely next ids (B, w) after each of ``ids`` (B, w); ``used`` (B, w) is 0 for padding."""
        self._mask = torch.cat([self._mask, torch.ones_like(ids) if used is None else used], dim=1)
        mask = None if self._mask.all() else self._mask
        out = self._model(
            input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=self._cache, use_cache=True
        )
        return out.logits.argmax(-1)

    def forget(self, kept: torch.Tensor, width: int) -> None:
        """Keep of the last ``width`` columns the first ``kept`` (B,) of each sequence."""
        self._mask[:, -width:] *= torch.arange(width) < kept[:, None]
        unused = width - int(kept.max())
        self._cache.crop(-unused)
        if unused:
            self._mask = self._mask[:, :-unused]


@torch.inference_mode()
def plain(target: PreTrainedModel, ids: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Write ``NEW`` tokens after ``ids`` (B, n): (B, NEW), and the seconds of all but the first."""
    batch = Batch(target, ids)
    found = [batch.logits.argmax(-1)]
    began = time.thread_time()
    for place in range(ids.shape[1], ids.shape[1] + NEW - 1):
        found.append(batch.forward(found[-1], torch.full((len(ids), 1), place)))
        batch.forget(torch.ones(len(ids), dtype=torch.long), 1)
    return torch.cat(found, dim=1), time.thread_time() - began


@torch.inference_mode()
def speculative(target: PreTrainedModel, draft: PreTrainedModel, ids: torch.Tensor) -> tuple[list[list[int]], float]:
    """Write ``NEW`` tokens or more in the mean of all sequences: the texts, and the seconds after their first token."""
    checked, guessing = Batch(target, ids), Batch(draft, ids)
    last = checked.logits.argmax(-1)  # (B, 1), which neither cache holds
    texts = [row.tolist() for row in last]
    length = torch.full((len(ids), 1), ids.shape[1])  # tokens before ``last``
    before, whole = last, torch.zeros(len(ids), dtype=torch.bool)  # the draft has not read a wholly kept draft's end
    began = time.thread_time()
    while sum(map(len, texts)) < NEW * len(texts):
        first, at, used = last, length, torch.ones_like(last)
        if whole.any():
            first, at = torch.cat([before, last], 1), torch.cat([length - 1, length], 1)
            used = torch.cat([whole[:, None].long(), used], 1)
        guesses = [guessing.forward(first, at, used)[:, -1:]]
        for step in range(1, GAMMA):
            guesses.append(guessing.forward(guesses[-1], length + step))
        block = torch.cat([last, *guesses], dim=1)
        chosen = checked.forward(block, length + torch.arange(GAMMA + 1))
        kept = (chosen[:, :-1] == block[:, 1:]).long().cumprod(1).sum(1)
        checked.forget(kept + 1, GAMMA + 1)
        guessing.forget(kept.clamp(max=GAMMA - 1), GAMMA - 1)
        for text, row, count in zip(texts, chosen.tolist(), kept.tolist(), strict=True):
            text += row[: count + 1]
        before, whole = guesses[-1], kept == GAMMA
        last, length = chosen.gather(1, kept[:, None]), length + kept[:, None] + 1
    return texts, time.thread_time() - began


def gain_of(pair: Pair, ids: torch.Tensor) -> tuple[float, int]:
    """The measured gain of the speculative loop, and how many of its texts are those of the plain one."""
    straight, plain_seconds = plain(pair.target, ids)
    texts, seconds = speculative(pair.target, draft_model_of(pair), ids)
    alike = sum(text[:NEW] == row[: len(text)] for text, row in zip(texts, straight.tolist(), strict=True))
    written = sum(len(text) - 1 for text in texts)
    return (written / seconds) / (straight[:, 1:].numel() / plain_seconds), alike


def acceptance(pair: Pair, prompts: torch.Tensor) -> list[float]:
    """The shares of guesses kept by place, of our loop on each of the prompts (B, n)."""
    params = SamplingParams(NEW, temperature=0.0, ignore_eos=True)
    results = [collect(specdec.speculative(pair, prompt, gamma=GAMMA, params=params)) for prompt in prompts]
    return kept_by_place(pool(result.metrics for result in results if result.metrics))


def main() -> None:
    runs = asked_runs(__doc__)
    torch.set_num_threads(1)
    pair = specdec.load_pair(draft_weights="same")
    params = SamplingParams(4 * PROMPT, temperature=0.0, ignore_eos=True)
    stories = [collect(specdec.speculative(pair, item.prompt, params=params)) for item in read_prompts(EXAMPLES)]
    text = torch.tensor([token for story in stories for token in story.token_ids])
    prompts = text[: len(text) // PROMPT * PROMPT].view(-1, PROMPT)
    rows = []
    for batch in BATCHES:
        for kind in ("copies", "different") if batch > 1 else ("copies",):
            chosen = prompts[(torch.arange(batch) if kind == "different" else torch.zeros(batch).long()) * 3 + 1]
            kept = acceptance(pair, chosen if kind == "different" else chosen[:1])
            measured, computed, alike = [], [], 0
            gain_of(pair, chosen)
            for _ in range(runs):
                times = pass_times(pair, text, PROMPT + NEW // 2, batch, GAMMA, 1, processor_seconds)
                found, same = gain_of(pair, chosen)
                measured.append(found)
                computed += load_gains(times, kept, GAMMA)
                alike += same
            ratio = median(computed) / median(measured)
            same_text = f"{alike} of {runs * batch}"
            cells = [numbers.times(measured), numbers.times(computed), f"{ratio:.2f}", same_text]
            rows.append([str(batch), kind, *cells])
            print(rows[-1], flush=True)
    columns = ["at once", "prompts", "measured gain", "computed gain", "computed / measured", "same text"]
    facts = machine_facts(pair.device)
    intro = (
        f"`python -m benchmarks.batched_loop --runs {runs}` on {facts['cpu']}, 1 thread, processor time: the "
        f"embedded\npair at \u03b3 {GAMMA}, transformers' passes, prompts of {PROMPT} tokens and {NEW} new ones.\n\n"
    )
    write("batched_loop", intro + table(columns, rows, left=2))


if __name__ == "__main__":
    main()
