"""Tests whether sampling is lossless: draws many short continuations of one prompt and compares their distributions.

There are three samples: of transformers' plain ``generate``, of the tested lane, and of ``speculative`` with an
acceptance that is not lossless. The first two may differ by chance only. The third must differ by more; otherwise the
test could not find a fault. The tested lane is ours or one of transformers' own. Before that, longer texts of a lane
that records its probabilities are tested step by step (``step_test.py``). The samples need to trust no record.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import torch

from specdec.engine.acceptance import Acceptance, Lossless, acceptance_of
from specdec.engine.policy import Policy
from specdec.engine.request import Request, make_request
from specdec.errors import InvalidInput, quoted
from specdec.events import Event, SamplingParams, Status
from specdec.lanes.decoding_thread import driven
from specdec.lanes.race import start
from specdec.lanes.table import BASELINE, LANES, LaneConfig
from specdec.measure.detectable import LEVEL, between_samples, chi_square_tail
from specdec.measure.result import Result, collect, written_ids
from specdec.measure.step_test import StepFindings, records_steps, step_test
from specdec.models.pair import Pair, Prompt
from specdec.text import text_of

LEAST_EXPECTED = 5  # continuations of each sample in a cell, for the chi-square distribution to be valid
LEAST = {"draws": 50, "tokens": 3}
MOST_COMMON = 8  # continuations that a chart shows
COUNTED = 10  # draws of each sample between two reports with their counts
SHUFFLES = 10_000
SAMPLES = 3
PARTS = SAMPLES + 1  # the texts that are tested step by step have as many tokens together as a sample
LONGEST = 256  # tokens of such a text
STEPS_SHARE = 0.25  # of the time limit, for these texts
OURS = "speculative"
TOKENS = 4  # of a continuation: the prefill's token and a whole round at gamma 2

Ids = tuple[int, ...]  # a continuation

# After this prompt the embedded draft and target often disagree. With three tokens to choose from there are so few
# continuations that each occurs often. So a test of two or three minutes can tell a small fault from chance.
PROMPT = "Grandma said,"
PARAMS = SamplingParams(temperature=1.0, top_k=3)


@dataclass(frozen=True, slots=True)
class Common:
    """A frequent continuation, and its count in each sample."""

    text: str
    plain: int
    lossless: int
    lossy: int


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` are done: tokens of the texts that are tested step by step, then draws of all samples.

    From time to time ``common`` has the most frequent continuations of the samples, which have ``draws`` each so far.
    """

    done: int
    total: int
    unit: Literal["tokens", "continuations"] = "continuations"
    common: tuple[Common, ...] = ()
    draws: int = 0


@dataclass(frozen=True, slots=True)
class SampleComparison:
    """A sample compared with that of plain ``generate``, counted over ``cells``: continuations, rare ones pooled.

    ``total_variation`` is half the sum of the absolute differences of the cells' shares, from 0 (equal) to 1 (nothing
    in common). If the continuations of both samples are shuffled and divided again, it is ``noise_mean`` on average and
    exceeds ``noise_bound`` once in 1,000 times. ``p_value`` decides: the chance that two samples of one distribution
    differ as much or more, by a chi-square test of homogeneity. ``detectable`` is the total variation between the two
    distributions over these cells from which on such a test finds the difference in at least 9 of 10 times, whatever
    its kind; None if it finds none.
    """

    total_variation: float
    noise_mean: float
    noise_bound: float
    cells: int
    p_value: float
    detectable: float | None


