"""How the embedded EAGLE-3 head is trained."""

from __future__ import annotations

import torch
from fakes import isolated_rng

from specdec.forward.hf_cache import PreallocatedLayer
from specdec.models.loading import load_pair
from training import head as training
from training.head import loss_of, new_head


def test_a_loss_is_that_of_drafts_made_one_by_one(monkeypatch) -> None:
    """At every depth the loss uses the states of a draft that begins at that token and is fed the text's tokens."""
    target = load_pair().target
    with isolated_rng(0):
        head = new_head(target)
        for weight in head.parameters():
            if weight.requires_grad and weight.ndim == 2:
                torch.nn.init.normal_(weight, std=0.1)
        ids = torch.randint(1, 4000, (1, 12))
    out = target.model(input_ids=ids, use_cache=False, output_hidden_states=True)
    layer_ids = head.config.layers_of(target.config.num_hidden_layers)
    features = torch.cat([out.hidden_states[number] for number in layer_ids], -1)
    seen = []
    monkeypatch.setattr(head.norm, "forward", lambda states: seen.append(states.detach()) or states)
    loss, agreed = loss_of(head, target.model.embed_tokens.weight, ids, features, out.last_hidden_state)
    assert loss.isfinite() and len(agreed) == len(seen) == training.DEPTHS
    embedded = torch.nn.functional.embedding(ids[0], target.model.embed_tokens.weight)
    with torch.no_grad():
        for start in (0, 3):
            cache, fused = PreallocatedLayer(), head.fused(features[0])
            state = head(fused[: start + 1], embedded[1 : start + 2], cache, keep=1)[1]
            assert torch.allclose(state[0], seen[0][0, start], atol=1e-4)
            for depth in range(1, training.DEPTHS):
                place = start + 1 + depth
                state = head(state, embedded[place : place + 1], cache)[1]
                assert torch.allclose(state[0], seen[depth][0, start], atol=1e-4), (start, depth)
