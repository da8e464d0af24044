"""Measure a pair on this machine: ``python -m specdec.bench``.

All lanes run in one process, one after another on the one decoding thread, interleaved: each run plays every lane on
every prompt, in an order that rotates, so that the machine's drift falls on all alike. A lane's figure in a run is
its decode tokens over its decode seconds (those after the first token), all prompts together; its speed-up is that
over plain ``generate``'s in the same run. The table shows medians over the runs, with the lowest and highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, product
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from specdec.call import machine, prepare, versions
from specdec.cli import add_pair_arguments, gamma_of, pair_of
from specdec.decode import speculative
from specdec.errors import SpecdecError
from specdec.events import Event, Finished, SamplingParams
from specdec.lanes import assisted, can_assist, driven, generate, run_generate
from specdec.metrics import Metrics, repeated_ngrams
from specdec.models import Pair, quiet
from specdec.result import Result, collect

PROMPTS = Path(__file__).parents[1] / "examples" / "prompts.jsonl"

INTERVAL = 0.08  # seconds between two looks at a lane, as on the page: the consumer must not wake at every event

Lane = Callable[[str, SamplingParams], Iterator[Event]]
Key = tuple[str, int | str | None]  # a lane and its draft length


@dataclass
class LaneResults:
    """Every result of one lane: ``runs[i]`` holds one ``Result`` a prompt."""

    name: str
    gamma: int | str | None
    runs: list[list[Result]] = field(default_factory=list)

    def tokens_per_second(self) -> list[float]:
        """One figure a run, all prompts together."""
        return [_sum(run, "decode_tokens") / _sum(run, "decode_seconds") for run in self.runs]

    def speedups(self, baseline: LaneResults) -> list[float]:
        """One factor a run, against the baseline of the same run."""
        pairs = zip(self.tokens_per_second(), baseline.tokens_per_second(), strict=True)
        return [ours / theirs for ours, theirs in pairs]

    def ratio(self, numerator: str, *denominator: str) -> float | None:
        """A count over counts, all runs and prompts together."""
        values = [[getattr(m, name) for name in (numerator, *denominator)] for m in self.metrics()]
        if any(None in row for row in values):
            return None
        total = sum(sum(row[1:]) for row in values)
        return sum(row[0] for row in values) / total if total else None

    def metrics(self) -> list[Metrics]:
        return [result.metrics for run in self.runs for result in run]


def lanes_of(pair: Pair, gammas: list[int | str]) -> dict[Key, Lane]:
    """Plain ``generate``, our loop at gamma 0, and ours and transformers' speculation at each gamma."""

    def ours(gamma: int | str) -> Lane:
        return lambda prompt, params: speculative(pair, prompt, gamma=gamma, params=params)

    def theirs(gamma: int) -> Lane:
        return lambda prompt, params: assisted(pair, prompt, gamma=gamma, params=params)

    lanes: dict[Key, Lane] = {
        ("generate", None): lambda prompt, params: generate(pair, prompt, params=params),
        ("specdec", 0): ours(0),
    }
    for gamma in gammas:
        lanes[("specdec", gamma)] = ours(gamma)
        if can_assist(pair) and isinstance(gamma, int):
            lanes[("assisted", gamma)] = theirs(gamma)
    return lanes


def benchmark(lanes: dict[Key, Lane], prompts: list[str], params: SamplingParams, runs: int) -> list[LaneResults]:
    """Play every lane on every prompt ``runs`` times, interleaved."""
    results = {key: LaneResults(*key) for key in lanes}
    warm_up = replace(params, max_new_tokens=min(16, params.max_new_tokens))
    for lane in lanes.values():
        collect(chain.from_iterable(driven(lane(prompts[0], warm_up), INTERVAL)))
    keys = list(lanes)
    for run in track(range(runs), description="Runs", transient=True):
        for key in lanes:
            results[key].runs.append([])
        for i, prompt in enumerate(prompts):
            shift = (run + i) % len(keys)
            for key in keys[shift:] + keys[:shift]:
                results[key].runs[-1].append(collect(chain.from_iterable(driven(lanes[key](prompt, params), INTERVAL))))
    return list(results.values())


