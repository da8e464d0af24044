"""Whether faults of a server that speculates are found, and a right one is not accused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
from servers.table_server import Table, TableServer, serving

from specdec.errors import InvalidInput
from specdec.events import Grammar, SamplingParams
from specdec.measure.detectable import LEVEL
from specdec.measure.losslessness import compare_samples
from specdec.report.court import court_counts, court_headline, finding_sentence, sampled_sentences
from specdec.servers.answer import Asked
from specdec.servers.court import NEAR, Drawn, TextFinding, draws, greedy_court, samples_of
from specdec.servers.lane import Server, connect

GREEDY = SamplingParams(max_new_tokens=24)
PROMPTS = [(name, Asked(name, GREEDY, 20.0)) for name in "abcd"]


@contextmanager
def court(plain: TableServer, other: TableServer) -> Iterator[Sequence[Server]]:
    with serving(plain, other) as addresses:
        servers = [connect(name, url) for name, url in zip(("plain", "spec"), addresses, strict=True)]
        yield servers
        for server in servers:
            server.client.close()


def found(plain: TableServer, other: TableServer, prompts: int = len(PROMPTS)) -> list[TextFinding]:
    with court(plain, other) as servers:
        return list(greedy_court(*servers, PROMPTS[:prompts]))


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_a_right_server_writes_the_same(gamma: int) -> None:
    findings = found(TableServer(Table()), TableServer(Table(), gamma))
    assert [each.verdict for each in findings] == ["same"] * 4
    assert court_headline(findings, "plain", "spec") == "Same text: spec writes what plain writes on all 4 prompts."


@pytest.mark.parametrize("fault", ["stale", "cut"])
def test_a_fault_of_greedy_decoding_is_found(fault: str) -> None:
    findings = found(TableServer(Table()), TableServer(Table(), 3, fault))
    assert "fault" in {each.verdict for each in findings}
    assert {each.verdict for each in findings} <= {"fault", "same"}
    assert court_headline(findings, "plain", "spec").startswith("Fault: ")
    worst = next(each for each in findings if each.verdict == "fault")
    assert worst.at is not None and worst.margin is not None and worst.margin > NEAR
    assert finding_sentence(worst, "plain", "spec").endswith("plain's choice was clear.")


def tied() -> Table:
    """After each word, word 1 is behind the best one by less than ``NEAR``."""
    table = Table()
    for row in table.target:
        row[1] = max(value for place, value in enumerate(row) if place != 1) - NEAR / 4
    return table


def test_a_near_tie_is_no_fault() -> None:
    """The other server rounds differently: it takes the second best token where both are almost as likely."""
    findings = found(TableServer(tied()), TableServer(tied(), 3, nudge=NEAR / 2))
    assert {each.verdict for each in findings} == {"near tie"}
    assert all(each.rank == 2 and each.margin == pytest.approx(NEAR / 4) for each in findings)
    assert court_counts(findings) == "4 prompts: 4 with a near tie."


def test_without_the_grammar_no_choice_is_weighed() -> None:
    """The plain server is asked how clear its choice was without the grammar, which may forbid its best token."""
    asked = [("a", replace(PROMPTS[0][1], params=replace(GREEDY, grammar=Grammar("regex", ".*"))))]
    with court(TableServer(Table()), TableServer(Table(), 3, "stale")) as servers:
        assert [each.verdict for each in greedy_court(*servers, PROMPTS[:1])] == ["fault"]
        assert [(each.verdict, each.margin) for each in greedy_court(*servers, asked)] == [("unknown", None)]


def test_a_text_that_the_batch_changes_is_no_fault() -> None:
    """The plain server itself writes another text beside other calls, so speculation is not to blame."""
    findings = found(TableServer(tied(), batch_nudge=NEAR / 2), TableServer(tied(), 3, nudge=NEAR / 2), 1)
    assert [each.verdict for each in findings] == ["batch"]


@pytest.mark.parametrize(("fault", "lossless"), [("", True), ("argmax", False), ("residual", False)])
def test_samples_of_two_servers_are_compared(fault: str, lossless: bool) -> None:
    """Drafting by argmax while q is soft, and correcting from p in place of the residual, both show."""
    params = SamplingParams(max_new_tokens=4, temperature=1.0, ignore_eos=True)
    drawn: dict[str, list[Drawn]] = {"plain": [], "spec": []}
    table = Table(unlike=4.0)  # guesses are often wrong, so that corrections are many
    with court(TableServer(table), TableServer(table, 3, fault)) as servers:
        for name, each in draws(servers, Asked("a", params, 20.0), 400, seed=5):
            drawn[name].append(each)
    samples = samples_of(drawn)
    compared = compare_samples(samples["plain"], samples["spec"])
    assert (compared.p_value >= LEVEL) == lossless
    said = sampled_sentences(compared, LEVEL, 400, 4, ("plain", "spec"))
    assert said[0].startswith("No difference found" if lossless else "Not lossless")
    assert ("not below 0.001." in said[-1]) == lossless, "what decides stands beside the sizes, which do not"


def test_settings_that_cannot_be_compared_are_refused() -> None:
    sampled = Asked("a", SamplingParams(temperature=1.0), 20.0)
    with court(TableServer(Table()), TableServer(Table(), 3)) as servers:
        with pytest.raises(InvalidInput, match="set the temperature to 0"):
            greedy_court(*servers, [("a", sampled)])
        with pytest.raises(InvalidInput, match="set a temperature above 0"):
            draws(servers, PROMPTS[0][1], 50, 1)
