"""Says where γ auto loses against the best fixed γ of each prompt, by simulation: ``python -m benchmarks.auto_loss``.

The greedy text of each prompt is recorded once, and at each place the draft's next 16 guesses with their probabilities
and with how many of them stand. A round then costs the median of real rounds of that length (the processor time of the
thread). auto is told that time with noise: a lognormal factor, of which the rows name the spread. So any policy can be
played over the same guesses, without Python's time. Calls of one row share what their rounds took, as calls of one pair
do. Prints shares of the best fixed γ of each prompt: medians over the prompts with (lowest-highest). For pairs with a
draft model whose passes run in C. ``--prompts``: a file as for ``specdec bench``; else the six example prompts.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

import specdec
from benchmarks.in_turns import asked
from specdec.engine.chooser import Chooser, KnownCosts
from specdec.engine.policy import Fixed, next_draft, tell_of_costs, tell_of_drafts
from specdec.engine.request import make_request
from specdec.engine.round_costs import estimated_costs
from specdec.engine.round_times import RoundTimes
from specdec.events import MAX_GAMMA, DraftToken, Round, Status
from specdec.forward.lean import LeanModel
from specdec.lanes.decoding_thread import driven
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.runtime import clock
from specdec.runtime.stopping import watch_of

TOKENS, FIXED, REPEATS, NOISES = 128, (0, 1, 2, 3, 4, 5, 6, 8), 3, (0.05, 0.2)
PARAMS = specdec.SamplingParams(TOKENS, ignore_eos=True)
Guesses = list[tuple[list[float], int]]  # at each place of a text: probabilities, and how many of them stand


class Costs(NamedTuple):
    """Seconds of a round by its guesses: of the draft, and of the rest."""

    drafts: list[float]
    rests: list[float]


class Known(Chooser):
    """γ auto that knows the costs."""

    def __init__(self, known: Costs):
        super().__init__()
        self._known = known

    def _measure(self, *measured: Any) -> None: ...

    def _costs_by_size(self) -> tuple[Sequence[float], Sequence[float]]:
        return self._known.drafts, [0.0, *self._known.rests]


def rounds(pair: specdec.Pair, prompt: Any, gamma: int) -> list[Round]:
    """The rounds of a greedy call."""
    return specdec.collect(driven(specdec.speculative(pair, prompt, gamma=gamma, params=PARAMS))).rounds


def costs(pair: specdec.Pair, prompts: list[Any], runs: int) -> Costs:
    """The median seconds of rounds of each length, in turns."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for run in range(-1, runs):
        for prompt in prompts:
            for gamma in range(MAX_GAMMA + 1):
                taken = rounds(pair, prompt, gamma)
                for before, after in zip(taken[1:], taken[2:], strict=False):
                    drafting = after.draft_seconds or 0.0
                    if run >= 0:  # the first turn warms up
                        rest = after.elapsed_seconds - before.elapsed_seconds - drafting
                        found[len(after.draft or ())].append((drafting, rest))
    medians = ([median(pair[part] for pair in found[n]) for n in range(MAX_GAMMA + 1)] for part in (0, 1))
    return Costs(*medians)


@torch.inference_mode()
def guesses(pair: specdec.Pair, prompt: Any) -> Guesses:
    """What the draft would guess at each place of the greedy text after its first token."""
    taken = list(specdec.speculative(pair, prompt, gamma=0, params=PARAMS))
    text = [token for event in taken if isinstance(event, Round) for token in event.committed_ids]
    request = make_request(pair, prompt, PARAMS)
    tokens = [*request.prompt_ids.tolist(), *text]
    lean = LeanModel(pair.draft.models[0]).rounded()
    buffer, start, found = lean.new_buffer(), len(tokens) - len(text), []
    lean.forward(torch.tensor(tokens[:start]), buffer, 0, 1)
    for place in range(start + 1, len(tokens)):
        made = lean.greedy(torch.tensor(tokens[place - 1 : place]), buffer, place - 1, MAX_GAMMA)
        assert made is not None, made
        logits, ids = made
        stands = next((n for n, (a, b) in enumerate(zip(ids.tolist(), tokens[place:], strict=False)) if a != b), None)
        chances = logits.softmax(-1).gather(1, ids[:, None])[:, 0].tolist()
        found.append((chances, min(MAX_GAMMA, len(tokens) - place) if stands is None else stands))
    return found


