"""Sampling is lossless: speculative decoding has the target's distribution.

Nothing is sampled here. The tests go through every outcome of every random choice (``enumeration``), and compare the
whole distribution with the one that the target's table and the settings define. Tests that end in ``is_caught`` put
known bugs in and check that the comparison fails. ``test_sampling_distribution`` samples with the real generator.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable

import pytest
import torch
from enumeration import Target
from fakes import letter_tokenizer, random_table, rounds_of, table_model
from pairwise import each_once, few

import specdec
from specdec.drafters.base import DraftChoices
from specdec.drafters.cross_tokenizer import TranslatedDraft
from specdec.drafters.draft_model import ModelDraft
from specdec.engine.chooser import Chooser
from specdec.engine.policy import AutoGamma, Policy
from specdec.forward.hf_cache import PreallocatedLayer
from specdec.measure.enumeration import CLOSE, distance, distribution
from specdec.runtime import draws
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop

decode_module = importlib.import_module("specdec.engine.decode")
verify_module = importlib.import_module("specdec.engine.verify")

CAUGHT = 1e-3  # a bug must move some chance by more than this

# --- the pure function -----------------------------------------------------------------------------------------------

V = 4


def distributions(gamma: int, kind: str) -> tuple[torch.Tensor, torch.Tensor]:
    """q (gamma, V, V) and p (gamma + 1, V, V): rows by position and by the token before it."""
    rng = torch.Generator().manual_seed(gamma)
    q = torch.randn(gamma, V, V, generator=rng).mul(1.5).softmax(-1)
    p = torch.randn(gamma + 1, V, V, generator=rng).mul(1.5).softmax(-1)
    if kind == "equal":
        p[:gamma] = q
    elif kind == "rounding":  # the same up to the last bits: the residual is nearly nothing, or nothing at all
        p[:gamma] = q * (1 + 1e-7 * torch.randn(q.shape, generator=rng))
    elif kind == "zeros":
        q[..., 0], q[..., 3], p[..., 1] = 0.0, 0.0, 0.0
    elif kind == "disjoint":
        q[..., 2:], p[..., :2] = 0.0, 0.0
    elif kind == "one-hot draft":
        q = torch.zeros_like(q)
        q[..., 2] = 1.0
    return q / q.sum(-1, keepdim=True), p / p.sum(-1, keepdim=True)


def verified(gamma: int, kind: str, judge: str = "verify") -> tuple[dict, dict]:
    """The chances of the gamma + 1 tokens written and of the number accepted, over all drafts and all draws.

    Every token depends on the one before it. After what ``judge`` commits, the sequence is completed from p.
    """
    q, p = distributions(gamma, kind)
    rng = torch.Generator()

    def write() -> tuple[int, tuple[int, ...]]:
        before, draft, q_rows, p_rows = 0, [], [], [p[0, 0]]
        for i in range(gamma):
            q_rows.append(q[i, before])
            before = int(draws.draw(q_rows[-1][None], rng))
            draft.append(before)
            p_rows.append(p[i + 1, before])
        rows = torch.stack(q_rows) if gamma else torch.zeros(0, V)
        ids = torch.tensor(draft, dtype=torch.long)
        verdict = getattr(verify_module, judge)(ids, rows, torch.stack(p_rows), rng)
        return int(verdict.accepted), (*draft[: verdict.accepted], int(verdict.token_id))

    texts, accepted = defaultdict(float), defaultdict(float)
    for (n, text), share in distribution(write, every=True)[0].items():
        accepted[n] += share
        for rest in itertools.product(range(V), repeat=gamma + 1 - len(text)):
            whole = (*text, *rest)
            steps = range(len(text), gamma + 1)
            texts[whole] += share * math.prod(p[i, whole[i - 1], whole[i]].item() for i in steps)
    return texts, accepted


def written_by(p: torch.Tensor) -> dict[tuple[int, ...], float]:
    steps = range(len(p))
    texts = itertools.product(range(V), repeat=len(p))
    return {ids: math.prod(p[i, ids[i - 1] if i else 0, ids[i]].item() for i in steps) for ids in texts}


KINDS = ("different", "equal", "rounding", "zeros", "disjoint", "one-hot draft")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [0, 1, 2, 3])
def test_verify_writes_what_the_target_would(gamma: int, kind: str) -> None:
    """The written tokens follow p, and as many as possible are accepted (Leviathan et al., Theorem 3.5)."""
    q, p = distributions(gamma, kind)
    texts, accepted = verified(gamma, kind)
    assert distance(texts, written_by(p)) < CLOSE
    at_least = [1.0] + [0.0] * (gamma + 1)  # the chance that n draft tokens or more are accepted
    for n in range(1, gamma + 1):
        for ids in itertools.product(range(V), repeat=n):
            rows = list(enumerate(zip((0, *ids), ids, strict=False)))
            at_least[n] += math.prod(min(p[i, b, t].item(), q[i, b, t].item()) for i, (b, t) in rows)
    assert distance(accepted, {n: at_least[n] - at_least[n + 1] for n in range(gamma + 1)}) < CLOSE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [0, 1, 2, 3])
def test_verify_block_writes_what_the_target_would(gamma: int, kind: str) -> None:
    """The written tokens follow p.

    n or more are accepted with the probability of their weight (Sun et al., Lemma 3).
    """
    q, p = distributions(gamma, kind)
    texts, accepted = verified(gamma, kind, "verify_block")
    assert distance(texts, written_by(p)) < CLOSE
    at_least = [1.0] + [0.0] * (gamma + 1)
    for n in range(1, gamma + 1):
        for ids in itertools.product(range(V), repeat=n):
            drafted, weight = 1.0, 1.0
            for i, (b, t) in enumerate(zip((0, *ids), ids, strict=False)):
                drafted *= q[i, b, t].item()
                weight = min(1.0, weight * p[i, b, t].item() / q[i, b, t].item()) if drafted else 0.0
            at_least[n] += drafted * weight
    assert distance(accepted, {n: at_least[n] - at_least[n + 1] for n in range(gamma + 1)}) < CLOSE


@pytest.mark.parametrize("kind", KINDS)
def test_block_verification_keeps_no_less(kind: str) -> None:
    """Sun et al., Theorem 2; with more than one draft token and different distributions it keeps more."""

    def kept(gamma: int, judge: str) -> float:
        return sum(n * share for n, share in verified(gamma, kind, judge)[1].items())

    assert kept(1, "verify_block") == pytest.approx(kept(1, "verify"), abs=CLOSE)
    for gamma in (2, 3):
        assert kept(gamma, "verify_block") > kept(gamma, "verify") - CLOSE
        if kind == "different":
            assert kept(gamma, "verify_block") > kept(gamma, "verify") + CAUGHT


def no_residual(monkeypatch) -> None:
    monkeypatch.setattr(verify_module, "residual", lambda n, q, p, weight=1.0: p.index_select(0, n.view(1)))


def test_missing_residual_is_caught_in_verify(monkeypatch) -> None:
    """Drawing the correction from p instead of the residual writes the draft's favourites too often."""
    no_residual(monkeypatch)
    assert distance(verified(1, "different")[0], written_by(distributions(1, "different")[1])) > CAUGHT


