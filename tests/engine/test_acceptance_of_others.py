"""Acceptance rules of other packages: an honest one passes the shared tests, a false claim is found, and names work."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest
import torch

import specdec
import specdec.cli
from specdec import entry_points
from specdec.engine.acceptance import Acceptance, Block, Lossless, TopK, acceptance_of
from specdec.engine.verify import verify, verify_greedy
from specdec.measure.conformance import AcceptanceConformance
from specdec.report import recording


@dataclass(frozen=True)
class Cautious(Acceptance):
    """Keeps one draft token at most."""

    name = "cautious"
    lossless = True

    def judge(self, draft, processed, choices, p, sampler):
        most = torch.tensor(1) if draft.limit is None else draft.limit.clamp(max=1)
        if p is None:
            return verify_greedy(draft.ids, choices, most)
        return verify(draft.ids, draft.q, p, sampler.rng, most)


class TestCautious(AcceptanceConformance):
    rule = Cautious()


class TestLossless(AcceptanceConformance):
    rule = Lossless()


class TestBlock(AcceptanceConformance):
    rule = Block()


class TestTopK(AcceptanceConformance):
    rule = TopK(2)


@dataclass(frozen=True)
class Liar(TopK):
    """Claims to be lossless and is not."""

    name = "liar"
    lossless = True
    top_k: int = 2


class Lying(AcceptanceConformance):
    __test__ = False
    rule = Liar()


@pytest.mark.parametrize("text", ["sampled_text_has_the_distribution", "greedy_text_is_that"])
def test_a_false_claim_is_found(text: str) -> None:
    with pytest.raises(AssertionError, match="it claims to be lossless, and"):
        getattr(Lying(), f"test_{text}_of_the_target")()


@dataclass(frozen=True)
class Drawing(Cautious):
    """Draws by itself, where nobody can go through the outcomes."""

    def judge(self, draft, processed, choices, p, sampler):
        torch.rand(1, generator=sampler.rng)
        return super().judge(draft, processed, choices, p, sampler)


class DrawsItself(AcceptanceConformance):
    __test__ = False
    rule = Drawing()


def test_a_rule_that_draws_by_itself_is_found() -> None:
    with pytest.raises(AssertionError, match="it draws by itself"):
        DrawsItself().test_sampled_text_has_the_distribution_of_the_target()


@pytest.fixture
def offered(monkeypatch) -> Iterator[list[EntryPoint]]:
    """The entry points of installed packages. The first one is ``Cautious``."""
    points = [EntryPoint("cautious", f"{__name__}:Cautious", entry_points.ACCEPTANCE)]
    monkeypatch.setattr(entry_points, "entry_points", lambda group: points if group == entry_points.ACCEPTANCE else [])
    entry_points.loaded.cache_clear()
    yield points
    entry_points.loaded.cache_clear()


def test_a_rule_of_another_package_is_named_like_ours(offered, capsys, monkeypatch) -> None:
    """In Python and on the command line; the recording says what it claims, and the terminal does not warn."""
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # a command takes a thread from this process
    pair, params = specdec.load_pair(), specdec.SamplingParams(8)
    events = list(specdec.speculative(pair, "Once upon a time", params=params, acceptance="cautious"))
    assert events[0].acceptance == "cautious" and events[0].claims_lossless
    assert max(sum(token.status == "accepted" for token in each.draft) for each in events[1:-1]) == 1
    specdec.cli.main(["run", "Once upon a time", "--tokens", "8", "--acceptance", "cautious", "--json"])
    lanes = recording.lanes(capsys.readouterr().out.splitlines())
    (drafted,) = [lane[0] for lane in lanes if lane[0].gamma]
    assert drafted.acceptance == "cautious" and drafted.claims_lossless
    verdict = specdec.verdict(specdec.race(pair, "Once upon a time", params=params, acceptance="cautious"))
    assert verdict.warning is None and "cautious acceptance (claims to be lossless)" in verdict.caption


def test_a_rule_that_claims_nothing_is_shown_with_a_warning(offered) -> None:
    offered.append(EntryPoint("loose", f"{__name__}:Loose", entry_points.ACCEPTANCE))
    params = specdec.SamplingParams(8)
    verdict = specdec.verdict(specdec.race(specdec.load_pair(), "Once", params=params, acceptance="loose"))
    assert verdict.warning == "Not lossless: loose acceptance changes the output."
    assert "loose acceptance (lossy)" in verdict.caption


@dataclass(frozen=True)
class Loose(Liar):
    name = "loose"
    lossless = False


@dataclass(frozen=True)
class Needy(Cautious):
    name = "needy"
    most: int


def test_no_other_package_takes_a_name_of_ours(offered) -> None:
    offered.append(EntryPoint("block", f"{__name__}:Cautious", entry_points.ACCEPTANCE))
    assert acceptance_of("block") == Block() and acceptance_of("cautious") == Cautious()


def test_a_wrong_name_is_refused_with_those_that_there_are(offered) -> None:
    offered.append(EntryPoint("other", f"{__name__}:Cautious", entry_points.ACCEPTANCE))
    with pytest.raises(specdec.InvalidInput, match="use 'lossless', 'block', 'top-k', 'cautious' or 'other'"):
        acceptance_of("typical")
    with pytest.raises(specdec.InvalidInput, match="calls it 'cautious'; both must be equal"):
        acceptance_of("other")
    with pytest.raises(specdec.InvalidInput, match="leave one of them out"):
        acceptance_of("cautious", 3)
    offered.append(EntryPoint("needy", f"{__name__}:Needy", entry_points.ACCEPTANCE))
    entry_points.loaded.cache_clear()
    with pytest.raises(specdec.InvalidInput, match="'needy' cannot be made without arguments"):
        acceptance_of("needy")


@pytest.mark.parametrize("value", ["no_such_module:Rule", "specdec.engine.acceptance:Acceptance", "json:dumps"])
def test_what_cannot_be_used_is_left_out_with_a_warning(offered, value: str) -> None:
    offered.append(EntryPoint("broken", value, entry_points.ACCEPTANCE))
    with pytest.warns(UserWarning, match="'broken' .* (cannot be loaded|is no whole Acceptance)"):
        assert acceptance_of("cautious") == Cautious()
    with pytest.raises(specdec.InvalidInput, match="'broken' of an installed package cannot be used"):
        acceptance_of("broken")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert acceptance_of("lossless") == Lossless()


def test_names_are_listed_without_torch() -> None:
    code = "import sys; from specdec.entry_points import *; names_of(ACCEPTANCE); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("rule", "claims"), [("lossless", True), ("block", True), ("top-k", False)])
def test_an_older_recording_says_by_its_rule_whether_it_was_lossless(rule: str, claims: bool) -> None:
    params = specdec.SamplingParams(2)
    top_k = 2 if rule == "top-k" else None
    events = specdec.speculative(specdec.load_pair(), "Once", params=params, acceptance=rule, accept_top_k=top_k)
    started = next(events)
    record = {"event": "started", **dataclasses.asdict(started)}
    assert record.pop("claims_lossless") is claims
    assert next(recording.read_recording([json.dumps(record)])) == started
    false = record | {"claims_lossless": not claims}
    assert next(recording.read_recording([json.dumps(false)])) == started
