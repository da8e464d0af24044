"""Measures memory and the time to the first token: ``python -m benchmarks.memory``. Needs Linux.

Prints
1. the peak resident size of a call of plain ``generate`` (only the target) and of a speculative call, each in its own
   process and without loading; and the second / (the first + the draft's weights). It should be 1.1 or less;
2. the resident size of a process after 50 and after 500 short speculative calls. It should not grow;
3. for several lengths of a prompt, as medians over runs in turns: the seconds to the first token of our loop without a
   draft / those of plain ``generate``, and of speculative decoding / those of ``generate`` + the draft's own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import chain
from pathlib import Path
from statistics import median

import psutil
import torch

import specdec
from specdec.cli.arguments import leave_a_core
from specdec.engine.request import make_request
from specdec.events import Finished, SamplingParams
from specdec.lanes.decoding_thread import driven
from specdec.lanes.race import start, warm_up
from specdec.lanes.table import BASELINE, LOOP, LaneConfig
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.pair import Pair, silence_libraries

SPECULATIVE = LaneConfig("speculative", 5)
LENGTHS = (16, 128, 512, 1024)  # tokens of a prompt
SHORT = SamplingParams(16, ignore_eos=True)


def prompt_ids(pair: Pair, length: int) -> torch.Tensor:
    """The example prompts one after the other, as often as needed, (length,)."""
    ids = list(chain.from_iterable(pair.tokenizer(item.prompt).input_ids for item in read_prompts(EXAMPLES)))
    return torch.tensor((ids * (length // len(ids) + 1))[:length])


def first_token(pair: Pair, config: LaneConfig, ids: torch.Tensor, params: SamplingParams = SHORT) -> float:
    """Make a call; return its seconds to the first token."""
    events = chain.from_iterable(driven(start(make_request(pair, ids, params), config)))
    return next(event.prefill_seconds for event in events if isinstance(event, Finished))


def peak_of(lane: str) -> None:
    """Print the peak resident size of one call in this process, in bytes."""
    pair = specdec.load_pair()
    if lane == "generate":
        pair = Pair(pair.target, tokenizer=pair.tokenizer)  # the draft is freed
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far, which was that of loading
    first_token(pair, BASELINE if lane == "generate" else SPECULATIVE, prompt_ids(pair, 128), SamplingParams(512))
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) * 1024)


def print_peaks(draft_bytes: int) -> None:
    command = [sys.executable, "-m", "benchmarks.memory", "--peak-of"]
    plain, speculative = (
        int(subprocess.run([*command, lane], check=True, capture_output=True, text=True).stdout.split()[-1])
        for lane in ("generate", "speculative")
    )
    share = speculative / (plain + draft_bytes)
    print(
        f"peak: generate {plain / 1e6:.0f} MB, the draft's weights {draft_bytes / 1e6:.1f} MB, speculative "
        f"{speculative / 1e6:.0f} MB, which is {share:.3f} of both (1.1 or less: {'yes' if share <= 1.1 else 'NO'})"
    )


def print_growth(pair: Pair) -> None:
    sizes = {}
    for count in range(1, 501):
        first_token(pair, SPECULATIVE, prompt_ids(pair, 32))
        if count in (50, 500):
            sizes[count] = psutil.Process().memory_info().rss / 1e6
    print(f"resident after 50 calls {sizes[50]:.1f} MB, after 500 {sizes[500]:.1f} MB ({sizes[500] - sizes[50]:+.1f})")


def print_first_tokens(pair: Pair, runs: int) -> None:
    alone = Pair(pair.draft.model, tokenizer=pair.tokenizer)
    calls = {
        "generate": (pair, BASELINE), "loop": (pair, LOOP), "speculative": (pair, SPECULATIVE), "draft": (alone, LOOP),
    }  # fmt: skip
    for length in LENGTHS:
        ids = prompt_ids(pair, length)
        for of, config in calls.values():
            list(driven(warm_up(make_request(of, ids, SHORT), config)))
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(runs):
            for name, (of, config) in calls.items():
                seconds[name].append(first_token(of, config, ids, SamplingParams(2)))
        at = {name: median(found) for name, found in seconds.items()}
        both = at["generate"] + at["draft"]
        print(
            f"first token after {length} tokens: generate {1e3 * at['generate']:.1f} ms, our loop "
            f"{1e3 * at['loop']:.1f} ms ({at['loop'] / at['generate']:.2f}), the draft's own {1e3 * at['draft']:.1f} "
            f"ms, speculative {1e3 * at['speculative']:.1f} ms ({at['speculative'] / both:.2f} of generate and draft)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--peak-of", choices=("generate", "speculative"), help="used by the script itself")
    parser.add_argument("--runs", type=int, default=15, help="of each first token")
    arguments = parser.parse_args()
    silence_libraries()
    leave_a_core()
    if arguments.peak_of:
        return peak_of(arguments.peak_of)
    pair = specdec.load_pair()
    print_peaks(sum(weight.nbytes for weight in pair.draft.model.parameters()))
    print_growth(pair)
    print_first_tokens(pair, arguments.runs)


if __name__ == "__main__":
    main()