@pytest.mark.parametrize("bug", ["first test that fails", "residual without the weight", "ratio of one"])
def test_wrong_block_verification_is_caught(monkeypatch, bug: str) -> None:
    """A block that stands up to the first failure, a residual of p instead of w p, and weights that are not p/q."""
    if bug == "first test that fails":
        monkeypatch.setattr(verify_module, "_last", verify_module._leading)
    elif bug == "residual without the weight":
        whole = verify_module.residual
        monkeypatch.setattr(verify_module, "residual", lambda n, q, p, weight: whole(n, q, p))
    else:
        monkeypatch.setattr(verify_module, "_ratios", lambda ids, q, p: torch.ones_like(q[:, 0]))
    texts = verified(3, "different", "verify_block")[0]
    assert distance(texts, written_by(distributions(3, "different")[1])) > 100 * CLOSE


# --- whole texts through the engine ----------------------------------------------------------------------------------

WIDTH = 3
PROMPT = (1, 2, 1)  # its end stood before, as prompt lookup wants it; a penalty does not know token 0 yet
TARGET = random_table(WIDTH, 2, seed=0)
DRAFT = TARGET + random_table(WIDTH, 2, seed=1)


def pair_of(drafting: str, eos: int | list[int] | None = None) -> specdec.Pair:
    """TARGET, and one way to draft for it."""
    target = table_model(TARGET, eos=eos)
    if drafting == "prompt lookup":
        return specdec.Pair(target=target, draft=specdec.PromptLookup(max_ngram=2))
    if drafting == "early exit":  # the first of two layers whose sum is TARGET
        return specdec.Pair(target=table_model(DRAFT, TARGET - DRAFT, eos=eos), draft=specdec.EarlyExit(1))
    if (
        drafting == "other tokenizer"
    ):  # "c" is missing, three tokens are strange, the shared ones stand in another order
        draft = table_model(random_table(5, 2, seed=2))
        names = letter_tokenizer(["x", "b", "ab", "a", "y"])
        return specdec.Pair(target, draft, tokenizer=letter_tokenizer(list("abc")), draft_tokenizer=names)
    if drafting == "padded target":
        return specdec.Pair(target=table_model(TARGET, vocab_size=WIDTH + 2, eos=eos), draft=table_model(DRAFT))
    if drafting == "padded draft":
        return specdec.Pair(target=target, draft=table_model(DRAFT, vocab_size=WIDTH + 2))
    if drafting == "wider draft":  # some of its chance is on ids that the target does not have
        return specdec.Pair(target=target, draft=table_model(random_table(WIDTH + 1, 2, seed=3)))
    if drafting == "narrower draft":  # it cannot propose the last id, and has no row to read it with
        return specdec.Pair(target=target, draft=table_model(random_table(WIDTH - 1, 2, seed=4)))
    if drafting == "model":
        return specdec.Pair(target=target, draft=table_model(DRAFT))
    raise ValueError(drafting)


