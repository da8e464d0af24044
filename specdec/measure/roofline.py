"""Computes the least time that a token could take on this machine, and how near to this limit a lane comes.

Two rates are measured here, and the limit is computed from them. For one pass of a model over r rows:

bytes       what the pass must read: the matrices of all layers and the output head once, the embeddings of r rows,
            and the keys and values of the tokens that are seen. Norms, a thousandth of that, are left out.
operations  2 x parameters of these matrices x r, and in each layer 4 x query heads x head size for each token that
            a row sees
seconds     the larger of bytes / read bandwidth and operations / rate of matrix products

A token of plain decoding takes a target pass over one row. In speculative decoding a round takes a draft pass over one
row for each guess and a target pass over the guesses and one more row. Guesses and tokens a round are those measured:
prompt lookup often makes fewer than gamma guesses, and the end of a text cuts a round short.

Weights that fit into a processor's cache are read faster than memory allows. So the bandwidth is measured over a buffer
that is as large as the model's weights (at most 1 GiB). The limit of a small model is that of the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.benchmark import Timer

from specdec.drafters.combined import Combined
from specdec.drafters.early_exit import EarlyExit
from specdec.forward.lean import LeanModel
from specdec.forward.lean_check import lean_model
from specdec.lanes.table import BASELINE, LOOP
from specdec.measure.plan import Plan, Trial
from specdec.measure.summary import summarise
from specdec.models.pair import Pair
from specdec.runtime.memory import free_bytes

LARGEST = 1 << 30  # bytes of the buffer; larger ones are read at the same rate
SIDE = {"cpu": 1024, "cuda": 8192}  # rows and columns of the matrix of the products
SECONDS = 0.2  # of each measurement, at least


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one pass: bytes to read and operations to do."""

    bytes: float
    operations: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Two rates, measured for one model: bytes read per second, and operations of matrix products per second."""

    bandwidth: float
    operations: float

    def seconds(self, work: Work) -> float:
        """The least time of a pass."""
        return max(work.bytes / self.bandwidth, work.operations / self.operations)


@dataclass(frozen=True)
class Limit:
    """The limit of a pair. ``draft`` is None where drafting needs no pass."""

    target: LeanModel
    target_rates: Rates
    draft: LeanModel | None
    draft_rates: Rates | None

    def plain(self, cached: float) -> float:
        """The least seconds per token of plain decoding after ``cached`` tokens."""
        return self.target_rates.seconds(work_of(self.target, 1, cached))

    def speculative(self, guesses: float, tokens: float, cached: float) -> float:
        """The least seconds per token if a round makes ``guesses`` and writes ``tokens``, both means over the rounds.

        The time of a pass is convex in its rows. So rounds of different lengths take at least as long as the mean one.
        """
        seconds = self.target_rates.seconds(work_of(self.target, guesses + 1, cached))
        if self.draft and self.draft_rates:
            seconds += guesses * self.draft_rates.seconds(work_of(self.draft, 1, cached))
        return seconds / tokens


def weight_bytes(lean: LeanModel) -> int:
    """Bytes of the matrices that every pass over few rows reads completely."""
    return sum(map(lean.bytes_of, _matrices(lean)))


def work_of(lean: LeanModel, rows: float, cached: float, batch: int = 1) -> Work:
    """The work of a pass over ``rows`` after ``cached`` tokens. Both may be means over passes.

    ``batch`` sequences with as many rows and cached tokens each share the reading of the weights.
    """
    itemsize, tables = lean.embedding.itemsize, 1 if lean.positions is None else 2
    read = tables * rows * lean.embedding.shape[1] * itemsize
    operations = 2.0 * rows * sum(weight.numel() for weight in _matrices(lean) if weight.dim() > 1)
    for layer in lean.layers:
        window = layer.window or float("inf")
        read += min(cached + rows, window + rows - 1) * 2 * lean.kv_heads * lean.size * itemsize
        seen = min(cached + (rows + 1) / 2, window)  # by the middle row
        operations += 4 * lean.heads * lean.size * seen * rows
    return Work(weight_bytes(lean) + batch * read, batch * operations)


def limit_of(pair: Pair) -> Limit | str:
    """Measure the rates for both models of a pair. A sentence instead, if the work of its passes is not known."""
    target, draft = lean_model(pair.target), _draft_lean(pair)
    target = target.halved() if isinstance(target, LeanModel) else target
    for role, lean in (("target", target), ("draft", draft)):
        if isinstance(lean, str):
            return f"The work of a pass of the {role} is not known. {lean}"
    assert isinstance(target, LeanModel) and not isinstance(draft, str)
    return Limit(target, rates_for(target), draft, rates_for(draft) if draft else None)


def _draft_lean(pair: Pair) -> LeanModel | str | None:
    draft = pair.draft
    if isinstance(draft, Combined):
        return "It copies where the text repeats, so the number of its passes differs from round to round."
    if isinstance(draft, EarlyExit):
        lean = lean_model(pair.target)
        return lean if isinstance(lean, str) else lean.halved().first(draft.layers)
    if draft is not None and draft.heads:
        return "A head is not a whole model."
    if draft is None or not draft.models:
        return None
    if getattr(draft, "own_tokenizer", False):
        return "It has its own tokenizer, so the number of its passes differs from round to round."
    lean = lean_model(draft.models[0])
    if isinstance(lean, str):
        return lean
    return lean.rounded() if getattr(draft, "rounded", False) else lean.halved()


def rates_for(lean: LeanModel) -> Rates:
    """Measure both rates for one model, in its number type and with the present number of threads."""
    device, dtype = lean.embedding.device, lean.embedding.dtype
    size = min(weight_bytes(lean), LARGEST, free_bytes(device) // 2)
    buffer = torch.ones(max(1, size // 4096), 1024, device=device)  # float32; bytes are read alike in any type
    row = torch.ones(1, 1024, device=device)
    with torch.inference_mode():
        # From memory a sum reads fastest; from a cache a product often does.
        read = min(_fastest(buffer.sum), _fastest(lambda: F.linear(row, buffer)))
    return Rates(buffer.nbytes / read, _product_rate(device, dtype, torch.get_num_threads()))


@cache
def _product_rate(device: torch.device, dtype: torch.dtype, threads: int) -> float:
    """Operations per second of the faster product with a square matrix, of a few rows or of many.

    Usually many rows are faster. But a CPU without units for bfloat16 has better kernels for few rows.
    """
    side = SIDE.get(device.type, SIDE["cpu"])
    matrix = torch.ones(side, side, device=device, dtype=dtype)
    rates = []
    with torch.inference_mode():
        for count in (1, 8, side // 4):
            rows = torch.ones(count, side, device=device, dtype=dtype)
            rates.append(2 * count * side**2 / _fastest(partial(F.linear, rows, matrix)))
    return max(rates)


def _fastest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call. On a GPU the host waits for the device."""
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return min(timer.blocked_autorange(min_run_time=SECONDS).times)


