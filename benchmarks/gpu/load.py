"""A pair under load on a GPU: captured passes over several sequences against lean ones, and how long both take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.document import table
from benchmarks.gpu.campaign import Found, Setting
from benchmarks.gpu.models import embedded, stand_in
from benchmarks.gpu.table import GAMMA, NAMES, small_shapes
from specdec.drafters.draft_model import DraftModel
from specdec.forward.lean_check import share_apart
from specdec.measure.batched_passes import fits, pass_times, require_passes
from specdec.measure.cached_batch import cached_batch
from specdec.measure.load import GRAPH, LEAN, PassTimes
from specdec.models.pair import Pair
from specdec.models.shapes import shape_pair

NAME = NAMES[1]
CONTEXTS, BATCHES = (256, 768), (1, 8, 64)
KINDS = (GRAPH, LEAN)
CHECKED = (20, 300)  # contexts of the embedded target, whose logits are compared; those of a shape hardly depend on it
COLUMNS = ("Context", "At once", "target, 1 token", f"target, {GAMMA + 1} tokens", "draft, 1 token")


def under_load(setting: Setting) -> Iterator[Found]:
    """How far the logits of both kinds of passes are apart, and the times of a shape's passes at each load."""
    stand_in(setting)
    if setting.rehearsal:
        small_shapes(NAME)
    dtype = "float32" if setting.rehearsal else "bfloat16"
    made = shape_pair(NAME, 1.0, str(setting.device), dtype)
    target, draft = made.models(drafting=True)
    pair = Pair(target, DraftModel(draft))
    require_passes(pair, GRAPH)
    ids = torch.randint(256, (4096,), generator=torch.Generator().manual_seed(0)).to(setting.device)
    text, short = embedded(setting), slice(1 if setting.rehearsal else None)
    apart = max(logits_apart(text.pair.target, ids, context, batch) for context in CHECKED[short] for batch in BATCHES)
    rows: list[Found] = []
    found: Found = {"load": NAME, "apart": apart, "rows": rows, "line": f"logits are up to {apart:.0e} apart"}
    yield found
    for context in CONTEXTS[short]:
        for batch in BATCHES[short]:
            if fits(pair, context, batch, GAMMA, GRAPH):
                times = {kind: pass_times(pair, ids, context, batch, GAMMA, 1, passes=kind) for kind in KINDS}
                rows.append({"context": context, "batch": batch} | {kind: _ms(each) for kind, each in times.items()})
                yield found | {"line": line(rows, apart)}


@torch.inference_mode()
def logits_apart(model: Any, ids: torch.Tensor, context: int, batch: int) -> float:
    """The largest difference of a check's logits by both kinds of passes, as a share of their range."""
    texts = ids[: context + GAMMA + 1] + torch.arange(batch, device=ids.device)[:, None]
    kept = []

    def noted(device: torch.device, work: Any) -> float:
        kept.append(work().clone())
        return 0.0

    for kind in KINDS:
        cached_batch(model, texts[:, :context], GAMMA + 1, kind).seconds(texts[:, context:], noted)
    return float(share_apart(*kept))


def _ms(times: PassTimes) -> list[float]:
    """Milliseconds of a target pass over one token of each sequence and over a check's, and of a draft pass."""
    return [1e3 * times.target[1][0], 1e3 * times.target[GAMMA + 1][0], 1e3 * times.draft[0]]


def line(rows: list[Found], apart: float) -> str:
    """How the two kinds of passes compare, in a sentence."""
    over = [lean / graph for row in rows for graph, lean in zip(row[GRAPH], row[LEAN], strict=True)]
    return f"captured passes run at {min(over):.2f}x to {max(over):.2f}x lean ones; logits are up to {apart:.0e} apart"


def as_table(found: Found) -> str:
    """The figures as a table."""
    shown = []
    for row in found["rows"]:
        both = (f"{graph:.2f} ({lean:.2f})" for graph, lean in zip(row[GRAPH], row[LEAN], strict=True))
        shown.append([str(row["context"]), str(row["batch"]), *both])
    name = found["load"].replace(":", " \u2190 ")
    return (
        f"{name} under load, random weights: milliseconds of passes over several sequences, captured (and lean). "
        f"Logits of the embedded target by both kinds are up to {found['apart']:.0e} of their range apart.\n\n"
        + table(COLUMNS, shown, 0)
    )