def play(
    policy: Any, recorded: Guesses, taken: Costs, known: KnownCosts, noise: random.Random, spread: float = NOISES[0]
) -> float:
    """Seconds of a text in which ``policy`` sets the draft lengths. It is told them with noise of this ``spread``."""
    tell_of_drafts(policy, may_stop=True)
    tell_of_costs(policy, lambda: known)
    place, index, seconds, seen = 0, 0, 0.0, 0.0
    while place < len(recorded):
        gamma, stop = next_draft(policy)
        gamma, index = min(gamma, len(recorded) - place - 1), index + 1
        chances, stands = recorded[place][0][:gamma], recorded[place][1]
        if watch := watch_of(stop, blocks_host=False):
            chances = chances[: next((n for n, chance in enumerate(chances, 1) if watch.ends(chance)), gamma)]
        n = len(chances)
        kept = min(stands, n)
        drafting, rest = taken.drafts[n], taken.rests[n]
        seconds += drafting + rest
        drafting, rest = (part * noise.lognormvariate(0, spread) for part in (drafting, rest))
        seen += drafting + rest
        draft = tuple(DraftToken(0, status(i, kept), 1.0, *[None] * 4, chance) for i, chance in enumerate(chances))
        policy.saw(Round(index, draft, 0, "target", (0,) * (kept + 1), drafting, rest, seen))
        place += kept + 1
    return seconds


def status(number: int, kept: int) -> Status:
    return "accepted" if number < kept else "rejected" if number == kept else "discarded"


def least(recorded: Guesses, taken: Costs) -> float:
    """Seconds for one who knows how many guesses stand at each place."""
    best = [0.0] * (len(recorded) + 1)
    for place in range(len(recorded) - 1, -1, -1):
        most = max(0, min(recorded[place][1], len(recorded) - place - 1))
        best[place] = min(taken.drafts[n] + taken.rests[n] + best[place + n + 1] for n in range(most + 1))
    return best[0]


def main() -> None:
    given = asked(__doc__, "prompts")
    # Other programs may use the machine, so calls read the thread's processor time where they read the time.
    clock.time = SimpleNamespace(perf_counter=time.thread_time, thread_time=time.thread_time)  # type: ignore[assignment]
    pair = specdec.load_pair()
    items = read_prompts(Path(given.prompts) if given.prompts else EXAMPLES)
    prompts = [item.message(pair.tokenizer) for item in items]
    taken, estimated = costs(pair, prompts[:3], given.runs), estimated_costs(pair, greedy=True)
    makers: dict[str, tuple[Callable[[], Any], float]] = {
        **{f"auto, times with {spread:.0%} of noise": (Chooser, spread) for spread in NOISES},
        "auto with known costs": (lambda: Known(taken), NOISES[0]),
        **{f"\u03b3 {gamma}": (lambda gamma=gamma: Fixed(gamma), NOISES[0]) for gamma in FIXED},
    }
    known = {name: KnownCosts(estimated, RoundTimes()) for name in makers}
    shares: dict[str, list[float]] = defaultdict(list)
    for prompt in prompts:
        recorded = guesses(pair, prompt)
        seconds = {
            name: mean(
                play(make(), recorded, taken, known[name], random.Random(seed), spread) for seed in range(REPEATS)
            )
            for name, (make, spread) in makers.items()
        }
        best = min(seconds[f"\u03b3 {gamma}"] for gamma in FIXED)
        seconds["who knows how many guesses stand"] = least(recorded, taken)
        for name, found in seconds.items():
            shares[name].append(best / found)
    for name, found in shares.items():
        print(f"{name}: {median(found):.2f} ({min(found):.2f}\u2013{max(found):.2f})")


if __name__ == "__main__":
    main()