def limit_record(limit: Limit | str, pair: Pair, plan: Plan, trials: Sequence[Trial]) -> dict[str, Any]:
    """The limit and the share of it that was reached, as plain values for reports.

    - ``measured``: for each model the bytes of its weights and the two rates.
    - ``rows``: for plain ``generate``, our loop and each fixed draft length the least seconds per token, the measured
      ones (of the median run), and least / measured, which is 1 at the limit.
    - ``cached_tokens``: the prompt and half of the new tokens, as a mean over the prompts.
    - ``reason``: why there is no limit.
    """
    if isinstance(limit, str):
        return {"reason": limit}
    lengths = [pair.encode(item.message(pair.tokenizer)).shape[1] for item in plan.prompts]
    cached = sum(lengths) / len(lengths) + plan.params.max_new_tokens / 2
    rows = []
    for found in summarise(trials):
        if (run := found.median_run) is None:
            continue
        # All rounds count, because the seconds include all rounds too.
        seconds, guesses, tokens = run.lane.seconds_per_token, run.guesses, run.tokens_of_all
        if found.lane_config in (BASELINE, LOOP):
            least = limit.plain(cached)
        elif found.lane == LOOP.lane and isinstance(found.gamma, int) and guesses and tokens:
            least = limit.speculative(guesses, tokens, cached)
        else:
            continue
        if seconds:
            share = least / seconds
            row = {"lane": found.lane, "gamma": found.gamma, "computed_least_seconds_per_token": least}
            rows.append(row | {"measured_seconds_per_token": seconds, "share_of_limit": share})
    models = {"target": (limit.target, limit.target_rates), "draft": (limit.draft, limit.draft_rates)}
    measured = {
        role: {
            "weight_bytes": weight_bytes(lean),
            "read_bytes_per_second": rates.bandwidth,
            "operations_per_second": rates.operations,
        }
        for role, (lean, rates) in models.items()
        if lean and rates
    }
    return {"measured": measured, "cached_tokens": cached, "rows": rows}


def _matrices(lean: LeanModel) -> list[torch.Tensor]:
    """The weights and biases of the matrices of all layers and of the output head."""
    return [tensor for part in lean.matrices for tensor in (part.weight, part.bias) if tensor is not None]
