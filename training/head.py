"""Train the embedded EAGLE-3 head: ``python -m training.head --minutes 60``.

The head learns the embedded target's distribution on text that the target samples after an end-of-text token, so no
corpus is needed. As in EAGLE-3 (Li et al. 2503.01840, "training-time test") it also learns to continue from its own
states. Each input is a pair of a token and a state. At depth 0 the state is made from the target's features; at depth k
it is the state that the head computed at depth k - 1. The losses of all depths are added.

The loss is that of the draft model: the chance that a guess is rejected, plus a part of the cross entropy. The
embedding is the target's. The output matrix is a copy of it and is not trained.

``--resume`` goes on from the weights in the output folder.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from specdec.drafters.eagle3_head import Eagle3Head, head_config
from specdec.models.heads import read_eagle3
from specdec.models.loading import EMBEDDED
from training.train import ADAMW_LR, MUON_LR, TAIL_WEIGHT, write_windows

DEPTHS = 5  # guesses that are drafted after each token of a text
DEPTH_WEIGHT = 0.85  # of each depth against the one before it: later guesses are tested less often
WINDOW, TEXTS, ROWS, USES = 256, 144, 8, 8
BEGINNING, PASSAGE = 32, 96  # tokens that are sampled at the beginning of a text
DECAY_FROM = 0.5
CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 192, "intermediate_size": 512,
    "num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": 6, "vocab_size": 4096,
    "max_position_embeddings": 2560, "rms_norm_eps": 1e-6, "hidden_act": "silu", "norm_output": False,
    # The input of the last layer is the last of them: the layers before it hardly change the state (MODEL_CARD.md).
    "eagle_aux_hidden_state_layer_ids": [2, 10, 19],
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
}  # fmt: skip


def new_head(target: LlamaForCausalLM) -> Eagle3Head:
    """A head that begins with random weights and the target's output matrix."""
    head = Eagle3Head(head_config(CONFIG), "embedded head", embeds=False)
    for name, weight in head.named_parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.02)
    head.lm_head.weight = torch.nn.Parameter(target.lm_head.weight.detach().clone(), requires_grad=False)
    return head


