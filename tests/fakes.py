"""Models and tokenizers small enough to build in a test: no download, no GPU.

A table model looks its logits up by the last few tokens, so that a test can write down the exact distribution. It
reads those tokens back out of the cache that it is given: a stale or missing cache row changes what it says.
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from torch.utils._pytree import tree_leaves
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    DynamicCache,
    Gemma2Config,
    Gemma3TextConfig,
    GenerationConfig,
    GenerationMixin,
    GPT2Config,
    GPTNeoXConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OPTConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3_5TextConfig,
    Qwen3Config,
    SmolLM3Config,
)

import specdec

FAMILIES = ("llama", "qwen2", "gpt2", "gpt_neox", "gemma2")
MORE_FAMILIES = ("qwen3", "mistral", "gemma3", "phi3", "opt", "bloom", "mixtral", "lfm2")
CONTEXT = 128

SAMPLE_TEXT = """Once upon a time there was a little girl named Lily. She had a small red ball. One day she lost it.
def push(self, item): self.items.append(item)  # naïve café, 日本語, 🙂 and a quote: "What is it?" said Tom.
"""


# --- a model that is a table -----------------------------------------------------------------------------------------


class TableConfig(PreTrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size: int = 8, max_position_embeddings: int = 512, **kwargs):
        self.vocab_size = vocab_size
        self.max_position_embeddings = max_position_embeddings
        self.num_hidden_layers = kwargs.pop("num_hidden_layers", 1)
        self.hidden_size = self.num_attention_heads = self.num_key_value_heads = 1
        super().__init__(**kwargs)


class TableLayer(nn.Module):
    """Adds ``table[..., the token before, this token]`` to the logits, missing tokens read as 0.

    The keys in its layer of the cache are the token ids themselves, and the context is read from there.
    """

    def __init__(self, index: int, table: torch.Tensor):
        super().__init__()
        self.index, self.order = index, table.dim() - 1
        self.table = nn.Parameter(table.reshape(-1, table.shape[-1]).float(), requires_grad=False)
        self.place_values = torch.tensor([float(table.shape[0] ** i) for i in reversed(range(self.order))])

    def forward(self, input_ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        states = input_ids[:, None, :, None].float()
        context = cache.update(states, states, self.index)[0][0, 0, :, 0]
        span = input_ids.shape[1] + self.order - 1
        windows = F.pad(context[-span:], (max(0, span - len(context)), 0)).unfold(0, self.order, 1)
        return self.table[(windows @ self.place_values).long()][None]


class Output(dict):
    """What a table model returns: transformers' own class takes longer to make than the table lookup."""

    def __init__(self, **values):
        super().__init__(values)
        self.__dict__ = self


class TableModel(PreTrainedModel, GenerationMixin):
    """Logits of the next token are the sum of what its layers look up, one table each."""

    config_class = TableConfig

    def __init__(self, config: TableConfig, tables: list[torch.Tensor]):
        super().__init__(config)
        self.layers = nn.ModuleList(TableLayer(i, table) for i, table in enumerate(tables))
        self.embedding = nn.Embedding(config.vocab_size, 1)
        self.post_init()

    def _init_weights(self, module) -> None:
        pass

    def get_input_embeddings(self):
        return self.embedding

    def get_output_embeddings(self):
        return self.embedding  # only its number of rows is used, which is the number of logits

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=True,
        logits_to_keep=0, **kwargs,
    ):  # fmt: skip
        if past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        logits = sum(layer(input_ids, past_key_values) for layer in self.layers)
        keep = logits[:, -logits_to_keep:] if logits_to_keep else logits
        return Output(logits=keep, past_key_values=past_key_values)


def table_model(
    table: torch.Tensor, *more: torch.Tensor, vocab_size: int | None = None, eos: int | list[int] | None = None
) -> TableModel:
    """A model whose logits are ``table[t-k+1, ..., t]``; ``vocab_size`` above the table's width pads with -1e4.

    With ``more`` tables it has more layers, and its logits are the sum.
    """
    width = table.shape[-1]
    vocab_size = vocab_size or width
    if vocab_size > width:
        padding = torch.full((*table.shape[:-1], vocab_size - width), -1e4)
        table = torch.cat([table, padding], dim=-1)
    with isolated_rng(0):
        config = TableConfig(vocab_size=vocab_size, pad_token_id=0, num_hidden_layers=1 + len(more))
        model = TableModel(config, [table, *more]).eval()
    model.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=eos)
    return model


