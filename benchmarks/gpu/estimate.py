"""How long each part is expected to take on an H100, worked out from bytes, operators and launches.

A pass takes what its weights take to be read, and what its operators take to be started. The counts of operators are
those of the code (measured on a CPU). The rates and the times of a launch are those of a first run on an H100, on the
slow side. The step ``facts`` measures them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import load, right, table
from benchmarks.gpu.campaign import START
from specdec.models.presets import SHAPES

READ = 2.6e12  # bytes per second that a pass reads of its weights; the copy of an H100 moves 3.0e12
KERNELS = 30  # of a layer by the lean forward, at most
EAGER = 1.25e-5  # seconds until an operator is started from Python
CAPTURED = 2.4e-6  # seconds of a small kernel in a captured graph
OWN = 1.3e-3  # seconds of a layer by transformers' own forward: 60 kernels, module calls, masks
ROUND = 1.5e-3  # seconds of a round outside its passes
CAPTURE = 0.03  # seconds to capture a step of a tiny model or of one of a few dozen layers
OPERATIONS = 3e14  # of bfloat16 numbers per second; a pass has as many for a token as its weights have bytes
FILL = 1e11  # bytes of random weights per second
COMPILE = 60.0  # seconds to compile a pass
TINY = 3  # layers of a tiny model
PAIRS = 11  # of the step "right"
IMPORTS = 10.0  # seconds until the first part begins


def weight_bytes(name: str) -> float:
    """Bytes of a shape's weights in bfloat16."""
    fields = SHAPES[name]
    hidden, layers = fields.get("hidden_size", fields.get("n_embd", 768)), layers_of(name)
    heads = fields.get("num_attention_heads", fields.get("n_head", 12))
    size = fields.get("head_dim", hidden // heads)
    grouped = fields.get("num_key_value_heads", heads)
    wide, matrices = (
        fields.get("intermediate_size", 4 * hidden),
        2 if fields["model_type"] in ("gpt2", "gpt_neox") else 3,
    )
    a_layer = 2 * hidden * size * (heads + grouped) + matrices * hidden * wide
    tables = 1 if fields.get("tie_word_embeddings", fields["model_type"] == "gpt2") else 2
    return 2.0 * (layers * a_layer + tables * hidden * fields.get("vocab_size", 50257 if tables == 1 else 32000))


def layers_of(name: str) -> int:
    return SHAPES[name].get("num_hidden_layers", SHAPES[name].get("n_layer", 12))


def passes(name: str) -> dict[str, float]:
    """Seconds of a pass over a few rows: by transformers, by the lean forward, and captured."""
    read, layers = weight_bytes(name) / READ, layers_of(name)
    return {
        "own": max(read, layers * OWN),
        "eager": max(read, layers * KERNELS * EAGER),
        "graph": read + layers * KERNELS * CAPTURED,
    }


def shape(name: str) -> float:
    """Seconds of the part of a shape: building, recording, lanes in turns with their warm-ups, and timed passes."""
    target, draft = name.split(":")
    t, d, tokens, gamma = passes(target), passes(draft), table.TOKENS, table.GAMMA
    rounds = tokens / sum(table.AGREEMENT**i for i in range(gamma + 1))
    lanes = tokens * (t["own"] + t["eager"] + t["graph"] + 3 * ROUND)
    lanes += rounds * sum(t[kind] + gamma * d[kind] + ROUND for kind in ("own", "eager", "graph"))
    warm = 8 * (3 * t["own"] + gamma * d["own"]) + 3 * (gamma + 1) * CAPTURE + 30 * (t["eager"] + gamma * d["eager"])
    timed = len(table.ROWS) * (table.REPEATS * sum(each[kind] for each in (t, d) for kind in ("eager", "graph")))
    timed += 2 * len(table.ROWS) * CAPTURE
    return START + _building(name) + table.RUNS * lanes + warm + timed + _limit()


def compiled(name: str) -> float:
    """Seconds of the part of a compiled pass."""
    target, draft = name.split(":")
    t, d = passes(target), passes(draft)
    lanes = table.TOKENS * (t["own"] + 2 * t["graph"] + 3 * ROUND) + table.TOKENS / 3 * (t["graph"] + 4 * d["graph"])
    return START + _building(name) + COMPILE + (table.RUNS + 1) * lanes


def under_load() -> float:
    """The embedded target; per load a warm-up and nine turns of both kinds of passes, captures, and filled caches."""
    target, draft = (passes(name) for name in load.NAME.split(":"))
    widths, loads = table.GAMMA + 1, len(load.CONTEXTS) * len(load.BATCHES)
    turns = 10 * sum(widths * target[kind] + draft[kind] for kind in ("eager", "graph"))
    captures = (widths + 1) * (CAPTURE + target["eager"])
    filled = sum(load.CONTEXTS) * sum(load.BATCHES) * sum(map(weight_bytes, load.NAME.split(":")))
    return START + 1 + _building(load.NAME) + loads * (turns + captures) + 4 * filled / OPERATIONS


def _building(name: str) -> float:
    models = name.split(":")
    filled = sum(weight_bytes(model) for model in models) / FILL
    return 2.0 + filled + table.TOKENS * (passes(models[0])["graph"] + ROUND)


def _limit() -> float:
    """Two models, two measurements of a rate each, at least a fifth of a second."""
    return 2 * 5 * 0.3


def texts() -> float:
    """Eleven pairs, two engines and five draft lengths, 64 tokens each; captures of each length."""
    a_pass = TINY * KERNELS * EAGER
    calls = 2 * len(right.GAMMAS) * PAIRS
    return START + calls * 64 * (a_pass + ROUND) + PAIRS * 3 * 22 * CAPTURE + 2 * len(right.GAMMAS) * 64 * 20 * OWN


def distributions() -> float:
    """Two engines, two ways to accept, 120 paths of three rounds; 160 sampled texts of 24 tokens."""
    a_round = 4 * TINY * KERNELS * EAGER + ROUND
    return START + 4 * 120 * 3 * a_round + 160 * 12 * a_round + 30 * CAPTURE


def losslessness() -> float:
    """300 draws of three samples, four tokens each; the test ends itself after some time."""
    return START + 2.0 + min(right.SECONDS, 300 * (4 * 20 * OWN + 2 * 3 * (20 * KERNELS * CAPTURED + 2 * ROUND)))


def parts() -> dict[tuple[str, str], float]:
    """Seconds of every part, by its step and name."""
    found: dict[tuple[str, str], Any] = {
        ("facts", "facts"): START + 8,
        ("right", "texts"): texts(),
        ("right", "distributions"): distributions(),
        ("right", "losslessness"): losslessness(),
        ("right", "logits"): START + PAIRS * (3 * CAPTURE + 0.3),
        ("right", "reads"): START
        + 2 * len(right.MODES) * (2 * 12 * (ROUND + 5 * TINY * KERNELS * EAGER) + 6 * CAPTURE),
        ("faults", "out of memory"): START + 2 * 2,
        ("faults", "not numbers"): START + 2 * 2,
        ("faults", "pair changed"): START + 9 * 1.0,
        ("faults", "many calls"): START + 200 * 8 * (20 * KERNELS * CAPTURED + ROUND) + 60 * CAPTURE,
        ("recordings", "embedded"): START + 1 + 3 * 64 * 20 * OWN + 30 * CAPTURE,
        ("recordings", "shape"): START + _building(table.NAMES[0]) + 4 * table.TOKENS * passes("qwen2.5-7b")["own"],
    }
    found |= {("table", name): shape(name) for name in table.NAMES}
    found[("table", "under load")] = under_load()
    return found | {("table", f"compiled {name}"): compiled(name) for name in table.NAMES[:1]}