METHODS = ("model", "prompt lookup", "early exit", "other tokenizer")
SIZES = ("padded target", "padded draft", "wider draft", "narrower draft")

SETTINGS = {
    "plain": {"temperature": 1.0},
    "temperature": {"temperature": 0.6},
    "top-k": {"temperature": 1.0, "top_k": 2},
    "top-p": {"temperature": 1.0, "top_p": 0.75},
    "min-p": {"temperature": 1.0, "min_p": 0.4},
    "repetition penalty": {"temperature": 1.0, "repetition_penalty": 1.5},
    "all": {"temperature": 0.8, "top_k": 2, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.3},
}
NARROW = {"temperature": 1.3, "top_k": 2, "repetition_penalty": 1.2}  # two choices a token: long texts stay few


def difference(
    pair: specdec.Pair,
    settings: dict,
    gamma: int | str | Policy,
    tokens: int,
    rounds: int | None = None,
    eos: Iterable[int] = (),
    acceptance: str = "lossless",
) -> float:
    """The largest difference in the chance of a text between the engine and the target alone.

    With ``rounds`` the engine is stopped after so many drafts, and the target completes the text.
    """
    params = specdec.SamplingParams(max_new_tokens=tokens, seed=0, **settings)
    prompt = torch.tensor(PROMPT)

    def write() -> tuple[int, ...]:
        events = specdec.speculative(pair, prompt, gamma=gamma, params=params, acceptance=acceptance)
        text: tuple[int, ...] = ()
        for event in events:
            text += getattr(event, "committed_ids", ())
            if rounds is not None and getattr(event, "index", None) == rounds:
                events.close()
        return text

    target = Target(TARGET, PROMPT, params, frozenset(eos))
    texts, paths = distribution(write, every=acceptance == "block")
    assert paths > 1
    if rounds is None:
        assert all(target.ended(text) for text in texts)
    return distance(target.completed(texts), target.completed({(): 1.0}))


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("drafting", METHODS)
def test_settings(drafting: str, settings: str) -> None:
    """Two draft tokens, with every outcome."""
    assert difference(pair_of(drafting), SETTINGS[settings], gamma=2, tokens=4, rounds=1) < CLOSE


@pytest.mark.parametrize("settings", ["plain", "all"])
@pytest.mark.parametrize("drafting", SIZES)
def test_sizes(drafting: str, settings: str) -> None:
    """Rows that no token has, on either side, and a draft that knows more tokens than its target, or fewer."""
    assert difference(pair_of(drafting), SETTINGS[settings], gamma=2, tokens=4, rounds=1) < CLOSE


@each_once(drafting=METHODS, gamma=range(1, 6))
def test_draft_lengths(drafting: str, gamma: int) -> None:
    assert difference(pair_of(drafting), NARROW, gamma, tokens=gamma + 2, rounds=1) < CLOSE


@pytest.mark.parametrize("drafting", few(METHODS + SIZES, 5))
def test_several_rounds(drafting: str) -> None:
    """Up to four rounds, each after whatever the one before it left in the caches, until the length cuts the last."""
    assert difference(pair_of(drafting), NARROW, gamma=2, tokens=5) < CLOSE