def table(results: list[LaneResults]) -> Table:
    """The figures of every lane, medians with (lowest-highest) over the runs."""
    plain = results[0]
    out = Table(title="Decode speed after the first token; medians over the runs (lowest-highest)")
    columns = ("lane", "γ", "tokens/s", "speed-up", "acceptance α", "tokens a pass", "outside forward", "same text")
    for column in columns:
        out.add_column(column, justify="left" if column == "lane" else "right")
    for lane in results:
        alpha = lane.ratio("accepted", "accepted", "rejected")
        passes = lane.ratio("decode_tokens", "target_passes")
        overheads = [m.overhead_share for m in lane.metrics() if m.overhead_share is not None]
        out.add_row(
            lane.name,
            "" if lane.gamma is None else str(lane.gamma),
            _spread(lane.tokens_per_second(), ".0f"),
            _spread(lane.speedups(plain), ".2f") + "x",
            "" if alpha is None else f"{alpha:.0%}",
            "" if passes is None else f"{passes:.2f}",
            f"{statistics.median(overheads):.1%}" if overheads else "",
            _same_text(lane, plain),
        )
    return out


def direct_table(pair: Pair, prompts: list[str], params: SamplingParams, gamma: int, runs: int) -> Table:
    """Whole-call seconds of a lane through ``driven`` over the same call made directly.

    One ratio a run and prompt, from four calls: direct, driven, driven, direct, so that a steady drift cancels out.
    """
    lanes = {key: lane for key, lane in lanes_of(pair, [gamma]).items() if key != ("specdec", 0)}

    def finished(events: Iterator[Event]) -> float:
        """The lane's own clock at its end: the consumer's last nap is not the lane's."""
        return next(event.elapsed_seconds for event in events if isinstance(event, Finished))

    def through_thread(key: Key, prompt: str) -> float:
        return finished(chain.from_iterable(driven(lanes[key](prompt, params), INTERVAL)))

    def directly(key: Key, prompt: str) -> float:
        name, gamma = key
        if name == "specdec":
            return finished(lanes[key](prompt, params))
        call = prepare(name, pair, prompt, params, gamma or 0)
        began = time.perf_counter()
        run_generate(call, **({"assistant_model": pair.draft} if name == "assisted" else {}))
        return time.perf_counter() - began

    times: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in lanes}
    for key in lanes:  # both threads warm up
        directly(key, prompts[0]), through_thread(key, prompts[0])
    for _, prompt in track(list(product(range(runs), prompts)), description="Direct calls", transient=True):
        for key in lanes:
            first, *inner, last = (work(key, prompt) for work in (directly, through_thread, through_thread, directly))
            times[key[0]].append((first + last, sum(inner)))
    out = Table(title=f"Through the decoding thread / called directly, whole call, γ {gamma}")
    for column in ("lane", "direct s", "driven s", "driven / direct"):
        out.add_column(column, justify="left" if column == "lane" else "right")
    for name, rows in times.items():
        out.add_row(
            name,
            _spread([row[0] / 2 for row in rows], ".3f"),
            _spread([row[1] / 2 for row in rows], ".3f"),
            _spread([row[1] / row[0] for row in rows], ".3f"),
        )
    return out


def pass_costs(results: list[LaneResults]) -> str:
    """The measured cost coefficient c and verify growth v, which decide whether speculation can pay."""
    single = next(lane for lane in results if (lane.name, lane.gamma) == ("specdec", 0))
    target_pass = single.ratio("verify_seconds", "target_passes")
    lines = [f"A target pass over one token takes {target_pass * 1e3:.2f} ms (our loop at γ 0)."]
    for lane in results:
        if lane.name == "specdec" and isinstance(lane.gamma, int) and lane.gamma:
            draft_pass = lane.ratio("draft_seconds", "accepted", "rejected", "discarded")
            if draft_pass is None:
                lines.append(f"At \u03b3 {lane.gamma} nothing was drafted.")
                continue
            growth = lane.ratio("verify_seconds", "target_passes") / target_pass
            lines.append(
                f"γ {lane.gamma}: cost coefficient c = {draft_pass / target_pass:.2f} "
                f"({draft_pass * 1e3:.2f} ms a draft pass), verify growth v = {growth:.2f}."
            )
    return "\n".join(lines)


