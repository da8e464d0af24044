"""What the tests of heads have in common: EAGLE-3 heads with random weights, and drafts made from scratch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import FULL, HOURS
from fakes import byte_tokenizer, generated, isolated_rng, prompt_of, rounds_of
from safetensors.torch import save_file

import specdec
from specdec.drafters.eagle3_head import Eagle3Head, head_config

HIDDEN, VOCABULARY = 48, 320  # of ``fakes.tiny``
SOME = (4, specdec.ConfidenceStop(6, 0.02))
GAMMAS = (*range(1, 17), "auto") if HOURS else (1, 16, "auto", *SOME) if FULL else SOME  # that texts are written at


def randomised(module: torch.nn.Module, seed: int = 0) -> Any:
    """The module with random weights, those of norms around 1."""
    with isolated_rng(seed):
        for name, weight in module.named_parameters():
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=0.3)
    return module.eval().requires_grad_(False)


def save(folder: Path, config: dict[str, Any], weights: Mapping[str, torch.Tensor], **more: torch.Tensor) -> str:
    """A checkpoint with these weights, in one file."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    kept = {name: weight.contiguous().clone() for name, weight in weights.items()}
    save_file(kept | more, folder / "model.safetensors")
    return str(folder)


def save_target(target: Any, factory: pytest.TempPathFactory) -> str:
    """The folder of a target with a tokenizer."""
    folder = factory.mktemp("target")
    target.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return str(folder)


@contextmanager
def refused(said: str, error: type[Exception] = specdec.SpecdecError) -> Iterator[None]:
    """What is done here raises ``error`` with sentences in one line that ``said`` matches."""
    with pytest.raises(error, match=said) as refusal:
        yield
    assert str(refusal.value).endswith(".") and "\n" not in str(refusal.value)


def config_of(**options: Any) -> dict[str, Any]:
    """A ``config.json`` as SafeAILab and AngelSlim write it."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": HIDDEN,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "num_hidden_layers": 1,
        "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "hidden_act": "silu", "max_position_embeddings": 512,
    } | options  # fmt: skip


def head_of(config: dict[str, Any], embeds: bool = True, seed: int = 0, scale: float = 0.3) -> Eagle3Head:
    """A head with random weights, and tokens of a reduced vocabulary scattered over the target's."""
    with isolated_rng(seed):
        head = Eagle3Head(head_config(config), "random", embeds).eval().requires_grad_(False)
        for name, weight in head.named_parameters():
            torch.nn.init.normal_(weight, mean=float("norm" in name), std=scale)
        known = head.config.draft_vocabulary
        if known is not None:
            chosen = torch.randperm(head.config.layer.vocab_size)[:known].sort().values
            head.d2t.copy_(chosen - torch.arange(known))
    return head


def require_drafts_from_scratch(
    monkeypatch,
    pair: specdec.Pair,
    drafter: type,
    gamma: int,
    scratch: Callable[[list[int], int], list[torch.Tensor]],
    accept_top_k: int = 260,
) -> None:
    """Every draft of a call has the logits of ``scratch``, which is given the text in front of it and how many guesses.

    Lossy acceptance, as a random head is never right: so some guesses stand, and some do not. The target's own states
    differ by 1e-5 between passes of other sizes.
    """
    found, propose = [], drafter.propose

    def noted(self, context, gamma, stop):
        proposal = propose(self, context, gamma, stop)
        if len(proposal.ids):
            found.append((list(context.tokens), torch.cat(proposal.choices.logits)))
        return proposal

    lossy = {"acceptance": "top-k", "accept_top_k": accept_top_k}
    with monkeypatch.context() as patched:
        patched.setattr(drafter, "propose", noted)
        params = specdec.SamplingParams(max_new_tokens=24)
        events = list(specdec.speculative(pair, prompt_of(7), gamma=gamma, params=params, **lossy))
    for text, logits in found:
        for ours, theirs in zip(logits, scratch(text, len(logits)), strict=True):
            require_close(ours, theirs, 1e-4)
    assert len(found) > 3 and {event.token_kind for event in rounds_of(events)} >= {"correction", "bonus"}


def require_close(ours: torch.Tensor, theirs: torch.Tensor, most: float) -> None:
    """Logits of one row, within ``most`` of their range; those of unknown tokens are -inf in both."""
    known = theirs.isfinite()
    assert torch.equal(ours.isfinite(), known), "logits differ in the tokens that the head knows"
    span = theirs[known].max() - theirs[known].min()
    apart = ((ours[known].double() - theirs[known]).abs().max() / span).item()
    assert apart < most, f"logits differ by {apart:.1e} of their range"


def require_loaded(pair: specdec.Pair, weights: Mapping[str, torch.Tensor]) -> None:
    """The pair's head has these weights, and the pair writes the text of ``generate``."""
    for name, weight in weights.items():
        assert torch.equal(pair.draft.head.state_dict()[name], weight)
    params = specdec.SamplingParams(max_new_tokens=12)
    text = specdec.collect(specdec.speculative(pair, "abc", params=params)).token_ids
    assert tuple(text) == generated(pair.target, pair.encode("abc")[0], 12)
