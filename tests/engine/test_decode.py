"""The event stream of ``speculative``: what each event says, that it is true, and that a call leaves nothing behind."""

from __future__ import annotations

import dataclasses
import pickle
import time

import pytest
import torch
from fakes import chain, count_passes, generated, ids_of, prompt_of, random_table, rounds_of, table_pair

import specdec

WIDTH = 12
TARGET = random_table(WIDTH, 3, seed=0, scale=2.0)
DRAFT = TARGET + random_table(WIDTH, 3, seed=1, scale=1.0)
PROMPT = torch.tensor([1, 2, 3])

COUNT_UP = chain([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0])
SKIP = chain([2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1])  # never writes what COUNT_UP writes

SETTINGS = {
    "greedy": {},
    "greedy, penalty": {"repetition_penalty": 1.4},
    "sampling": {"temperature": 1.0, "seed": 7},
    "sampling, everything": {
        "temperature": 0.7, "top_k": 6, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.4, "seed": 11,
    },
}  # fmt: skip


def run(
    target=TARGET, draft=DRAFT, gamma: int = 4, prompt=PROMPT, eos=None, lossy: int | None = None, **settings
) -> list:
    lossy = {"acceptance": "top-k", "accept_top_k": lossy} if lossy else {}
    params = specdec.SamplingParams(**({"max_new_tokens": 40} | settings))
    return list(specdec.speculative(table_pair(target, draft, eos), prompt, gamma=gamma, params=params, **lossy))


def without_seconds(events: list) -> list:
    blank = {"draft_seconds", "verify_seconds", "elapsed_seconds", "model_seconds", "prefill_seconds", "cpu_seconds"}
    return [dataclasses.replace(e, **{f.name: 0.0 for f in dataclasses.fields(e) if f.name in blank}) for e in events]


def positions(events: list):
    """Each round with all the ids before it, prompt included."""
    ids = list(events[0].prompt_ids)
    for event in rounds_of(events):
        yield event, list(ids)
        ids += event.committed_ids


def raw(table: torch.Tensor, ids: list[int]) -> torch.Tensor:
    return table[tuple(([0, 0, 0] + ids)[-3:])].double()


def distribution(table: torch.Tensor, ids: list[int], params: specdec.SamplingParams) -> torch.Tensor:
    """The distribution after ``ids`` that the settings define."""
    logits = raw(table, ids)
    for token_id in set(ids):
        factor = params.repetition_penalty
        logits[token_id] = logits[token_id] * factor if logits[token_id] < 0 else logits[token_id] / factor
    logits = logits / params.temperature
    if params.top_k:
        logits[logits < logits.topk(params.top_k).values[-1]] = -torch.inf
    p = logits.softmax(-1)
    ordered, index = p.sort(descending=True)
    p[index[ordered.cumsum(0) - ordered >= params.top_p]] = 0
    p = p / p.sum()
    p[p < params.min_p * p.max()] = 0
    return p / p.sum()


# --- the shape of the stream -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0, 1, 4, 16])
@pytest.mark.parametrize("settings", SETTINGS)
def test_stream_has_one_shape(settings: str, gamma: int) -> None:
    """Started, then rounds from 0 without a gap, then Finished. All ids are in them."""
    events = run(gamma=gamma, **SETTINGS[settings])
    assert isinstance(events[0], specdec.Started) and isinstance(events[-1], specdec.Finished)
    rounds = rounds_of(events)
    assert len(rounds) == len(events) - 2
    assert [r.index for r in rounds] == list(range(len(rounds)))
    assert len(ids_of(events)) == 40
    result = specdec.collect(iter(events))
    assert tuple(result.token_ids) == ids_of(events)
    assert (result.finish_reason, result.cancelled) == ("length", False)
    assert events[0].prompt_ids == (1, 2, 3)
    assert (events[0].lane, events[0].gamma, events[0].acceptance) == ("speculative", gamma, "lossless")
    assert rounds[0].draft == () and rounds[0].token_kind == "target" and len(rounds[0].committed_ids) == 1
    assert {r.reread for r in rounds} == {0}, "only recurrent state makes a target read kept tokens again"
    for r in rounds[1:]:
        assert len(r.draft) <= gamma
        statuses = [t.status for t in r.draft]
        order = ["accepted", "rejected", "discarded"]
        assert statuses == sorted(statuses, key=order.index) and statuses.count("rejected") <= 1
        kept = tuple(t.token_id for t in r.draft if t.status == "accepted")
        kind = "correction" if "rejected" in statuses else "bonus" if r.draft else "target"
        assert r.token_kind == kind
        assert r.committed_ids == (*kept, r.token_id)
        assert "discarded" not in statuses or "rejected" in statuses