@torch.no_grad()
def texts_of(target: LlamaForCausalLM, layer_ids: tuple[int, ...]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the target's own text: ids (rows, n), features (rows, n, 3 H) and the target's last states (rows, n, H).

    Each text is used ``USES`` times. A third of the texts continue greedily after a sampled beginning, a third are
    sampled throughout, and a third begin to repeat a passage, so that the head learns to copy.
    """
    while True:
        ends = torch.zeros(TEXTS, 1, dtype=torch.long)
        greedy, sampled, passages = write_windows(target, ends, PASSAGE, greedy=False).chunk(3)
        copied = torch.cat([passages, passages[:, : PASSAGE // 4]], -1)
        begun = ((greedy[:, :BEGINNING], True), (sampled[:, :BEGINNING], False), (copied, True))
        ids = torch.cat([write_windows(target, some, WINDOW, how) for some, how in begun])
        found = []
        for part in ids.split(16):
            out = target.model(input_ids=part, use_cache=False, output_hidden_states=True)
            found.append((torch.cat([out.hidden_states[i] for i in layer_ids], -1), out.last_hidden_state))
        features, last = (torch.cat(parts) for parts in zip(*found, strict=True))
        for _ in range(USES):
            for some in torch.randperm(TEXTS).split(ROWS):
                yield ids[some], features[some], last[some]


def loss_of(
    head: Eagle3Head, embedding: torch.Tensor, ids: torch.Tensor, features: torch.Tensor, last: torch.Tensor
) -> tuple[torch.Tensor, list[float]]:
    """The loss over all depths, and at each depth the share of places where head and target agree on the best token.

    At depth k, row t holds pair t + k of the draft that begins after token t + 1. That draft has true features up to
    pair t, and the head's own states at pairs t + 1 to t + k.
    """
    layer, attention = head.layers[0], head.layers[0].self_attn
    rows, length = ids.shape
    states = head.fused(features)
    wanted = F.linear(last, head.lm_head.weight).float().softmax(-1)
    best = wanted.argmax(-1)
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    keys, values, total, agreed = [], [], torch.zeros(()), []
    for depth in range(DEPTHS):
        count = length - 2 - depth  # pairs whose guess can be compared with the target's choice
        states, embedded = states[:, :count], F.embedding(ids[:, 1 + depth : 1 + depth + count], embedding)
        places = torch.arange(depth, depth + count)[None]
        normed = layer.hidden_norm(states)
        read = torch.cat([layer.input_layernorm(embedded), normed], -1)
        shape = (rows, count, -1, attention.size)
        q, k, v = (
            project(read).view(shape).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, *head.rotary(states, places))
        keys, values = [*(x[:, :, :count] for x in keys), k], [*(x[:, :, :count] for x in values), v]
        scores = (q @ keys[0].transpose(-1, -2)).masked_fill(~mask[:count, :count], -math.inf)
        own = [(q * key).sum(-1, keepdim=True) for key in keys[1:]]  # a draft does not see the pairs of other drafts
        weights = (torch.cat([scores, *own], -1) / math.sqrt(attention.size)).softmax(-1)
        attended = weights[..., :count] @ values[0]
        for number, value in enumerate(values[1:]):
            attended = attended + weights[..., count + number, None] * value
        out = states + attention.o_proj(attended.transpose(1, 2).reshape(rows, count, -1))
        states = out + layer.mlp(layer.post_attention_layernorm(out))
        log_q = head.lm_head(head.norm(states)).float().log_softmax(-1)
        behind = slice(1 + depth, 1 + depth + count)
        p = wanted[:, behind]
        rejected = 0.5 * (p - log_q.exp()).abs().sum(-1).mean()
        total = total + DEPTH_WEIGHT**depth * (rejected - TAIL_WEIGHT * (p * log_q).sum(-1).mean())
        agreed.append((best[:, behind] == log_q.argmax(-1)).float().mean().item())
    return total, agreed


def save(head: Eagle3Head, folder: Path) -> None:
    """Write config and weights (bfloat16) as a published head has them."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    weights = {name.replace("layers.0.", "midlayer."): value for name, value in head.state_dict().items()}
    weights.pop("d2t")
    save_file(
        {name: value.to(torch.bfloat16).contiguous() for name, value in weights.items()}, folder / "model.safetensors"
    )


def train(out: Path, minutes: float, resume: bool, rate: float, seed: int = 0) -> None:
    """Train within ``minutes`` and write ``out/head``."""
    torch.manual_seed(seed)
    target = LlamaForCausalLM.from_pretrained(EMBEDDED / "target", dtype=torch.float32).eval().requires_grad_(False)
    folder = out / "head"
    if resume:
        shards, device = ["model.safetensors"], torch.device("cpu")
        head = read_eagle3("head", folder, shards, head_config(CONFIG), device, torch.float32)
        head.requires_grad_(True)
        head.lm_head.weight.requires_grad_(False)
    else:
        head = new_head(target)
    trained = {name: weight for name, weight in head.named_parameters() if weight.requires_grad}
    matrices = [weight for weight in trained.values() if weight.ndim == 2]
    rest = [weight for weight in trained.values() if weight.ndim != 2]
    optimisers = (torch.optim.Muon(matrices, lr=MUON_LR), torch.optim.AdamW(rest, lr=ADAMW_LR, weight_decay=0.0))
    bases = [optimiser.param_groups[0]["lr"] for optimiser in optimisers]
    batches = texts_of(target, head.config.layers_of(target.config.num_hidden_layers))
    began, step, tokens = time.monotonic(), 0, 0
    while (progress := (time.monotonic() - began) / (60 * minutes)) < 1:
        ids, features, last = next(batches)
        loss, agreed = loss_of(head, target.model.embed_tokens.weight, ids, features, last)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(trained.values()), 1.0)
        scale = rate * min(1.0, (1 - progress) / (1 - DECAY_FROM))
        for optimiser, base in zip(optimisers, bases, strict=True):
            optimiser.param_groups[0]["lr"] = base * scale
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + ids.numel()
        if step % 200 == 0:
            row = {"step": step, "minutes": round(60 * minutes * progress / 60, 1), "tokens": tokens}
            print(
                json.dumps(row | {"loss": round(loss.item(), 3), "agreed": [round(x, 3) for x in agreed]}), flush=True
            )
            save(head, folder)
    save(head, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=EMBEDDED, help="where head/ is written")
    parser.add_argument("--minutes", type=float, default=60, help="time budget of the training")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--rate", type=float, default=1.0, help="learning rate; below 1 for short resumed runs")
    arguments = parser.parse_args()
    train(arguments.out, arguments.minutes, arguments.resume, arguments.rate)


if __name__ == "__main__":
    main()