def auto_share(results: list[LaneResults]) -> list[float]:
    """Speed at "auto" over that at the best fixed draft length, one figure a prompt.

    The best is picked on every second run and both are scored on the others, so that luck does not choose it. Each
    speed is one over plain ``generate``'s in the same run.
    """
    plain = results[0]
    auto = next(lane for lane in results if (lane.name, lane.gamma) == ("specdec", "auto"))
    fixed = [lane for lane in results if lane.name == "specdec" and lane is not auto]

    def gain(lane: LaneResults, prompt: int, first: int) -> float:
        """Median over every second run."""
        pairs = zip(lane.runs[first::2], plain.runs[first::2], strict=True)
        return statistics.median(
            ours[prompt].metrics.tokens_per_second / theirs[prompt].metrics.tokens_per_second for ours, theirs in pairs
        )

    shares = []
    for prompt in range(len(plain.runs[0])):
        best = max(fixed, key=lambda lane: gain(lane, prompt, 0))
        shares.append(gain(auto, prompt, 1) / gain(best, prompt, 1))
    return shares


def repetition(results: list[LaneResults], names: list[str]) -> str:
    """Share of repeated 4-grams in plain ``generate``'s text: text that runs in circles flatters every acceptance."""
    shares = [repeated_ngrams(result.token_ids) for result in results[0].runs[0]]
    return "Repeated 4-grams: " + ", ".join(f"{n} {s:.0%}" for n, s in zip(names, shares, strict=True)) + "."


def read_prompts(path: Path) -> list[dict[str, str]]:
    """Lines of ``{"name": ..., "prompt": ...}``."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _same_text(lane: LaneResults, plain: LaneResults) -> str:
    pairs = list(zip(chain(*lane.runs), chain(*plain.runs), strict=True))
    return f"{sum(a.token_ids == b.token_ids for a, b in pairs)} of {len(pairs)}"


def _spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def _sum(run: list[Result], name: str) -> float:
    return sum(getattr(result.metrics, name) for result in run)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m specdec.bench", description=__doc__.split("\n\n")[0])
    add_pair_arguments(parser)
    parser.add_argument("--prompts", type=Path, default=PROMPTS, help="JSON lines with name and prompt")
    parser.add_argument("--gammas", type=gamma_of, nargs="+", default=[2, 3, 4, 5, 6, 8], help="lengths, or auto")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    arguments = parser.parse_args()
    quiet()
    if arguments.tokens < 32 or any(isinstance(g, int) and g < 1 for g in arguments.gammas):
        parser.error("a benchmark needs at least 32 tokens and draft lengths of 1 or more")
    console = Console(width=None if Console().is_terminal else 120)
    try:
        pair = pair_of(arguments)
        params = SamplingParams(
            max_new_tokens=arguments.tokens, temperature=arguments.temperature, seed=0, ignore_eos=True
        )
        rows = read_prompts(arguments.prompts)
        prompts = [row["prompt"] for row in rows]
        results = benchmark(lanes_of(pair, arguments.gammas), prompts, params, arguments.runs)
    except SpecdecError as error:
        raise SystemExit(f"specdec: {error}") from error
    console.print(f"Pair: {pair.describe()}\nMachine: {machine(pair.target.device)} {versions()}")
    console.print(f"{len(prompts)} prompts, {arguments.tokens} tokens each, {arguments.runs} runs.")
    console.print(table(results))
    console.print(pass_costs(results))
    console.print(repetition(results, [row["name"] for row in rows]))
    fixed = [lane for lane in results if lane.name == "specdec" and lane.gamma and lane.gamma != "auto"]
    if not fixed:
        return
    if "auto" in arguments.gammas and arguments.runs > 1:
        shares = auto_share(results)
        each = ", ".join(f"{row['name']} {share:.2f}" for row, share in zip(rows, shares, strict=True))
        console.print(
            f"\u03b3 auto against the best fixed \u03b3: {statistics.median(shares):.2f} in the median ({each})."
        )
    best = max(fixed, key=lambda lane: statistics.median(lane.speedups(results[0])))
    console.print(f"Best γ here: {best.gamma}. Against plain generate {_spread(best.speedups(results[0]), '.2f')}x.")
    for rival in results:
        if (rival.name, rival.gamma) == ("assisted", best.gamma):
            console.print(f"Against assisted generation at the same γ {_spread(best.speedups(rival), '.2f')}x.")
    console.print(direct_table(pair, prompts, params, best.gamma, arguments.runs))


if __name__ == "__main__":
    main()