@dataclass(frozen=True, slots=True)
class LosslessnessResult:
    """The result of a self-test.

    - ``draws``: the continuations of each sample; ``params`` has their seed and length.
    - ``common``: the most frequent continuations of the three samples together.
    - ``alpha``, ``lossy_alpha``: draft tokens accepted / tested in the two speculative samples; None where nothing was
      drafted or the lane does not report its guesses.
    - ``level``: the chance that lossless sampling fails the comparison of samples; as often it fails that of
      steps.
    - ``lane``: the key of the tested lane.
    - ``drafted``: False if no guess is known: none was reported, or none was kept in a lane that reports none.
    - ``steps``: what the test of every step found; None for a lane that does not record its probabilities.
    """

    lossless: SampleComparison
    lossy: SampleComparison
    alpha: float | None
    lossy_alpha: float | None
    draws: int
    gamma: str
    accept_top_k: int
    params: SamplingParams
    common: tuple[Common, ...]
    level: float = LEVEL
    lane: str = OURS
    drafted: bool = True
    steps: StepFindings | None = None

    @property
    def verdict(self) -> str:
        """``lossless``, ``not lossless``, ``undecided`` or ``untested``.

        It is undecided if the test did not even catch the lossy sample, and untested if nothing was drafted.
        """
        if self.steps is not None and self.steps.differs:
            return "not lossless"
        if not self.drafted:
            return "untested"
        if self.lossless.p_value < self.level:
            return "not lossless"
        sees = self.lossy.p_value < self.level and self.lossless.detectable is not None
        return "lossless" if sees else "undecided"

    def record(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return {"verdict": self.verdict} | asdict(self)


def self_test(
    pair: Pair,
    prompt: Prompt = PROMPT,
    *,
    lane: str = OURS,
    gamma: int | str | Policy = 2,
    params: SamplingParams = PARAMS,
    draws: int = 500,
    tokens: int = TOKENS,
    accept_top_k: int = 3,
    seconds: float | None = None,
) -> Generator[Progress | LosslessnessResult, None, None]:
    """Draw ``draws`` continuations of ``tokens`` tokens from each lane, in turns. Yield progress, then the findings.

    A lane that records its probabilities first writes texts, which have ``draws * tokens`` tokens together. They are
    tested step by step.

    ``lane`` is the key of the lane to test, one of ``testable()``. Four tokens contain the prefill's token and a whole
    round at gamma 2: two guesses and the bonus, or a correction and the round after it. The seeds of all draws follow
    from the seed of ``params``. After ``seconds`` the test ends with the draws made so far, if they are 50 or more; the
    texts end after a quarter of that time.
    Arguments are checked at once. Closing the generator ends the running lane. There are no findings before the end,
    because looking at them early would raise the chance of a false alarm.
    """
    _require_testable(params, draws, tokens, lane, gamma)
    seed = secrets.randbits(32) if params.seed is None else params.seed
    params = replace(params, max_new_tokens=tokens, seed=seed)
    samples = {
        "plain": Sample(BASELINE),
        "lossless": Sample(LaneConfig(lane, gamma)),
        "lossy": Sample(LaneConfig(OURS, gamma), acceptance_of("top-k", accept_top_k)),
    }
    request = make_request(pair, prompt, params)
    for sample in samples.values():
        sample.start(request)  # checks its arguments and runs nothing yet

    def run() -> Generator[Progress | LosslessnessResult, None, None]:
        began = time.monotonic()
        limit = None if seconds is None else began + STEPS_SHARE * seconds
        texts = yield from _write(samples["lossless"], request, random.Random(f"texts {seed}"), draws * tokens, limit)
        steps = step_test(pair, texts) if texts else None
        limit = None if seconds is None else began + seconds
        yield from _draw(samples, request, random.Random(seed), draws, limit)
        drawn = {name: sample.drawn for name, sample in samples.items()}
        yield LosslessnessResult(
            lossless=compare_samples(drawn["plain"], drawn["lossless"], seed),
            lossy=compare_samples(drawn["plain"], drawn["lossy"], seed),
            alpha=samples["lossless"].alpha,
            lossy_alpha=samples["lossy"].alpha,
            draws=len(drawn["plain"]),
            gamma=str(gamma),
            accept_top_k=accept_top_k,
            params=params,
            common=most_common(request, drawn),
            lane=lane,
            drafted=samples["lossless"].drafted,
            steps=steps,
        )

    return run()


def _require_testable(params: SamplingParams, draws: int, tokens: int, lane: str, gamma: int | str | Policy) -> None:
    """Raise ``InvalidInput`` for settings with which the test could find nothing."""
    if params.greedy:
        raise InvalidInput(
            "The temperature is 0 (greedy), and this test needs sampling. The race compares greedy text token for "
            "token."
        )
    for name, value in (("draws", draws), ("tokens", tokens)):
        if isinstance(value, bool) or not isinstance(value, int) or value < LEAST[name]:
            raise InvalidInput(f"{name} is {value!r}; give a whole number, {LEAST[name]} or more.")
    if lane not in testable():
        raise InvalidInput(f"The lane {quoted(lane)} makes no guesses to test; choose from {', '.join(testable())}.")
    if gamma == 0:
        raise InvalidInput("gamma is 0, which makes no guesses to test; use 1 or more.")


@dataclass
class Sample:
    """The continuations that one lane draws, and what becomes of its guesses."""

    lane_config: LaneConfig
    acceptance: Acceptance = Lossless()
    drawn: list[Ids] = field(default_factory=list)
    statuses: Counter[Status] = field(default_factory=Counter)
    drafted: bool = False

    def start(self, request: Request) -> Iterator[Event]:
        """The events of one draw. The lane's arguments are checked at once."""
        return start(request, self.lane_config, self.acceptance)

    def add(self, result: Result) -> None:
        self.drawn.append(tuple(result.token_ids))
        self.statuses.update(token.status for r in result.rounds for token in r.draft or ())
        # A lane that does not report its guesses has made one if a pass wrote more than one token.
        guessed = (len(r.committed_ids) > 1 if r.draft is None else r.draft for r in result.rounds[1:])
        self.drafted = self.drafted or any(guessed)

    @property
    def alpha(self) -> float | None:
        """Draft tokens accepted / tested; None if none was tested."""
        tested = self.statuses["accepted"] + self.statuses["rejected"]
        return self.statuses["accepted"] / tested if tested else None


def _write(
    sample: Sample, request: Request, seeds: random.Random, tokens: int, limit: float | None
) -> Generator[Progress, None, list[list[Event]]]:
    """The events of texts with ``tokens`` tokens together, fewer after the time ``limit``.

    There are none if the lane does not record its probabilities. The settings of a test leave few tokens to choose
    from, which hides small faults of a step. So the first text and every second one after it have no such filter.
    """
    room = (request.pair.context_length() or LONGEST) - len(request.prompt_ids)
    wide = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    texts: list[list[Event]] = []
    done = 0
    while done < tokens:
        settings = {} if len(texts) % 2 else wide
        length = min(LONGEST, room, tokens - done)
        changed = request.with_params(max_new_tokens=length, seed=seeds.getrandbits(53), **settings)
        texts.append([])
        with closing(driven(sample.start(changed))) as batches:
            for batch in batches:
                texts[-1] += batch
                if not records_steps(batch):
                    return []
                if limit is not None and time.monotonic() > limit and written_ids(texts[-1]):
                    return texts
                yield Progress(done + len(written_ids(texts[-1])), tokens, "tokens")
        done += len(written_ids(texts[-1]))
    return texts


def _draw(
    samples: dict[str, Sample], request: Request, seeds: random.Random, draws: int, limit: float | None
) -> Iterator[Progress]:
    """Add ``draws`` continuations to each sample, in turns; fewer after the time ``limit``, but as many to each."""
    total = len(samples) * draws
    for done, sample in enumerate(list(samples.values()) * draws):
        drawn, within = divmod(done, len(samples))
        late = limit is not None and time.monotonic() > limit
        if late and not within and drawn >= LEAST["draws"]:
            return
        # Every draw of every sample has its own seed: with equal seeds two samples would not be independent.
        events: list[Event] = []
        for batch in driven(sample.start(request.with_params(seed=seeds.getrandbits(53)))):
            events += batch
            if not batch:  # a slow lane: let the consumer stop it
                yield Progress(done, total)
        sample.add(collect(events))
        each, rest = divmod(done + 1, len(samples))
        if rest or each % COUNTED:
            yield Progress(done + 1, total)
        else:
            common = most_common(request, {name: sample.drawn for name, sample in samples.items()})
            yield Progress(done + 1, total, common=common, draws=each)


def testable() -> tuple[str, ...]:
    """The keys of the lanes that make guesses. These can be tested."""
    return tuple(row.key for row in LANES if row.lengths != "none" and row.gamma is None)


def most_common(request: Request, samples: dict[str, list[Ids]]) -> tuple[Common, ...]:
    """The most frequent continuations of all samples together: those of one sample would look too frequent in it."""
    counts = {name: Counter(found) for name, found in samples.items()}
    often = Counter(ids for found in samples.values() for ids in found).most_common(MOST_COMMON)
    tokenizer, prompt = request.pair.tokenizer, request.prompt_ids.tolist()
    return tuple(
        Common(text_of(tokenizer, ids, prompt), **{name: counted[ids] for name, counted in counts.items()})
        for ids, _ in often
    )


def compare_samples(
    plain: Sequence[Ids], other: Sequence[Ids], seed: int = 0, shuffles: int = SHUFFLES
) -> SampleComparison:
    """Compare two samples of continuations. ``seed`` is that of the shuffles."""
    cells = pooled([*plain, *other], LEAST_EXPECTED * (len(plain) + len(other)) / min(len(plain), len(other)))
    both, rng = cells.bincount(), torch.Generator().manual_seed(seed)
    orders = (torch.randperm(len(cells), generator=rng) for _ in range(shuffles))
    dealt = torch.stack([cells[order[: len(plain)]].bincount(minlength=len(both)) for order in orders])
    noise = _distance(dealt, both)
    bound = noise.quantile(1 - LEVEL, interpolation="higher").item()
    ours = cells[: len(plain)].bincount(minlength=len(both))
    return SampleComparison(
        _distance(ours, both).item(), noise.mean().item(), bound, len(both), chi_square(ours, both),
        between_samples(len(plain), len(other), len(both)),
    )  # fmt: skip


def pooled(continuations: Sequence[Ids], least: float) -> torch.Tensor:
    """The cell of each continuation, from 0 on.

    Those seen fewer than ``least`` times are grouped by their beginning.
    """
    cells = list(continuations)  # a single cell of all rare ones would tell next to nothing
    for length in range(max(map(len, cells)), 0, -1):
        seen = Counter(cells)
        cells = [cell[:-1] if len(cell) == length and seen[cell] < least else cell for cell in cells]
    seen = Counter(cells)
    if 0 < seen[()] < least and len(seen) > 1:  # too few are left for a cell of their own
        smallest = min(seen.keys() - {()}, key=lambda cell: (seen[cell], cell))
        cells = [cell or smallest for cell in cells]
    places = {cell: place for place, cell in enumerate(sorted(set(cells)))}
    return torch.tensor([places[cell] for cell in cells])


def chi_square(ours: torch.Tensor, both: torch.Tensor) -> float:
    """The p-value of a test of homogeneity, from counts (cells,) of one sample and of both."""
    share = ours.sum().double() / both.sum()
    statistic = ((ours - both * share) ** 2 / (both * share * (1 - share))).sum()
    return chi_square_tail(statistic.item(), max(1, len(both) - 1))  # with a single cell the statistic is 0


def _distance(ours: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
    """The total variation (...,), from counts (..., cells) of one sample and (cells,) of both."""
    first, second = ours.double(), (both - ours).double()
    return (first / first.sum(-1, keepdim=True) - second / second.sum(-1, keepdim=True)).abs().sum(-1) / 2
