"""Measures everything on a GPU in a few minutes: ``python -m benchmarks.gpu --out DIR --minutes 8``.

Steps in order of value: the machine (facts), whether decoding is right there (right), what it does with faults
(faults), speeds of known shapes with random weights in turns with transformers (table), and recorded races
(recordings). Compiled passes of transformers and one more shape come last. Each step writes DIR/STEP.json at once. A
part that fails or takes too long is ended, and the next one goes on. The same command continues what DIR holds.

``--plan`` prints how long each part is expected to take. ``--rehearse`` runs the same code on a CPU with tiny models.
``--write DIR`` writes results into README.md, docs/performance.md and the sentence on where the graph engine has run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

BEGAN = time.monotonic()  # loading the packages counts too

# Asking whether there is a GPU must not use it: the processes of the parts are forked.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

import torch  # noqa: E402

from benchmarks import document as documents  # noqa: E402
from benchmarks.gpu import document, estimate, facts, faults, load, recordings, right, table  # noqa: E402
from benchmarks.gpu.campaign import STEPS, Found, Part, Setting, can_fork, run  # noqa: E402
from specdec.models.pair import silence_libraries  # noqa: E402

MOST = 2.0  # times the expected seconds, after which a part is ended
LEAST = 45.0  # seconds that every part may take
LONGEST_COMPILE = 120.0  # seconds of compiling, after which transformers' compiled lane is dropped


def parts(rehearsal: bool) -> list[Part]:
    """Every part in the order of its value. A rehearsal has one shape."""
    names = table.NAMES[:1] if rehearsal else table.NAMES
    found = [
        ("facts", "facts", facts.facts),
        ("right", "texts", right.texts),
        ("right", "distributions", right.distributions),
        ("right", "losslessness", right.losslessness),
        ("right", "logits", right.logits),
        ("right", "reads", right.reads),
        ("faults", "out of memory", faults.out_of_memory),
        ("faults", "not numbers", faults.not_numbers),
        ("faults", "pair changed", faults.pair_changed),
        ("faults", "many calls", faults.many_calls),
        *(("table", name, partial(table.shape, name=name)) for name in names[:3]),
        ("recordings", "embedded", recordings.embedded),
        ("recordings", "shape", recordings.shape),
        ("table", "under load", load.under_load),
        ("table", f"compiled {names[0]}", partial(table.compiled, name=names[0])),
        *(("table", name, partial(table.shape, name=name)) for name in names[3:]),
    ]
    expected = estimate.parts()
    return [_part(*each, expected[each[:2]], rehearsal) for each in found]


def _part(step: str, name: str, work: Callable[..., Iterator[Found]], seconds: float, rehearsal: bool) -> Part:
    """A part with its time. Compiling has its own bound."""
    compiles = name.startswith("compiled")
    most = seconds - estimate.COMPILE + LONGEST_COMPILE if compiles else max(LEAST, MOST * seconds)
    return Part(step, name, work, 0.0 if rehearsal else seconds, most)


def planted(setting: Setting) -> Iterator[Found]:
    """A part that fails on purpose."""
    yield {"line": "this was found before the failure"}
    raise RuntimeError("planted")


def main(argv: Sequence[str] | None = None, began: float | None = None) -> None:
    """Run the command. ``began``: the clock (``time.monotonic``) when the program started; None for now."""
    began = time.monotonic() if began is None else began
    parser = argparse.ArgumentParser(
        prog="benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="the folder of the results")
    parser.add_argument("--minutes", type=float, default=8.0, help="when it ends (default 8)")
    parser.add_argument("--only", choices=STEPS, nargs="+", default=STEPS, help="only these steps")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU with tiny models; the figures mean nothing")
    parser.add_argument("--plant", action="store_true", help="begin each step with a failure, to see that it goes on")
    parser.add_argument("--plan", action="store_true", help="only print how long each part is expected to take")
    parser.add_argument("--write", type=Path, metavar="DIR", help="only write the results of DIR into the documents")
    parser.add_argument("--root", type=Path, default=documents.ROOT, help="the checkout whose documents are written")
    arguments = parser.parse_args(argv)
    if arguments.write:
        document.write_all(arguments.write, arguments.root)
        return
    chosen = [part for part in parts(arguments.rehearse) if part.step in arguments.only]
    if arguments.plan:
        print(plan(chosen))
        return
    if arguments.plant:
        chosen = [Part(step, "planted", planted, 0.0, LEAST) for step in arguments.only] + chosen
    silence_libraries()
    setting = Setting(arguments.out.resolve(), arguments.rehearse)
    require_device(setting)
    ended = run(chosen, setting, began + 60 * arguments.minutes)
    failed = [part for part, record in ended if record["state"] != "done"]
    print(f"{len(ended) - len(failed)} of {len(ended)} parts done; results in {arguments.out}")
    sys.exit(bool(failed))


def plan(chosen: Sequence[Part]) -> str:
    """The expected seconds of each part, their sum, and what would be left out first."""
    rows = [(part.step, part.name, f"{part.seconds:.0f}") for part in chosen]
    rows = [("", "loading the packages", f"{estimate.IMPORTS:.0f}"), *rows]
    total = estimate.IMPORTS + sum(part.seconds for part in chosen)
    last = ", ".join(f"{part.step} {part.name}" for part in reversed(chosen[-4:]))
    return (
        documents.table(("Step", "Part", "seconds"), [*rows, ("", "sum", f"{total:.0f}")], 2)
        + f"\nLeft out first: {last}."
    )


def require_device(setting: Setting) -> None:
    """Refuse a machine without a GPU, before anything is written."""
    # Where a forked process cannot use the GPU, the parts start new processes.
    if not (setting.rehearsal or can_fork(setting.rehearsal) or torch.cuda.is_available()):
        raise SystemExit("There is no CUDA GPU here that torch can use. With --rehearse the same code runs on the CPU.")


if __name__ == "__main__":
    main(began=BEGAN)
