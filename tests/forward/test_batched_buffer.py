"""Passes over several sequences, lean or captured, give the logits of transformers' passes over the same batch."""

from __future__ import annotations

import pytest
import torch
from cuda_standins import StandIn
from lean_models import CLOSE, MODELS, WINDOWS
from transformers import DynamicCache

from specdec.errors import InvalidInput
from specdec.forward import cuda_graph
from specdec.forward.batched_buffer import BatchedKVBuffer
from specdec.forward.batched_graph import BatchedGraphs
from specdec.forward.lean_check import lean_model

BATCH, PASSES = 3, (20, 1, 4, 5, 1, 9)  # tokens of each sequence in successive passes
# Heads that share keys, all heads in one matrix by head, learned positions, and windows.
NAMES = ("llama", "gpt_neox", "gpt2", "phi3 with windows")


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers_over_a_batch(name: str) -> None:
    model = (MODELS | WINDOWS)[name]()
    lean, cache = lean_model(model), DynamicCache(config=model.config)
    ids = torch.randint(0, 300, (BATCH, sum(PASSES)), generator=torch.Generator().manual_seed(2))
    buffer, start = BatchedKVBuffer(lean, BATCH, sum(PASSES)), 0
    with torch.inference_mode():
        for fed in ids.split(PASSES, dim=1):
            own = model(input_ids=fed, past_key_values=cache).logits
            rejected = torch.zeros_like(fed).T.flatten()
            lean.forward(rejected, buffer, start, None)  # the next pass overwrites its slots
            ours = lean.forward(fed.T.flatten(), buffer, start, None).unflatten(0, (-1, BATCH)).transpose(0, 1)
            assert float((own - ours).abs().max() / (own.max() - own.min())) <= CLOSE
            start += fed.shape[1]


def test_the_last_rows_are_the_last_token_of_each_sequence() -> None:
    model, ids = MODELS["llama"](), torch.randint(0, 300, (BATCH, 8), generator=torch.Generator().manual_seed(3))
    lean = lean_model(model)
    with torch.inference_mode():
        last = lean.forward(ids.T.flatten(), BatchedKVBuffer(lean, BATCH, 8), 0, BATCH)
        torch.testing.assert_close(last, model(input_ids=ids).logits[:, -1])


@pytest.mark.parametrize("name", NAMES)
def test_replays_read_fixed_buffers_only_and_give_transformers_logits(name: str, monkeypatch) -> None:
    """One graph for a width serves every length up to the bound: the length is a value that a replay reads."""
    stand_in = StandIn([])
    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: stand_in)
    model = (MODELS | WINDOWS)[name]()
    lean, widths = lean_model(model), (40, 4, 1, 4, 1, 4)  # 40: of a prompt, by slices
    ids = torch.randint(0, 300, (BATCH, sum(widths)), generator=torch.Generator().manual_seed(4))
    cache, start = DynamicCache(config=model.config), 0
    with torch.inference_mode():
        graphs = BatchedGraphs(lean, BATCH, sum(widths))
        buffer, place = graphs._buffer, graphs._place
        fixed = [graphs._rows, place.at, place.numbers, *buffer.held, *buffer.angles]
        stand_in.known += [*fixed, *model.parameters(), *model.buffers()]
        for fed in ids.split(widths, dim=1):
            own, rows = model(input_ids=fed, past_key_values=cache).logits, fed.T.flatten()
            if fed.shape[1] == 40:
                graphs.fill(rows, start)
            else:
                run_pass = graphs.prepared(rows, start)
                for _ in range(2):  # a pass that is timed runs again and again
                    ours = run_pass().unflatten(0, (-1, BATCH)).transpose(0, 1)
                    assert float((own - ours).abs().max() / (own.max() - own.min())) <= CLOSE
            start += fed.shape[1]
    assert not stand_in.unknown and stand_in.replays == 2 * 5 and len(graphs._graphs) == 2


def test_graphs_are_refused_in_a_sentence_where_nothing_captures(monkeypatch) -> None:
    lean = lean_model(MODELS["llama"]())
    with pytest.raises(InvalidInput, match=r"^CUDA graphs need a CUDA device, and this model is on cpu\.$"):
        BatchedGraphs(lean, BATCH, 8)

    def refuse(step, rng):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(cuda_graph, "capture_for", lambda device: refuse)
    with torch.inference_mode(), pytest.raises(InvalidInput, match=r"^A CUDA graph could not .* is capturing\)\.$"):
        BatchedGraphs(lean, 1, 8).prepared(torch.arange(4), 0)
