"""Measures what a pass over several rows costs on a CPU: ``python -m benchmarks.passes``.

Each row of the table is one way to run the embedded target: its passes in C or in torch, on one thread or on two, with
warm caches or after ``COLD`` bytes of other memory were read. Passes over 1 to 17 rows follow a context of 200 tokens
and run in turns. The cells are medians, in passes over one row. Puts the table into docs/performance.md. With
``--target FOLDER`` it measures that model and prints the table.
"""

from __future__ import annotations

import time
from statistics import median

import torch

import specdec
from benchmarks.document import table, write
from benchmarks.in_turns import asked
from specdec.engine.request import machine_facts
from specdec.forward.lean import LeanModel
from specdec.forward.lean_check import lean_model

ROWS = (1, 2, 3, 4, 6, 9, 17)
CONTEXT = 200  # tokens
COLD = 128_000_000  # bytes that are read between two passes, so that no cache holds a weight
TURNS = 20  # passes of each length, for each of ``--runs``


@torch.inference_mode()
def seconds_of(lean: LeanModel, turns: int, threads: int, other: torch.Tensor | None) -> dict[int, float]:
    """The median seconds of a pass by its number of rows."""
    torch.set_num_threads(threads)
    buffer, found = lean.new_buffer(), {rows: [0.0] * turns for rows in ROWS}
    ids = torch.randint(0, lean.embedding.shape[0], (CONTEXT + max(ROWS),))
    lean.forward(ids[:CONTEXT], buffer, 0, 1)
    for turn in range(-2, turns):  # the first two warm up
        for rows in ROWS:
            if other is not None:
                torch.set_num_threads(1)  # threads of torch that have just worked keep a core for a while
                other.sum()
                torch.set_num_threads(threads)
            began = time.perf_counter()
            lean.forward(ids[CONTEXT : CONTEXT + rows], buffer, CONTEXT, None)
            if turn >= 0:
                found[rows][turn] = time.perf_counter() - began
    return {rows: median(each) for rows, each in found.items()}


def main() -> None:
    given = asked(__doc__, "target")
    runs, pair = given.runs, specdec.load_pair(given.target, "prompt-lookup" if given.target else None)
    native = lean_model(pair.target)
    assert isinstance(native, LeanModel)
    eager = LeanModel(pair.target)
    eager.use_torch("It is compared with native passes.")
    ways = {"C": native, "C, weights in 16 bits": native.halved(), "torch": eager}
    if ways["C, weights in 16 bits"] is native:
        del ways["C, weights in 16 bits"]
    cells = []
    for name, lean in ways.items():
        for threads in (1, 2):
            for cold in (False, True):
                took = seconds_of(lean, TURNS * runs, threads, torch.ones(COLD // 4) if cold else None)
                growth = [f"{took[rows] / took[1]:.2f}" for rows in ROWS[1:]]
                cells.append([name, str(threads), "cold" if cold else "warm", f"{1e3 * took[1]:.2f}", *growth])
    titles = ["passes in", "threads", "caches", "one row, ms", *(f"{rows} rows" for rows in ROWS[1:])]
    cpu = machine_facts(pair.device)["cpu"]
    if given.target:
        return print(table(titles, cells))
    text = f"`python -m benchmarks.passes --runs {runs}` on {cpu}: the embedded target after {CONTEXT} tokens.\n\n"
    write("passes", text + table(titles, cells))


if __name__ == "__main__":
    main()
