"""Draft lengths: "auto" against every fixed length, on a simulated pair with set times."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from statistics import median
from types import SimpleNamespace

import pytest
from fakes import prompt_of, shared_tiny

import specdec
from specdec.engine.chooser import KnownCosts
from specdec.engine.policy import (
    AutoGamma,
    ConfidenceStop,
    EveryLength,
    Fixed,
    gamma_of,
    next_draft,
    policy_of,
    tell_of_costs,
    tell_of_drafts,
)
from specdec.engine.round_costs import known_costs
from specdec.engine.round_times import REREAD, RoundTimes
from specdec.runtime.stopping import DraftStop, watch_of

ROUNDS = 400


@dataclass
class Rough:
    """Estimated costs, in target passes over one row. The machines below have others."""

    guess: float = 0.1
    row: float = 0.05
    whole: float = 0.0  # of a draft, whatever its length
    stateful: bool = False

    def draft(self, guesses: int, drafted_by: str | None = None) -> float:
        return 0.0 if drafted_by else guesses * self.guess + (guesses > 0) * self.whole

    def check(self, rows: float) -> float:
        return 1 + self.row * (rows - 1)


BLOCK = Rough(guess=0.01, whole=0.1)


@dataclass
class Machine:
    """A pair whose guesses are kept with probability ``alpha``, and whose passes take set times in seconds."""

    alpha: float
    draft_pass: float
    target_pass: float = 1.0
    row: float = 0.03
    first_draft: float = 0.0  # extra seconds of a draft's first pass, whose weights are not in the processor's cache
    slow_first: float = 1.0
    slow_second: float = 1.0
    copied: float = 0.0  # the share of drafts that cost nothing
    catch_up: float = 0.0  # seconds per token that the draft must read after rounds without a draft
    copying: float = 0.0  # seconds per pass of copying recurrent state; after a rejection kept tokens are read again
    estimated: Rough = field(default_factory=Rough)
    random: random.Random = field(default_factory=lambda: random.Random(0))

    def play(self, policy, times: RoundTimes | None = None, rounds: int = ROUNDS) -> tuple[float, list[int]]:
        """Tokens per second over many rounds, and the lengths that were drafted. ``times``: those of earlier calls."""
        state, tokens, seconds, lengths = policy.start(), 0, 0.0, []
        estimated = replace(self.estimated, stateful=self.copying > 0)
        tell_of_costs(state, lambda: KnownCosts(estimated, times or RoundTimes()))
        unread = reread = 0
        for index in range(1, rounds + 1):
            gamma = state.length()
            unread += 1
            accepted = next((i for i in range(gamma) if self.random.random() >= self.alpha), gamma)
            statuses = ["accepted"] * accepted + ["rejected"] * (accepted < gamma)
            statuses += ["discarded"] * (gamma - len(statuses))
            noise = 1 + 0.1 * self.random.random()
            free = self.copied > 0 and self.random.random() < self.copied
            if reread > REREAD:  # in a pass of its own
                seconds, reread = seconds + self.target_pass + self.row * reread, 0
            rows = gamma + reread
            verify = (
                (self.target_pass + self.row * rows) * noise * {1: self.slow_first, 2: self.slow_second}.get(index, 1)
            )
            first = self.first_draft + unread * self.catch_up
            event = SimpleNamespace(
                index=index,
                draft=[SimpleNamespace(status=status) for status in statuses],
                draft_seconds=0.0 if free else (gamma * self.draft_pass + (gamma > 0) * first) * noise,
                verify_seconds=verify,
                reread=reread,
                drafted_by="forced" if free and gamma else None,
                state_seconds=self.copying * (gamma > 0),
            )
            seconds += event.draft_seconds + event.verify_seconds + event.state_seconds
            event.elapsed_seconds = seconds
            reread = reread + accepted + 1 if self.copying and accepted < gamma else 0
            state.saw(event)
            unread = 0 if gamma else unread
            tokens += accepted + 1
            lengths.append(gamma)
        return tokens / (seconds or 1.0), lengths


@pytest.mark.parametrize("slow_first", [1.0, 30.0])
@pytest.mark.parametrize(("alpha", "draft_pass"), [(0.9, 0.05), (0.8, 0.2), (0.6, 0.1), (0.5, 0.3)])
def test_auto_is_close_to_the_best_fixed_length(alpha: float, draft_pass: float, slow_first: float) -> None:
    """Also after a first pass that took far too long, as on a cold machine, and where costs are estimated badly."""
    best = max(Machine(alpha, draft_pass, slow_first=slow_first).play(Fixed(g))[0] for g in range(17))
    for estimated in (Rough(draft_pass, row=0.03), Rough(4 * draft_pass), Rough(draft_pass / 4, row=0.0)):
        machine = Machine(alpha, draft_pass, slow_first=slow_first, estimated=estimated)
        assert machine.play(AutoGamma())[0] > 0.94 * best


@pytest.mark.parametrize("pace", [1.0, 3.0, 0.4])
def test_auto_begins_a_call_with_what_the_calls_before_took(pace: float) -> None:
    """Also where the machine has become slower or faster since: the best length is the same."""
    times, machine = RoundTimes(), {"alpha": 0.8, "estimated": Rough(0.8)}
    first = Machine(draft_pass=0.1, **machine).play(AutoGamma(), times)[1]
    later = Machine(draft_pass=0.1 * pace, target_pass=pace, row=0.03 * pace, **machine).play(AutoGamma(), times)
    fixed = [Machine(draft_pass=0.1, **machine).play(Fixed(g))[0] / pace for g in range(17)]
    assert first[0] <= 1 and 3 <= later[1][0] <= 8, "by the estimate a draft is too expensive"
    assert later[0] > 0.96 * max(fixed)


@pytest.mark.parametrize("stalled", [5.0, 50.0])
def test_a_stalled_round_of_a_short_call_changes_little_of_what_is_known(stalled: float) -> None:
    """The first round that counts is 50 times as slow; how the sizes compare is what the next call decides by."""
    times, estimated = RoundTimes(), Rough()
    Machine(0.8, 0.1).play(AutoGamma(), times)

    def gain() -> float:
        costs = [
            times.drafting.at(n, estimated.draft(n)) + times.checking.at(n + 1, estimated.check(n + 1)) for n in (2, 6)
        ]
        return costs[1] / costs[0]

    known = gain()
    for seed in range(4):
        Machine(0.8, 0.1, slow_second=stalled, random=random.Random(seed)).play(AutoGamma(), times, rounds=12)
    assert gain() == pytest.approx(known, rel=0.15)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_copied_drafts_of_an_earlier_call_do_not_make_the_drafts_passes_look_free(share: float) -> None:
    """A grammar forces most guesses of a call, or a text repeats itself; the next one has neither."""
    times = RoundTimes()
    Machine(0.6, 0.3, copied=share).play(AutoGamma(), times)
    best = max(Machine(0.6, 0.3).play(Fixed(g))[0] for g in range(17))
    assert Machine(0.6, 0.3).play(AutoGamma(), times)[0] > 0.94 * best


def test_calls_of_one_pair_share_what_their_rounds_took() -> None:
    """Greedy ones do, whatever their prompts are; sampled ones do not, because a seed must repeat their text."""
    pair, other = (specdec.Pair(shared_tiny("llama", 0), shared_tiny("llama", 1)) for _ in range(2))
    greedy, sampled = specdec.SamplingParams(12, ignore_eos=True), specdec.SamplingParams(12, temperature=1.0)
    for params in (greedy, sampled):
        specdec.collect(specdec.speculative(pair, prompt_of(9), gamma="auto", params=params))
    times = known_costs(pair, greedy=True).times
    assert times is not None and times.checking.known and known_costs(pair, greedy=False).times is None
    assert not known_costs(other, greedy=True).times.checking.known


@pytest.mark.parametrize(("alpha", "whole_draft", "row"), [(0.9, 0.4, 0.01), (0.8, 0.3, 0.1), (0.6, 0.2, 0.05)])
def test_auto_is_close_to_the_best_where_a_draft_takes_one_pass(alpha: float, whole_draft: float, row: float) -> None:
    """Drafting then takes the same time at every length, and only checking grows."""
    machine = {"alpha": alpha, "draft_pass": 0.0, "first_draft": whole_draft, "row": row, "estimated": BLOCK}
    best = max(Machine(**machine).play(Fixed(g))[0] for g in range(17))
    assert Machine(**machine).play(AutoGamma())[0] > 0.94 * best


@pytest.mark.parametrize(("alpha", "guess", "whole"), [(0.9, 0.03, 0.3), (0.8, 0.05, 0.2), (0.7, 0.02, 0.4)])
def test_auto_learns_the_fixed_part_of_a_draft(alpha: float, guess: float, whole: float) -> None:
    """The estimate has none, so it makes long drafts look too expensive."""
    best = max(Machine(alpha, guess, first_draft=whole).play(Fixed(g))[0] for g in range(17))
    assert Machine(alpha, guess, first_draft=whole, estimated=Rough(0.2)).play(AutoGamma())[0] > 0.94 * best


@pytest.mark.parametrize("may_stop", [False, True])
def test_auto_considers_no_draft_longer_than_a_block(may_stop: bool) -> None:
    """A pass of 3.1 target passes for a block of 3 guesses does not pay, and would if the block had 16."""
    state, block = AutoGamma().start(), 3
    tell_of_drafts(state, may_stop, longest=block)
    tell_of_costs(state, lambda: KnownCosts(BLOCK, RoundTimes()))
    lengths, elapsed = [], 0.0
    for index in range(1, ROUNDS + 1):
        asked = state.length()
        gamma = min(asked, block)
        lengths.append(asked)
        draft = [SimpleNamespace(status="accepted", draft_confidence=0.99)] * gamma
        drafting, checking = 3.1 * (gamma > 0), 1 + 0.02 * gamma
        elapsed += drafting + checking
        times = {"draft_seconds": drafting, "verify_seconds": checking, "elapsed_seconds": elapsed}
        state.saw(SimpleNamespace(index=index, draft=draft, reread=0, drafted_by=None, **times))
    assert lengths[20:].count(0) > 0.9 * ROUNDS and max(lengths[3:]) <= block


@dataclass
class Doubting:
    """A pair whose draft's probability of each guess is the chance that it is kept, easy and hard ones in turns.

    A pass over rows takes as long as over the next multiple of four: they are computed in groups.
    """

    easy: float
    hard: float
    row: float = 0.05
    guess: float = 0.06

    def play(self, policy, watched: bool, seed: int) -> float:
        """Tokens per second over many rounds."""
        chance, state = random.Random(seed), policy.start()
        tell_of_drafts(state, watched)
        tell_of_costs(state, lambda: KnownCosts(Rough(), RoundTimes()))
        tokens, seconds = 0, 0.0
        for index in range(1, ROUNDS + 1):
            gamma, stop = next_draft(state)
            watch, draft, kept = watch_of(stop, blocks_host=not watched), [], True
            for place in range(gamma):
                sure = self.easy if (tokens + place) // 12 % 2 else self.hard
                stands = kept and chance.random() < sure
                status = "accepted" if stands else "rejected" if kept else "discarded"
                draft.append(SimpleNamespace(status=status, draft_confidence=sure))
                kept = stands
                if watch and watch.ends(sure):
                    break
            verify = 1 + self.row * 4 * math.ceil(len(draft) / 4)
            seconds += self.guess * len(draft) + verify
            event = SimpleNamespace(
                index=index,
                draft=draft,
                draft_seconds=self.guess * len(draft),
                verify_seconds=verify,
                elapsed_seconds=seconds,
                reread=0,
                drafted_by=None,
            )
            state.saw(event)
            tokens += [token.status for token in draft].count("accepted") + 1
        return tokens / seconds


@pytest.mark.parametrize(
    ("easy", "hard", "gain"),
    [(0.95, 0.3, 1.05), (0.9, 0.6, 1.0), (0.99, 0.02, 1.15), (0.8, 0.8, 0.95)],
)
def test_auto_beats_every_fixed_length_where_the_draft_knows_its_doubts(easy: float, hard: float, gain: float) -> None:
    """A draft goes on while its guesses are likely. Where all are alike, it is as fast as the best fixed length."""
    machine, gains, unwatched = Doubting(easy, hard), [], []
    for seed in range(7):
        best = max(machine.play(Fixed(g), False, seed) for g in range(17))
        gains.append(machine.play(AutoGamma(), True, seed) / best)
        unwatched.append(machine.play(AutoGamma(), False, seed) / best)
    assert median(gains) > gain
    assert median(gains) > median(unwatched) or easy == hard


def test_a_stop_by_survival_proposes_the_guess_it_ends_with() -> None:
    """The third guess ends the draft: 0.9 * 0.9 is above 0.7, and with another 0.5 it is not."""
    watch = watch_of(DraftStop(least_survival=(0.7,) * 15), blocks_host=False)
    assert watch is not None and [watch.ends(chance) for chance in (0.9, 0.9, 0.5)] == [False, False, True]
    assert watch_of(DraftStop(least_survival=(0.7,)), blocks_host=True) is None, "to look would wait for the device"
    certain = watch_of(DraftStop(least_survival=(0.99,)), blocks_host=False)
    assert certain is not None and not any(map(certain.ends, (1.0, 0.0))), "only the first place has a bound"


@pytest.mark.parametrize("measures", [False, True])
def test_the_first_draft_has_a_length_that_its_cost_allows(measures: bool) -> None:
    """Costs are known before anything was measured, so no round is spent on trying lengths."""
    lengths = []
    for guess in (0.02, 0.1, 0.3, 2.0):
        state = AutoGamma().start()
        tell_of_costs(state, lambda guess=guess: KnownCosts(Rough(guess), RoundTimes() if measures else None))
        lengths.append(state.length())
    assert lengths == sorted(lengths, reverse=True) and lengths[0] > lengths[2] > lengths[3] == 0


@pytest.mark.parametrize(
    ("draft", "engine", "temperature", "watched"),
    [
        ("model", "eager", 0.0, True),
        ("model", "eager", 1.0, False),
        ("model", "graph", 0.0, False),
        ("lookup", "eager", 0.0, False),
    ],
)
def test_auto_watches_a_draft_where_it_can(
    draft: str, engine: str, temperature: float, watched: bool, monkeypatch
) -> None:
    """The draft needs probabilities of its own, and a look at them must not wait for the device.

    The probability of a guess that was drawn hardly tells whether it is kept.
    """
    told = []
    monkeypatch.setattr("specdec.engine.decode.tell_of_drafts", lambda lengths, able, longest: told.append(able))
    way = shared_tiny("llama", 1) if draft == "model" else specdec.PromptLookup()
    pair = specdec.Pair(shared_tiny("llama", 0), way, engine=engine)
    params = specdec.SamplingParams(max_new_tokens=4, temperature=temperature)
    specdec.collect(specdec.speculative(pair, prompt_of(9), gamma="auto", params=params))
    assert told == [watched]


@pytest.mark.parametrize(("alpha", "draft_pass", "row"), [(0.95, 0.1, 0.05), (0.85, 0.1, 0.05), (0.6, 0.2, 0.1)])
def test_auto_knows_what_recurrent_state_costs(alpha: float, draft_pass: float, row: float) -> None:
    """Reading again makes long drafts more expensive, the more often they are rejected."""
    machine = {"alpha": alpha, "draft_pass": draft_pass, "row": row, "copying": 0.02}
    best = max(Machine(**machine).play(Fixed(g))[0] for g in range(17))
    assert Machine(**machine).play(AutoGamma())[0] > 0.9 * best


def test_auto_drafts_rarely_where_nothing_pays() -> None:
    speed, lengths = Machine(alpha=0.02, draft_pass=0.5).play(AutoGamma())
    assert speed > 0.97 * Machine(alpha=0.02, draft_pass=0.5).play(Fixed(0))[0]
    assert lengths.count(0) > 0.9 * ROUNDS
    assert any(lengths[20:])


@pytest.mark.parametrize("catch_up", [0.0, 0.1])
def test_auto_notices_that_drafts_begin_to_pay(catch_up: float) -> None:
    """A story turns into a copy of the prompt.

    Short drafts now and then notice it, although the draft must read first.
    """
    machine = Machine(alpha=0.02, draft_pass=0.1, catch_up=catch_up)
    state = AutoGamma().start()
    policy = SimpleNamespace(start=lambda: state)
    assert machine.play(policy)[1][-8:].count(0) >= 7
    machine.alpha = 0.95
    assert machine.play(policy)[1][-1] >= 5


@pytest.mark.parametrize(("draft_pass", "least"), [(0.2, 0.85), (0.3, 0.85), (0.5, 0.9)])
def test_auto_does_not_starve_after_a_hard_passage(draft_pass: float, least: float) -> None:
    """What was learned from hundreds of rejected guesses does not hide for long that the text has become easy."""
    shares = []
    for seed in range(4):
        speeds = {}
        for policy in (AutoGamma(), *map(Fixed, (4, 8, 16))):
            machine = Machine(alpha=0.1, draft_pass=draft_pass, random=random.Random(seed))
            state = policy.start()
            kept = SimpleNamespace(start=lambda state=state: state)
            machine.play(kept)
            machine.alpha = 0.97
            speeds[policy] = machine.play(kept)[0]
        auto, *fixed = speeds.values()
        shares.append(auto / max(fixed))
    assert median(shares) > least


def test_a_short_draft_without_a_guess_does_not_make_the_next_one_rare() -> None:
    """Prompt lookup finds nothing to copy for long, and asking it costs next to nothing."""
    state, asked = AutoGamma().start(), []
    tell_of_costs(state, lambda: KnownCosts(Rough(guess=3.0), RoundTimes()))
    for index in range(1, 101):
        asked.append(state.length())
        state.saw(
            SimpleNamespace(
                index=index, draft=[], draft_seconds=0.0, elapsed_seconds=float(index), reread=0, drafted_by=None
            )
        )
    assert asked.count(0) <= 51


def test_a_clock_too_coarse_to_see_a_pass_breaks_nothing() -> None:
    lengths = Machine(alpha=0.5, draft_pass=0.0, target_pass=0.0, row=0.0).play(AutoGamma())[1]
    assert set(lengths) <= set(range(17))


def test_confidence_stop_ends_a_draft_at_the_first_doubt() -> None:
    """All tokens of a draft but its last are at least as sure as the threshold."""
    pair = specdec.Pair(target=shared_tiny("llama", 0), draft=shared_tiny("llama", 1, layers=1))
    params = specdec.SamplingParams(max_new_tokens=32, ignore_eos=True)
    events = list(specdec.speculative(pair, prompt_of(9), gamma=ConfidenceStop(6, 0.3), params=params))
    drafts = [[token.draft_confidence for token in event.draft] for event in events[2:-1]]
    assert any(len(draft) < 6 for draft in drafts[:-6])
    for draft in drafts:
        assert all(sure >= 0.3 for sure in draft[:-1])


class Wild(Fixed):
    """A policy that names a length out of range."""

    def length(self) -> int:
        return -1


@pytest.mark.parametrize("gamma", ["Auto", AutoGamma, True, 2.5, Wild(3)])
def test_a_value_that_is_no_length_is_refused(gamma) -> None:
    pair = specdec.Pair(target=shared_tiny("llama", 0), draft=shared_tiny("llama", 1, layers=1))
    with pytest.raises(specdec.InvalidInput, match="gamma"):
        list(specdec.speculative(pair, prompt_of(9), gamma=gamma, params=specdec.SamplingParams(max_new_tokens=8)))


@pytest.mark.parametrize("threshold", [0, 1.0, "0.4", True])
def test_a_confidence_that_is_no_chance_is_refused(threshold) -> None:
    with pytest.raises(specdec.InvalidInput, match="between 0 and 1"):
        ConfidenceStop(least_confidence=threshold)


def test_a_draft_length_is_written_in_one_way_everywhere() -> None:
    """A number, auto, or a confidence: what is read is what the policy says of itself, and reads the same again."""
    for text, read, policy in (
        ("5", 5, Fixed(5)),
        ("auto", "auto", AutoGamma()),
        ("confidence:.40", "confidence:0.4", ConfidenceStop(least_confidence=0.4)),
    ):
        assert gamma_of(text) == read and policy_of(read) == policy and str(policy) == str(read)
    for text in ("", "17", "-1", "5.0", "soon", "confidence", "confidence:", "confidence:1", "confidence:nan"):
        with pytest.raises(specdec.InvalidInput):
            gamma_of(text)
    with pytest.raises(specdec.InvalidInput):
        policy_of(str(ConfidenceStop(8, 0.4)))


def test_two_calls_of_a_warm_up_take_no_lengths_from_each_other() -> None:
    every = EveryLength(3)
    one, other = every.start(), every.start()
    assert [one.length() for _ in every.lengths] == [other.length() for _ in every.lengths] == [0, 3, 2, 1]


# --- policies that callers write -------------------------------------------------------------------------------------


class Own:
    """A policy that drafts two tokens, with members replaced or left out."""

    least_confidence = None

    def __init__(self, **members):
        self.__dict__.update(members)

    def start(self):
        return self

    def length(self) -> int:
        return 2

    def saw(self, event) -> None: ...


class WithoutConfidence:
    def start(self):
        return self

    def length(self) -> int:
        return 2

    def saw(self, event) -> None: ...


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        *(
            (Own(least_confidence=least), "least_confidence is")
            for least in ("0.4", True, [0.4], 1.5, -0.1, math.nan, math.inf)
        ),
        (WithoutConfidence(), "no least_confidence"),
        (Own(start=lambda: None), "start.. of the policy .* returned None"),
        (Own(start=lambda: 5), "returned 5, which has no method length"),
        (Own(saw=None), "no method saw"),
        (Own(length=3), "no method length"),
    ],
)
def test_a_policy_without_its_members_is_refused_at_once(policy, found: str) -> None:
    pair = specdec.Pair(shared_tiny("llama", 6), specdec.PromptLookup())
    for lane in (specdec.speculative, specdec.assisted):
        with pytest.raises(specdec.InvalidInput, match=found):
            lane(pair, prompt_of(3), gamma=policy)


@pytest.mark.parametrize(
    ("members", "found"),
    [
        *(({"length": lambda length=length: length}, "gamma is") for length in (None, "2", 2.5, 17, -1, True)),
        ({"length": iter([2, 2]).__next__}, "no length for the next round"),
    ],
)
def test_a_bad_length_ends_the_call_in_a_sentence(members: dict, found: str) -> None:
    pair = specdec.Pair(shared_tiny("llama", 6), specdec.PromptLookup())
    with pytest.raises(specdec.InvalidInput, match=found):
        list(specdec.speculative(pair, prompt_of(3), gamma=Own(**members), params=specdec.SamplingParams(40)))


def test_a_confidence_that_goes_wrong_later_ends_the_call_in_a_sentence() -> None:
    pair, policy = specdec.Pair(shared_tiny("llama", 6), specdec.PromptLookup()), Own(least_confidence=0)
    policy.saw = lambda event: setattr(policy, "least_confidence", "high")
    with pytest.raises(specdec.InvalidInput, match="least_confidence is 'high'"):
        list(specdec.speculative(pair, prompt_of(3), gamma=policy, params=specdec.SamplingParams(9)))