def random_table(vocab_size: int, order: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn((vocab_size,) * (order + 1), generator=rng) * scale


def chain(following: list[int]) -> torch.Tensor:
    """A table of order 1 whose best next token is ``following[token]``; the second best is one id above it."""
    vocab_size = len(following)
    table = torch.zeros(vocab_size, vocab_size)
    for token, next_token in enumerate(following):
        table[token, next_token] = 8.0
        table[token, (next_token + 1) % vocab_size] = 2.0
    return table


# --- small transformers of real families -----------------------------------------------------------------------------


def _config(family: str, layers: int, vocab_size: int, context: int):
    """A config with grouped queries where the family has them, and with windows of 8 tokens."""
    shape = {"vocab_size": vocab_size, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if family == "gpt2":
        return GPT2Config(**shape, n_embd=48, n_layer=layers, n_head=4, n_positions=context, initializer_range=0.3)
    if family == "bloom":
        return BloomConfig(**shape, hidden_size=48, n_layer=layers, n_head=4, initializer_range=0.3)
    shape |= {
        "hidden_size": 48, "num_hidden_layers": layers, "num_attention_heads": 4, "max_position_embeddings": context,
        "tie_word_embeddings": False,
    }  # fmt: skip
    if family == "opt":
        return OPTConfig(**shape, ffn_dim=96, word_embed_proj_dim=48, init_std=0.3)
    shape |= {"intermediate_size": 96, "initializer_range": 0.3}
    if family == "gpt_neox":
        return GPTNeoXConfig(**shape)
    shape |= {"num_key_value_heads": 2}
    gemma = {"head_dim": 12, "query_pre_attn_scalar": 12, "sliding_window": 8}
    turns = [("sliding_attention", "full_attention")[i % 2] for i in range(layers)]
    configs = {
        "llama": lambda: LlamaConfig(**shape),
        "qwen2": lambda: Qwen2Config(**shape),
        "qwen3": lambda: Qwen3Config(**shape, head_dim=12),
        "mistral": lambda: MistralConfig(**shape, sliding_window=8),
        "gemma2": lambda: Gemma2Config(**shape, **gemma),
        "gemma3": lambda: Gemma3TextConfig(**shape, **gemma, layer_types=turns),
        "phi3": lambda: Phi3Config(**shape),
        "mixtral": lambda: MixtralConfig(**shape, num_local_experts=4, num_experts_per_tok=2),
        "smollm3": lambda: SmolLM3Config(**shape),
        "qwen3_5_text": lambda: Qwen3_5TextConfig(
            **shape,
            head_dim=12,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=12,
            linear_value_head_dim=12,
            layer_types=[("linear_attention", "full_attention")[i % 2] for i in range(layers)],
        ),
        "lfm2": lambda: Lfm2Config(**shape, layer_types=[("conv", "full_attention")[i % 2] for i in range(layers)]),
    }
    return configs[family]()


def tiny(
    family: str,
    seed: int = 0,
    layers: int = 2,
    vocab_size: int = 320,
    eos: int | list[int] | None = None,
    context: int = CONTEXT,
):
    """A model of a real family with random weights, large enough that logits stay far from ties."""
    with isolated_rng(seed):
        config = _config(family, layers, vocab_size, context)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=0)
    return model


shared_tiny = functools.cache(tiny)
"""The same models for many tests; whoever changes one builds its own with ``tiny``."""


def noisy_copy(model, seed: int = 0, scale: float = 0.02):
    """A draft that agrees with its target some of the time."""
    twin = copy.deepcopy(model)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in twin.parameters():
            weight += torch.randn(weight.shape, generator=rng) * scale
    return twin


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


# --- tokenizers ------------------------------------------------------------------------------------------------------


@functools.cache
def byte_tokenizer(vocab_size: int = 300) -> PreTrainedTokenizerFast:
    """Byte-level BPE with some merges: ids below ``vocab_size``, ``<s>`` is 0 and ``</s>`` is 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([SAMPLE_TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """One token a word, in the order given."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=words[0])


def letters(count: int) -> PreTrainedTokenizerFast:
    return word_tokenizer([f"w{i}" for i in range(count)])


def letter_tokenizer(tokens: list[str]) -> PreTrainedTokenizerFast:
    """Tokens of one or two letters, in the order given. A token "ab" is used wherever b follows a."""
    merges = [(token[0], token[1]) for token in tokens if len(token) == 2]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@functools.cache
def shuffled_tokenizer(original: PreTrainedTokenizerFast, count: int) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """The first ``count`` tokens of a byte-level BPE with other ids: ``order[new id]`` is the old id."""
    state = json.loads(original.backend_tokenizer.to_str())
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    new_id = {old: new for new, old in enumerate(order)}
    state["model"]["vocab"] = {t: new_id[i] for t, i in state["model"]["vocab"].items() if i in new_id}
    state["model"]["merges"] = [m for m in state["model"]["merges"] if "".join(m) in state["model"]["vocab"]]
    for token in state["added_tokens"]:
        token["id"] = new_id[token["id"]]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    roles = {"bos_token": original.bos_token, "eos_token": original.eos_token}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles), order


