"""A pair under load: the gains that are computed, the passes that are timed, and what is said."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from cuda_standins import StandIn, forget_engines, stand_in_for_captures
from fakes import byte_tokenizer, noisy_copy, shared_tiny, tiny

import specdec
from specdec.cli import arguments as pair_arguments
from specdec.cli import load as command
from specdec.cli.parsers import parser_of
from specdec.errors import BadSetting, InvalidInput
from specdec.events import SamplingParams
from specdec.forward import cuda_graph
from specdec.forward.lean_check import lean_model
from specdec.forward.static_buffers import StaticPassView
from specdec.measure import batched_passes, cached_batch
from specdec.measure.batched_passes import (
    MachineLimit,
    all_pass_times,
    contexts_of,
    draft_model_of,
    machine_limit,
    pass_times,
    recorded_acceptance,
    require_passes,
)
from specdec.measure.cached_batch import GraphBatch, LeanBatch, TransformersBatch
from specdec.measure.load import GRAPH, LEAN, TRANSFORMERS, PassTimes, load_gains, tokens_a_round
from specdec.measure.prompts import PromptItem
from specdec.measure.roofline import Rates, weight_bytes, work_of
from specdec.report.load import (
    COMPUTED,
    COMPUTED_FEW,
    PASSES_SAID,
    LoadGain,
    computed_gains,
    gain_record,
    gain_table,
    gain_verdict,
)

KEPT = [0.8, 0.5, 0.5]


def times(batch: int, growth: float, runs: int = 3, context: int = 64) -> PassTimes:
    """A target pass takes 10 and ``growth`` more for each further token of a sequence; a draft pass takes 1."""
    return PassTimes(context, batch, {w: [10 + growth * (w - 1)] * runs for w in (1, 2, 3, 4)}, [1.0] * runs)


@pytest.fixture(scope="module")
def pair() -> specdec.Pair:
    target = tiny("llama", layers=2)
    return specdec.Pair(target, noisy_copy(target), tokenizer=byte_tokenizer())


def test_gains_are_those_computed_by_hand() -> None:
    assert tokens_a_round(KEPT, 0) == 1
    assert tokens_a_round(KEPT, 3) == pytest.approx(1 + 0.8 + 0.4 + 0.2)
    assert tokens_a_round(KEPT, 5) == tokens_a_round(KEPT, 3)  # places that were never tested
    assert load_gains(times(4, 2.0), KEPT, 1) == pytest.approx([1.8 * 10 / (1 + 12)] * 3)
    assert load_gains(times(4, 2.0), KEPT, 3) == pytest.approx([2.4 * 10 / (3 + 16)] * 3)
    uneven = PassTimes(64, 1, {1: [10, 20], 2: [10, 20]}, [5, 0])
    assert load_gains(uneven, KEPT, 1) == pytest.approx([1.8 * 10 / 15, 1.8])


def test_gains_fall_as_checking_more_tokens_costs_more() -> None:
    for gamma in (1, 2, 3):
        gains = [load_gains(times(8, growth), KEPT, gamma)[0] for growth in (0.0, 1.0, 3.0, 10.0)]
        assert gains == sorted(gains, reverse=True) and gains[-1] < 1 < gains[0]


def test_the_largest_load_at_which_each_length_pays_is_named() -> None:
    found = [times(1, 1.0), times(2, 3.0), times(4, 6.5)]
    gains = computed_gains(found, [times(each.batch, 0.0, 1) for each in found], KEPT)
    said = gain_verdict(gains, KEPT, None)
    assert said[0] == (
        "With 64 tokens of context: \u03b3 1 pays up to 2 at once; \u03b3 2 pays up to 2 at once; "
        "\u03b3 3 pays up to 2 at once."
    )
    assert said[1] == "No clear difference with 64 tokens: \u03b3 1 at 4 at once."
    assert said[-1] == COMPUTED.format(passes=PASSES_SAID[TRANSFORMERS])
    table = gain_table(gains)
    assert [row[:2] for row in table.rows] == [("64", "1"), ("64", "2"), ("64", "4")]
    assert table.rows[0][2:] == ("1.50x", "1.57x", "1.50x", "1.85x")
    everywhere = gain_verdict(computed_gains(found[:2], None, KEPT), KEPT, (8, 2))
    assert "\u03b3 1 pays up to 2 at once, the most that was timed" in everywhere[0]
    assert any("mixture of experts: a token reads 2 of 8" in sentence for sentence in everywhere)
    nowhere = gain_verdict(computed_gains([times(1, 30.0)], None, KEPT), KEPT, None)
    assert "\u03b3 1 does not pay; " in nowhere[0] and COMPUTED_FEW not in nowhere
    once = gain_verdict(computed_gains([times(1, 30.0, 1)], None, KEPT), KEPT, None)
    assert COMPUTED_FEW in once


def test_a_gain_of_two_runs_is_one_figure_everywhere() -> None:
    """The table, the record and the verdict have the slower of the two, not their mean."""
    gain = LoadGain(64, 1, 2, (1.3, 1.04), None)
    assert gain_table([gain]).rows[0][2] == "1.04x (1.04\u20131.30)" and gain_record(gain)["computed_gain"] == 1.04
    assert gain.pays is None, "4 % is no clear difference in two runs"


@pytest.mark.parametrize(
    ("family", "passes"),
    [
        *[(family, TRANSFORMERS) for family in ("llama", "gpt2", "gemma2", "mixtral")],
        *[(family, passes) for family in ("llama", "gpt2") for passes in (LEAN, GRAPH)],
    ],
)
def test_a_pass_over_a_filled_cache_is_that_of_whole_texts(family: str, passes: str, monkeypatch) -> None:
    """Filled in parts, and forgotten after each pass: logits are those of the whole text, again and again."""
    monkeypatch.setattr(cached_batch, "PART", 7)
    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: StandIn([]))
    model = shared_tiny(family)
    ids = torch.randint(0, 320, (3, 24), generator=torch.Generator().manual_seed(1))
    outputs = []

    def timed(device: torch.device, work) -> float:
        outputs.append(work().clone())  # a replay overwrites it
        return 1.0

    with torch.inference_mode():
        cached = cached_batch.cached_batch(model, ids[:, :20], 4, passes)
        for width in (4, 1, 4):
            assert cached.seconds(ids[:, 20 : 20 + width], timed) == 1.0
        whole = model(input_ids=ids).logits
    for width, logits in zip((4, 1, 4), outputs, strict=True):
        if passes != TRANSFORMERS:  # its rows are the first token of each sequence, then the second one of each
            logits = logits.unflatten(0, (width, 3)).transpose(0, 1)
        torch.testing.assert_close(logits, whole[:, 20 : 20 + width], atol=1e-4, rtol=1e-4)


KINDS = {TRANSFORMERS: TransformersBatch, LEAN: LeanBatch, GRAPH: GraphBatch}


@pytest.mark.parametrize(("passes", "kind"), KINDS.items())
def test_every_pass_is_timed_in_turns_and_the_median_counts(passes, kind, pair, monkeypatch) -> None:
    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: StandIn([]))
    shapes, clock = [], iter(range(10**6))
    inner = kind.seconds

    def noted(self, ids, timed):
        shapes.append(tuple(ids.shape))
        return inner(self, ids, timed)

    monkeypatch.setattr(kind, "seconds", noted)
    monkeypatch.setattr(batched_passes, "TURNS", 3)
    found = pass_times(pair, torch.arange(50), 16, 4, 2, 2, lambda device, work: float(next(clock)), passes)
    turn = [(4, 1), (4, 1), (4, 2), (4, 3)]  # the draft's, and the target's
    assert shapes == turn * (1 + 2 * 3)  # the first turn warms up
    # The clock counts passes: turn n ends with the passes 4 n to 4 n + 3.
    assert found == PassTimes(16, 4, {1: [9.0, 21.0], 2: [10.0, 22.0], 3: [11.0, 23.0]}, [8.0, 20.0], passes)


def test_sequences_of_a_batch_differ(pair) -> None:
    rows = batched_passes._rows(torch.arange(40), 4, 30)
    assert rows.shape == (4, 30) and rows[:, 0].tolist() == [0, 10, 20, 30] and rows[3, 10].item() == 0


def test_loads_without_room_are_left_out(pair, monkeypatch) -> None:
    room = 3 * 2.5 * 2 * batched_passes.cache_bytes(pair.target.config, torch.float32, 10)
    monkeypatch.setattr(batched_passes, "free_bytes", lambda device: room + 4 * 2 * 4 * 8 * 320)
    assert [each.batch for each in all_pass_times(pair, torch.arange(50), [8], [1, 2, 4, 8], 1, 1)] == [1, 2]
    assert not list(all_pass_times(pair, torch.arange(50), [8], [1], 1, 1, GRAPH)), "they have 256 places at least"


def test_contexts_that_do_not_fit_are_refused(pair) -> None:
    assert contexts_of(pair, None, (64, 256), 3) == [64]
    assert contexts_of(pair, [10, 10, 124], (64,), 3) == [10, 124]
    for asked in (0, 125):
        with pytest.raises(BadSetting, match="give 1 up to 124: this pair reads 128 tokens"):
            contexts_of(pair, [asked], (64,), 3)
    with pytest.raises(BadSetting, match="fewer than the usual contexts"):
        contexts_of(pair, None, (256,), 3)


def test_pairs_whose_rounds_are_others_are_refused(pair) -> None:
    assert draft_model_of(pair) is pair.draft.model
    for draft in (None, specdec.PromptLookup(), specdec.EarlyExit(1)):
        with pytest.raises(InvalidInput, match="way to draft is not known under load"):
            draft_model_of(specdec.Pair(pair.target, draft))
    hybrid = shared_tiny("qwen3_5_text")
    with pytest.raises(InvalidInput, match="has recurrent layers"):
        draft_model_of(specdec.Pair(hybrid, hybrid))


def test_lean_passes_of_a_model_without_them_are_refused(pair) -> None:
    require_passes(pair, LEAN)
    other = specdec.Pair(shared_tiny("mixtral"), pair.target)
    require_passes(other, TRANSFORMERS)
    for passes in (LEAN, GRAPH):
        with pytest.raises(InvalidInput, match="^MixtralForCausalLM has no lean passes"):
            require_passes(other, passes)


def test_graph_passes_are_refused_where_nothing_can_be_captured(pair, monkeypatch) -> None:
    with pytest.raises(InvalidInput, match=r"^CUDA graphs need a CUDA device, and this pair is on cpu\. Take lean"):
        require_passes(pair, GRAPH)
    forget_engines(monkeypatch.setattr)
    stand_in_for_captures(monkeypatch.setattr)
    require_passes(pair, GRAPH)
    forget_engines(monkeypatch.setattr)
    monkeypatch.setattr(StaticPassView, "write", lambda self, held, states: None)
    with pytest.raises(InvalidInput, match=r"^Passes of this pair cannot be captured\. Logits .* Take lean passes\.$"):
        require_passes(pair, GRAPH)


def test_the_recorded_acceptance_is_that_of_the_pair() -> None:
    target = shared_tiny("llama")
    same = specdec.Pair(target, target, tokenizer=byte_tokenizer())
    params = SamplingParams(32, temperature=0.0, ignore_eos=True)
    kept, ids = recorded_acceptance(same, [PromptItem("1", "given", "Once")], params, 3)
    assert kept == [1.0] * 3 and len(ids) == 32


def test_weights_are_read_once_for_all_sequences(pair) -> None:
    lean = lean_model(pair.target)
    one, four = work_of(lean, 2, 30), work_of(lean, 2, 30, 4)
    weights = weight_bytes(lean)
    assert four.bytes == weights + 4 * (one.bytes - weights) and four.operations == 4 * one.operations
    slow_reads = Rates(1.0, 1e18)
    least = MachineLimit([(lean, slow_reads), (lean, slow_reads)]).least(times(4, 1.0, context=30))
    assert least.target[2] == [four.bytes] and least.draft == [work_of(lean, 1, 30, 4).bytes]
    assert "not known" in machine_limit(specdec.Pair(shared_tiny("mixtral"), pair.target))


@pytest.mark.parametrize("passes", [TRANSFORMERS, LEAN])
def test_the_command_computes_gains_of_the_embedded_pair(passes, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(pair_arguments, "leave_a_core", lambda: None)
    monkeypatch.setattr("specdec.models.pair.silence_libraries", lambda: None)
    monkeypatch.setattr(batched_passes, "TURNS", 1)
    files = [tmp_path / "load.json", tmp_path / "load.csv", tmp_path / "load.md", tmp_path / "load.html"]
    words = ["Once upon a time", "--tokens", "32", "--at-once", "2", "--gamma", "2", "--contexts", "8", "--runs", "1"]
    words += ["--passes", passes, "--export", *map(str, files)]
    command.main(parser_of("load").parse_args(words))
    shown = capsys.readouterr().out
    assert "Computed gain" in shown and "They were not measured as a whole." in shown
    assert PASSES_SAID[passes] in shown and f"Passes: {passes}." in shown
    record = json.loads(files[0].read_text())
    assert [(row["context_tokens"], row["at_once"], row["gamma"]) for row in record["computed"]] == [
        (8, 1, 1), (8, 1, 2), (8, 2, 1), (8, 2, 2),
    ]  # fmt: skip
    first, timed = record["computed"][0], record["passes"][0]
    by_hand = (1 + record["kept_by_place"][0]) * timed["target"]["1"][0]
    assert first["computed_gain"] == pytest.approx(by_hand / (timed["draft"][0] + timed["target"]["2"][0]))
    assert first["computed_gain_at_the_limit"] > 0 and record["experts"] is None
    assert {row["passes"] for row in (*record["computed"], *record["passes"])} == {passes}
    assert files[1].read_text().startswith("context_tokens,at_once,passes,gamma,computed_gain")
    text = files[2].read_text()
    assert text.startswith("Computed gain over plain") and "were not measured as a whole" in text
    assert "\n\n| Context | At once | \u03b3 1 | \u03b3 2 | at the limit |" in text

    page = files[3].read_text()
    assert "Computed gains, not measured as a whole." in page and "Plotly.newPlot" in page
    assert "Calls at once" in page and "at the limit</th>" in page


def test_a_chart_without_its_package_is_refused_before_anything_is_measured(tmp_path, monkeypatch) -> None:
    def without(name):
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")

    monkeypatch.setattr("specdec.cli.importlib", SimpleNamespace(import_module=without))
    monkeypatch.setattr(command, "_pair", lambda *given: pytest.fail("it was measured"))
    with pytest.raises(SystemExit, match="needs the package plotly, which is not installed"):
        command.main(parser_of("load").parse_args(["--export", str(tmp_path / "load.html")]))


def test_loads_of_which_none_has_room_are_refused(pair, monkeypatch) -> None:
    monkeypatch.setattr(pair_arguments, "leave_a_core", lambda: None)
    monkeypatch.setattr("specdec.models.pair.silence_libraries", lambda: None)
    monkeypatch.setattr(pair_arguments, "pair_of", lambda arguments: pair)
    monkeypatch.setattr(batched_passes, "free_bytes", lambda device: 0)
    words = ["Once", "--tokens", "32", "--at-once", "2", "--gamma", "1", "--contexts", "8", "--runs", "1"]
    with pytest.raises(SystemExit, match="do not fit into the free memory: 1 at once, context 8; 2 at once, context 8"):
        command.main(parser_of("load").parse_args(words))


def test_one_server_alone_is_still_refused(capsys) -> None:
    with pytest.raises(SystemExit, match="Name two or more servers"):
        command.main(parser_of("load").parse_args(["plain=http://127.0.0.1:1"]))