@pytest.mark.parametrize("drafting", METHODS)
def test_several_rounds_over_the_full_vocabulary(drafting: str) -> None:
    assert difference(pair_of(drafting), {"temperature": 1.0}, gamma=1, tokens=3) < CLOSE


@pytest.mark.parametrize("drafting", METHODS)
def test_eos_inside_a_draft_ends_the_text(drafting: str) -> None:
    """What stands after it in the draft is dropped; either of two tokens ends the text."""
    eos = [2, 0]
    assert difference(pair_of(drafting, eos), NARROW, gamma=3, tokens=5, eos=eos) < CLOSE


@pytest.mark.parametrize("tokens", [1, 2, 3])
@pytest.mark.parametrize("drafting", METHODS)
def test_a_draft_is_no_longer_than_the_text_may_be(drafting: str, tokens: int) -> None:
    assert difference(pair_of(drafting), NARROW, gamma=5, tokens=tokens) < CLOSE


@each_once(drafting=("model", "early exit", "other tokenizer"), least_confidence=(0.3, 0.6))
def test_a_confidence_stop(drafting: str, least_confidence: float) -> None:
    """The token at which it stops is kept. Otherwise a draft's length would reveal which token was drawn."""
    policy = specdec.ConfidenceStop(3, least_confidence)
    assert difference(pair_of(drafting), NARROW, policy, tokens=5) < CLOSE


@pytest.mark.parametrize("drafting", METHODS + SIZES)
def test_block_verification(drafting: str) -> None:
    """Several rounds, each draft judged as a whole; then a long draft with all settings."""
    assert difference(pair_of(drafting), NARROW, gamma=2, tokens=4, acceptance="block") < CLOSE
    assert difference(pair_of(drafting), SETTINGS["all"], gamma=3, tokens=4, rounds=1, acceptance="block") < CLOSE


@pytest.mark.parametrize("drafting", METHODS)
def test_block_verification_where_the_text_ends(drafting: str) -> None:
    """At EOS in the midst of a draft, and at the length."""
    eos = [2, 0]
    pair = pair_of(drafting, eos)
    assert difference(pair, NARROW, gamma=3, tokens=4, eos=eos, acceptance="block") < CLOSE
    assert difference(pair, NARROW, gamma=5, tokens=3, eos=eos, acceptance="block") < CLOSE


@pytest.mark.parametrize("drafting", ["model", "early exit", "other tokenizer"])
def test_block_verification_with_a_confidence_stop(drafting: str) -> None:
    policy = specdec.ConfidenceStop(3, 0.6)
    assert difference(pair_of(drafting), NARROW, policy, tokens=4, acceptance="block") < CLOSE


class Grows:
    """Drafts more after a full acceptance, and nothing if no guess was accepted."""

    least_confidence = None

    def __init__(self) -> None:
        self._length = 1

    def start(self) -> Grows:
        return Grows()

    def length(self) -> int:
        return self._length

    def saw(self, event: specdec.Round) -> None:
        kept = [token.status for token in event.draft].count("accepted")
        self._length = 1 if not event.draft else kept + 1 if kept == len(event.draft) else 0


@pytest.mark.parametrize("drafting", METHODS)
def test_a_policy_that_looks_at_what_was_accepted(drafting: str) -> None:
    assert difference(pair_of(drafting), NARROW, Grows(), tokens=5) < CLOSE


@pytest.mark.parametrize("drafting", METHODS)
def test_the_automatic_length(drafting: str, monkeypatch) -> None:
    """It chooses by acceptance and by estimated costs, which do not change, so that a path can be walked again."""
    monkeypatch.setattr(Chooser, "_PLAN_EVERY", 1)
    assert difference(pair_of(drafting), NARROW, AutoGamma(), tokens=5) < CLOSE


@pytest.mark.parametrize("drafting", ["model", "early exit", "other tokenizer"])
def test_a_stop_by_the_survival_of_all_guesses(drafting: str, monkeypatch) -> None:
    """As "auto" sets it, with bounds that some drafts reach and others do not."""
    monkeypatch.setattr(Chooser, "length", lambda self: 3)
    monkeypatch.setattr(Chooser, "stop", DraftStop(least_survival=(0.5, 0.4, 0.3), slope=0.8, bias=0.3))
    assert difference(pair_of(drafting), NARROW, AutoGamma(), tokens=5) < CLOSE