def shuffled_rows(model, order: list[int]):
    """``model`` for the ids of ``shuffled_tokenizer``."""
    twin = copy.deepcopy(model)
    for weight in {twin.get_input_embeddings().weight, twin.get_output_embeddings().weight}:
        weight.data[: len(order)] = weight.data[order]
    return twin


def tensors(*values: object) -> list[torch.Tensor]:
    """The tensors in nested ``values`` that hold anything."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor) and leaf.numel()]


# --- running lanes ---------------------------------------------------------------------------------------------------


def table_pair(target: torch.Tensor, draft: torch.Tensor | None, eos: int | list[int] | None = None) -> specdec.Pair:
    return specdec.Pair(
        target=table_model(target, eos=eos),
        draft=None if draft is None else table_model(draft),
        tokenizer=letters(target.shape[-1]),
    )


def rounds_of(events: list) -> list[specdec.Round]:
    return [event for event in events if isinstance(event, specdec.Round)]


def ids_of(events: list) -> tuple[int, ...]:
    """The new ids of a call, collected by the test itself."""
    return tuple(token_id for event in rounds_of(events) for token_id in event.committed_ids)


def prompt_of(length: int, vocab_size: int = 300, seed: int = 5) -> torch.Tensor:
    return torch.randint(2, vocab_size, (length,), generator=torch.Generator().manual_seed(seed))


def generated(model, prompt_ids: torch.Tensor, max_new_tokens: int, tokenizer=None, **settings) -> tuple[int, ...]:
    """New ids of ``model.generate`` called directly, greedy, with every sampling field given and neutral."""
    neutral = {
        "do_sample": False, "num_beams": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None,
        "top_h": None, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "repetition_penalty": 1.0,
        "encoder_repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "bad_words_ids": None,
        "encoder_no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": None, "sequence_bias": None,
        "forced_bos_token_id": None, "forced_eos_token_id": None, "suppress_tokens": None, "guidance_scale": None,
        "begin_suppress_tokens": None, "exponential_decay_length_penalty": None, "watermarking_config": None,
        "remove_invalid_values": False, "renormalize_logits": False, "prompt_lookup_num_tokens": None,
    }  # fmt: skip
    ids = prompt_ids.reshape(1, -1)
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            tokenizer=tokenizer,
            **(neutral | settings),
        )
    return tuple(out[0, ids.shape[1] :].tolist())


@contextmanager
def count_passes(model) -> Iterator[list[int]]:
    """A list that gets one entry for each forward pass: how many tokens it was fed."""
    fed: list[int] = []

    def note(module, args, kwargs):
        ids = kwargs.get("input_ids", args[0] if args else None)
        fed.append(ids.shape[-1])

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield fed
    finally:
        handle.remove()