def test_events_are_plain_values() -> None:
    """Events have no tensors and can be pickled, because they are sent to other processes and compared."""

    def check(value) -> None:
        if isinstance(value, dict):
            [check(part) for pair in value.items() for part in pair]
        elif isinstance(value, (tuple, list)):
            [check(part) for part in value]
        else:
            assert value is None or type(value) in (int, float, str, bool), type(value)

    for settings in SETTINGS.values():
        events = run(**settings)
        [check(dataclasses.asdict(event)) for event in events]
        assert pickle.loads(pickle.dumps(events)) == events


def test_events_cannot_be_changed() -> None:
    """A page, a recorder and a fold share the same events."""
    event = rounds_of(run())[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.index = 5


def test_started_tells_how_to_run_it_again() -> None:
    """Prompt, settings, pair, machine and versions are in the first event."""
    started = run(temperature=0.5, seed=3)[0]
    assert started.params == specdec.SamplingParams(max_new_tokens=40, temperature=0.5, seed=3)
    assert {"torch", "transformers"} <= set(started.versions)
    assert torch.__version__.startswith(started.versions["torch"])  # a CUDA build has a label after it
    assert started.pair and started.machine
    default = next(specdec.speculative(table_pair(TARGET, DRAFT), PROMPT))
    assert (default.gamma, default.acceptance, default.params.max_new_tokens) == (5, "lossless", 128)


# --- acceptance ------------------------------------------------------------------------------------------------------


def test_a_draft_that_is_always_right() -> None:
    """Draft = target: everything accepted and a bonus each round. (Off by one between drafts and rows: 1/gamma.)"""
    for settings in ({}, {"temperature": 1.0, "seed": 2}):
        events = run(draft=TARGET, gamma=4, max_new_tokens=16, **settings)
        assert [len(r.committed_ids) for r in rounds_of(events)] == [1, 5, 5, 5]
        assert [r.token_kind for r in rounds_of(events)] == ["target", "bonus", "bonus", "bonus"]
        metrics = specdec.collect(iter(events)).metrics
        assert (metrics.alpha, metrics.draft_acceptance_rate, metrics.mean_acceptance_length) == (1, 1, 5)


def test_a_draft_that_is_never_right() -> None:
    """Each round yields its correction and nothing else, as plain decoding would, and alpha is 0."""
    events = run(COUNT_UP, SKIP, gamma=4, prompt=torch.tensor([0]), max_new_tokens=12)
    assert ids_of(events) == (*range(1, 12), 0)
    assert all(r.token_kind in ("correction", "target") and len(r.committed_ids) == 1 for r in rounds_of(events))
    metrics = specdec.collect(iter(events)).metrics
    assert (metrics.alpha, metrics.accepted) == (0, 0)
    for r in rounds_of(events)[1:-1]:
        assert [t.status for t in r.draft] == ["rejected", *["discarded"] * (len(r.draft) - 1)]
        assert r.draft[0].target_token_id == r.token_id


def test_a_draft_that_is_sometimes_right() -> None:
    """Accepted, rejected and discarded all occur, and every bonus and correction is the target's own choice."""
    events = run(gamma=4)
    statuses = {t.status for r in rounds_of(events) for t in r.draft}
    assert statuses == {"accepted", "rejected", "discarded"}
    assert {r.token_kind for r in rounds_of(events)} >= {"correction", "bonus"}
    for r, before in positions(events):
        accepted = [t.token_id for t in r.draft if t.status == "accepted"]
        assert r.token_id == int(raw(TARGET, before + accepted).argmax())


@pytest.mark.parametrize("settings", SETTINGS)
def test_one_target_pass_a_round(settings: str) -> None:
    """One pass of gamma + 1 rows, none more for the correction or the bonus; one draft pass for each draft token."""
    pair = table_pair(TARGET, DRAFT)
    params = specdec.SamplingParams(max_new_tokens=40, **SETTINGS[settings])
    with count_passes(pair.target) as target_fed, count_passes(pair.draft.model) as draft_fed:
        rounds = rounds_of(list(specdec.speculative(pair, PROMPT, gamma=4, params=params)))
    assert target_fed == [3] + [len(r.draft) + 1 for r in rounds[1:]]
    assert len(draft_fed) == 1 + sum(len(r.draft) for r in rounds)


@pytest.mark.parametrize("settings", SETTINGS)
def test_draft_cache_is_kept(settings: str) -> None:
    """The draft reads the prompt once, then one id in each pass; two after a bonus, with its own last guess.

    Drafting without a cache was a slip of the first notebooks, and cropping too much starves the draft silently.
    """
    pair = table_pair(TARGET, DRAFT)
    params = specdec.SamplingParams(max_new_tokens=60, **SETTINGS[settings])
    with count_passes(pair.draft.model) as fed:
        rounds = rounds_of(list(specdec.speculative(pair, PROMPT, gamma=3, params=params)))
    expected = [3]
    for previous, r in zip(rounds, rounds[1:], strict=False):
        expected += [2 if previous.token_kind == "bonus" else 1, 1, 1][: len(r.draft)]
    assert fed == expected


def test_plain_decoding_does_not_touch_the_draft() -> None:
    """Draft length 0 costs what the target alone costs."""
    pair = table_pair(TARGET, DRAFT)
    with count_passes(pair.target) as target_fed, count_passes(pair.draft.model) as draft_fed:
        events = list(specdec.speculative(pair, PROMPT, gamma=0, params=specdec.SamplingParams(max_new_tokens=9)))
    assert target_fed == [3] + [1] * 8 and draft_fed == []
    assert all(r.draft == () and r.token_kind == "target" for r in rounds_of(events))
    assert ids_of(events) == generated(pair.target, PROMPT, 9)


# --- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", ["sampling", "sampling, everything"])
def test_figures_of_sampling_are_true(settings: str) -> None:
    """q and p are the distributions of draft and target, each processed with the prefix of its own position."""
    events = run(max_new_tokens=120, **SETTINGS[settings])
    params, tested = events[0].params, 0
    for r, before in positions(events):
        for i, token in enumerate(r.draft):
            prefix = before + [t.token_id for t in r.draft[:i]]
            q = distribution(DRAFT, prefix, params)
            assert token.draft_prob == pytest.approx(q[token.token_id].item(), rel=1e-4)
            confidence = raw(DRAFT, prefix).softmax(-1)[token.token_id].item()
            assert token.draft_confidence == pytest.approx(confidence, rel=1e-4)
            if token.status == "discarded":
                assert (token.target_prob, token.accept_prob, token.draw, token.target_token_id) == (None,) * 4
                assert token.overlap is None
                continue
            p = distribution(TARGET, prefix, params)
            shared = torch.minimum(p, distribution(DRAFT, prefix, params)).sum().item()
            assert token.overlap == pytest.approx(shared, rel=1e-4, abs=1e-6)
            tested += 1
            assert token.target_prob == pytest.approx(p[token.token_id].item(), rel=1e-4, abs=1e-7)
            assert token.accept_prob == pytest.approx(min(1.0, token.target_prob / token.draft_prob), rel=1e-5)
            assert 0 <= token.draw < 1
            assert (token.draw < token.accept_prob) == (token.status == "accepted")
            assert token.target_token_id == int(p.argmax())
    assert tested > 60


@pytest.mark.parametrize("settings", ["greedy", "greedy, penalty"])
def test_figures_of_greedy_are_true(settings: str) -> None:
    """In greedy decoding nothing is drawn, p and q are one-hot, and the raw confidence is recorded too."""
    events = run(max_new_tokens=100, **SETTINGS[settings])
    params = dataclasses.replace(events[0].params, temperature=1.0)
    for r, before in positions(events):
        for i, token in enumerate(r.draft):
            prefix = before + [t.token_id for t in r.draft[:i]]
            assert (token.draft_prob, token.draw, token.overlap) == (1, None, None)
            confidence = raw(DRAFT, prefix).softmax(-1)[token.token_id].item()
            assert token.draft_confidence == pytest.approx(confidence, rel=1e-4)
            assert token.token_id == int(distribution(DRAFT, prefix, params).argmax())
            if token.status == "discarded":
                assert (token.target_prob, token.accept_prob, token.target_token_id) == (None,) * 3
                continue
            assert token.target_prob == token.accept_prob == float(token.status == "accepted")
            assert token.target_token_id == int(distribution(TARGET, prefix, params).argmax())
            assert (token.target_token_id == token.token_id) == (token.status == "accepted")


@pytest.mark.parametrize("settings", SETTINGS)
def test_decision_shows_where_the_target_added_its_token(settings: str) -> None:
    """Ten best of p, of q where a draft token was rejected, and the residual that the correction was drawn from."""
    events = run(max_new_tokens=100, **SETTINGS[settings])
    params, kinds = events[0].params, set()
    greedy = params.greedy

    def require(rows, exact: torch.Tensor) -> None:  # tokens of probability zero may be left out
        best = [value for value in exact.topk(10).values.tolist() if value > 1e-6]
        assert [value for _, value in rows[: len(best)]] == pytest.approx(best, rel=1e-4, abs=1e-6)
        assert len(rows) <= 10 and all(value == pytest.approx(exact[i].item(), rel=1e-4, abs=1e-6) for i, value in rows)

    def exact(table: torch.Tensor, prefix: list[int]) -> torch.Tensor:
        return raw(table, prefix).softmax(-1) if greedy else distribution(table, prefix, params)

    for r, before in positions(events):
        prefix = before + [t.token_id for t in r.draft if t.status == "accepted"]
        best = raw(TARGET, prefix).topk(2).values
        assert r.target_margin == pytest.approx((best[0] - best[1]).item(), rel=1e-4, abs=1e-5)
        p = exact(TARGET, prefix)
        require(r.decision.p, p)
        kinds.add(r.token_kind)
        if r.token_kind != "correction":
            assert (r.decision.q, r.decision.residual) == (None, None)
            continue
        q = exact(DRAFT, prefix)
        require(r.decision.q, q)
        if greedy:
            assert r.decision.residual is None
        else:
            rest = (p - q).clamp(min=0)
            require(r.decision.residual, rest / rest.sum())
            assert rest[r.token_id] > 0
    assert kinds >= {"correction", "bonus"}


@pytest.mark.parametrize("settings", SETTINGS)
def test_missed_holds_the_drafts_own_choices(settings: str) -> None:
    """If the target added a token before the draft read that far, the draft's next pass gives its own choice there."""
    events = run(max_new_tokens=100, gamma=2, **SETTINGS[settings])
    params = events[0].params
    params = dataclasses.replace(params, temperature=params.temperature or 1.0)
    rounds, missed = rounds_of(events), 0
    for (r, before), previous in zip(list(positions(events))[1:], rounds, strict=False):
        if not r.draft:
            assert r.missed == ()
            continue
        assert len(r.missed) == (previous.token_kind in ("bonus", "target"))
        for back, (choice, confidence) in enumerate(reversed(r.missed), start=1):
            prefix = before[:-back]
            assert choice == int(distribution(DRAFT, prefix, params).argmax())
            assert confidence == pytest.approx(raw(DRAFT, prefix).softmax(-1)[choice].item(), rel=1e-4)
            missed += 1
    assert missed > 5


def test_lossy_acceptance_is_labelled_and_accepts_more() -> None:
    """Top-k acceptance writes another text with a higher acceptance.

    Started names it, and each token follows its rule.
    """
    lossless = run(gamma=4, max_new_tokens=80)
    lossy = run(gamma=4, max_new_tokens=80, lossy=3)
    assert (lossy[0].acceptance, lossy[0].accept_top_k) == ("top-k", 3)
    assert (lossless[0].acceptance, lossless[0].accept_top_k) == ("lossless", None)
    rate = lambda events: specdec.collect(iter(events)).metrics.alpha  # noqa: E731
    assert rate(lossy) > rate(lossless)
    assert ids_of(lossy) != ids_of(lossless)
    for r, before in positions(lossy):
        for i, token in enumerate(r.draft):
            best = raw(TARGET, before + [t.token_id for t in r.draft[:i]]).topk(3).indices.tolist()
            assert token.status == "discarded" or (token.token_id in best) == (token.status == "accepted")
    assert ids_of(run(gamma=4, max_new_tokens=80, lossy=1)) == ids_of(lossless)


def test_lossy_acceptance_samples_too() -> None:
    """With a temperature the target's own tokens are drawn, reproducibly, and figures stay complete."""
    settings = {"temperature": 1.0, "seed": 5, "lossy": 4, "max_new_tokens": 60}
    events = run(**settings)
    assert without_seconds(events) == without_seconds(run(**settings))
    assert len(ids_of(events)) == 60


# --- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS)
def test_same_call_same_events(settings: str) -> None:
    """The arguments determine everything except the seconds."""
    settings = {"seed": 1} | SETTINGS[settings]
    assert without_seconds(run(**settings)) == without_seconds(run(**settings))


def test_seed_is_recorded_and_reproduces() -> None:
    """A run without a seed draws one and says which, so that it can be run again."""
    first, second = run(temperature=1.0), run(temperature=1.0)
    assert isinstance(first[0].params.seed, int)
    assert first[0].params.seed != second[0].params.seed
    assert ids_of(first) != ids_of(second)
    assert ids_of(run(temperature=1.0, seed=first[0].params.seed)) == ids_of(first)


def test_seed_zero_is_a_seed() -> None:
    """0 is a valid seed, and differs from other seeds."""
    assert run(temperature=1.0, seed=0)[0].params.seed == 0
    assert ids_of(run(temperature=1.0, seed=0)) != ids_of(run(temperature=1.0, seed=1))


def test_draws_are_independent() -> None:
    """Each call has one generator, seeded once.

    Seeding inside the loop would repeat the same draws (a bug of others).
    """
    events = run(temperature=1.0, seed=4, max_new_tokens=200)
    draws = [t.draw for r in rounds_of(events) for t in r.draft if t.draw is not None]
    assert len(draws) > 60 and len(set(draws)) == len(draws)


def test_global_random_state_is_left_alone() -> None:
    """The caller's global generator is neither used nor seeded."""
    before = torch.random.get_rng_state()
    run(temperature=1.0)
    run(temperature=1.0, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.rand(3)
    assert ids_of(run(temperature=1.0, seed=5)) == ids_of(run(temperature=1.0, seed=5))


@pytest.mark.parametrize("after", [0, 1, 2, 4])
def test_closing_early_leaves_nothing_behind(after: int) -> None:
    """After closing the generator, as Stop on the page does, the next call works as on a fresh pair."""
    pair = table_pair(TARGET, DRAFT)
    params = specdec.SamplingParams(max_new_tokens=40, temperature=1.0, seed=9)
    state = torch.random.get_rng_state()
    lane = specdec.speculative(pair, PROMPT, gamma=4, params=params)
    seen = [next(lane) for _ in range(after)]
    lane.close()
    with pytest.raises(StopIteration):
        next(lane)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    again = list(specdec.speculative(pair, PROMPT, gamma=4, params=params))
    assert without_seconds(again) == without_seconds(run(temperature=1.0, seed=9))
    assert without_seconds(again)[:after] == without_seconds(seen)
    result = specdec.collect(seen)
    assert (result.cancelled, result.finish_reason) == (True, None)


def test_calls_may_be_interleaved() -> None:
    """Caches, random state and history belong to one call; the models are shared."""
    pair = table_pair(TARGET, DRAFT)
    calls = [
        (prompt_of(length, WIDTH), specdec.SamplingParams(max_new_tokens=30, temperature=t, seed=length))
        for length, t in ((3, 1.0), (7, 0.0), (2, 0.8))
    ]
    alone = [list(specdec.speculative(pair, prompt, gamma=3, params=params)) for prompt, params in calls]
    lanes = [specdec.speculative(pair, prompt, gamma=3, params=params) for prompt, params in calls]
    seen: list[list] = [[] for _ in lanes]
    for _ in range(40):
        for events, lane in zip(seen, lanes, strict=True):
            events += [event for event in [next(lane, None)] if event is not None]
    assert [without_seconds(events) for events in seen] == [without_seconds(events) for events in alone]


def test_inference_mode_is_off_while_the_consumer_holds_an_event() -> None:
    """A consumer may train a model between two events: inference mode belongs inside the passes."""
    for event in specdec.speculative(
        table_pair(TARGET, DRAFT), PROMPT, params=specdec.SamplingParams(max_new_tokens=9)
    ):
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled(), event


class FakeClock:
    """A clock that advances by one millisecond at each reading."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def test_clock_stands_still_while_the_consumer_holds_an_event(monkeypatch) -> None:
    """Each event is held for an hour, and none of it is counted, so a slow page does not make decoding look slow."""
    clock = FakeClock()
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(time, "thread_time", clock)
    events = []
    params = specdec.SamplingParams(max_new_tokens=30)
    for event in specdec.speculative(table_pair(TARGET, DRAFT), PROMPT, gamma=4, params=params):
        events.append(event)
        clock.now += 3600
    assert 0 < events[-1].cpu_seconds < 3600 and 0 < events[-1].elapsed_seconds < 3600
    for r in rounds_of(events):
        assert r.draft_seconds + r.verify_seconds < 3600


def test_seconds_add_up(monkeypatch) -> None:
    """Times rise, a round's parts fit into the round, and the prefill ends with the first token."""
    monkeypatch.setattr(time, "perf_counter", FakeClock())
    events = run(gamma=4)
    rounds = rounds_of(events)
    stamps = [0.0, *[r.elapsed_seconds for r in rounds], events[-1].elapsed_seconds]
    assert stamps == sorted(stamps)
    assert events[-1].prefill_seconds == rounds[0].elapsed_seconds
    for earlier, r in zip(stamps, rounds, strict=False):
        assert r.draft_seconds >= 0 and r.verify_seconds > 0
        assert r.draft_seconds + r.verify_seconds <= r.elapsed_seconds - earlier + 1e-9
        assert 0 < r.model_seconds <= r.draft_seconds + r.verify_seconds + 1e-9


def test_copying_recurrent_state_is_a_part_of_its_own(monkeypatch) -> None:
    """Copying it for a roll-back happens within the checking, and does not count as such; restoring comes after it."""
    monkeypatch.setattr("specdec.forward.runner.Runner.take_copy_seconds", lambda self: (0.25, 0.5))
    monkeypatch.setattr("specdec.engine.decode.between", lambda start, end: 1.0)
    for r in rounds_of(run(max_new_tokens=4)):
        assert (r.draft_seconds, r.verify_seconds, r.state_seconds) == (1.0, 0.75, 0.75)