# --- known bugs are caught -------------------------------------------------------------------------------------------


def test_missing_residual_is_caught(monkeypatch) -> None:
    """A correction drawn from p itself is not lossless."""
    no_residual(monkeypatch)
    assert difference(pair_of("model"), SETTINGS["plain"], gamma=2, tokens=4, rounds=1) > CAUGHT


def test_q_of_other_processors_is_caught(monkeypatch) -> None:
    """Drafting with temperature and top-k but accepting by the raw softmax is not lossless."""
    propose = ModelDraft.propose

    def unprocessed(self, *args, **kwargs):
        proposal = propose(self, *args, **kwargs)
        if not proposal.choices.logits:
            return proposal
        return proposal._replace(q=torch.cat(proposal.choices.logits)[: len(proposal.ids)].softmax(-1))

    monkeypatch.setattr(ModelDraft, "propose", unprocessed)
    assert difference(pair_of("model"), SETTINGS["all"], gamma=2, tokens=4, rounds=1) > CAUGHT


def test_unshared_part_of_q_is_caught(monkeypatch) -> None:
    """A draft with another tokenizer that keeps the share of its unshared tokens out of q is not lossless."""
    propose = TranslatedDraft.propose

    def unnormalised(self, *args, **kwargs):
        proposal = propose(self, *args, **kwargs)
        return proposal._replace(q=0.6 * proposal.q)

    monkeypatch.setattr(TranslatedDraft, "propose", unnormalised)
    assert difference(pair_of("other tokenizer"), SETTINGS["plain"], gamma=2, tokens=4, rounds=1) > CAUGHT


def test_stale_cache_row_is_caught(monkeypatch) -> None:
    """A roll-back that leaves one row of the rejected draft in the cache is not lossless."""
    crop = PreallocatedLayer.crop

    @torch.inference_mode()
    def stale(self, count):
        kept = self._length + count
        if count and kept:
            self._keys[..., kept - 1, :] = self._keys[..., kept, :]
        crop(self, count)

    monkeypatch.setattr(PreallocatedLayer, "crop", stale)
    assert difference(pair_of("model"), NARROW, gamma=2, tokens=5) > CAUGHT


def test_a_penalty_that_sees_later_draft_tokens_is_caught(monkeypatch) -> None:
    """Each row may be penalised for what stands before it, not for the draft tokens after it."""

    def penalised(self, logits, context, end):
        logits = self._penalty(context.ids(0, end)[None].expand(len(logits), -1), logits.clone())
        for warper in self._warpers:
            logits = warper(None, logits)
        return logits

    monkeypatch.setattr(Sampler, "process", penalised)
    assert difference(pair_of("model"), SETTINGS["repetition penalty"], gamma=2, tokens=4, rounds=1) > CAUGHT


def test_a_confidence_stop_that_drops_its_last_token_is_caught(monkeypatch) -> None:
    """The tokens that were drawn with little confidence would then be drafted too rarely."""
    propose = ModelDraft.propose

    def dropped(self, context, gamma, least_confidence):
        proposal = propose(self, context, gamma, least_confidence)
        n = len(proposal.ids) - 1
        if not 0 <= n < gamma - 1:
            return proposal
        if n == 0:
            return self._nothing
        ids, q = proposal.ids[:n], proposal.q[:n]
        return proposal._replace(ids=ids, q=q, choices=DraftChoices(ids, proposal.choices.logits[:n]))

    monkeypatch.setattr(ModelDraft, "propose", dropped)
    policy = specdec.ConfidenceStop(3, 0.5)
    assert difference(pair_of("model"), NARROW, policy, tokens=5) > CAUGHT


def test_lossy_acceptance_changes_the_distribution() -> None:
    """Lossy acceptance changes the distribution, and the comparison shows it."""
    params = specdec.SamplingParams(temperature=1.0, max_new_tokens=3, seed=0)
    pair, prompt = pair_of("model"), torch.tensor(PROMPT)

    def write() -> tuple[int, ...]:
        lane = specdec.speculative(pair, prompt, gamma=1, params=params, acceptance="top-k", accept_top_k=2)
        return tuple(token_id for event in rounds_of(list(lane)) for token_id in event.committed_ids)

    target = Target(TARGET, PROMPT, params)
    assert distance(distribution(write)[0], target.completed({(): 1.0})) > CAUGHT
