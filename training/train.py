"""Train the embedded pair: ``python -m training.train --corpus DIR``.

One command makes the tokenizer, the target and the draft, on a GPU if there is one and on CPU cores
otherwise. Four stages share one time budget:

1. joint   the target learns the text; beside it the draft learns the target's distribution on the same
           windows, so the target's logits are computed once for both. An auxiliary loss at layer
           ``EARLY_LAYER`` keeps the target's early layers readable through its own final norm and head.
2. unloop  the same, and in every other step the target learns not to repeat itself: on text that it wrote
           greedily, tokens that complete a repeated 4-gram become less likely (sequence-level unlikelihood,
           Welleck et al. 1908.04319). Repeated text is easy to guess and would make acceptance look too high.
3. deepen  each of the target's middle layers becomes two of half its strength, which leaves what it computes nearly
           as it was. The target then trains on alone as in unloop, so that the two halves become different. At the
           end its weights are moved back to ``KEEP`` of the way from the start of the stage: held-out loss is no
           worse there, and the text reads more naturally (WiSE-FT, 2109.01903). The target is made deeper because
           a draft pass has fixed costs: speculation pays only if a target pass is much slower than a draft pass.
4. distil  the target is frozen and the draft keeps learning its distribution. Three quarters of the text are written
           by the target (DistillSpec, 2310.08461), because the draft will have to guess such text. Each text is used
           ``USES`` times, as writing it costs more than learning from it. The loss is now the rejection rate, plus
           a part of the cross entropy that trains the unlikely tokens.

In all stages one batch in ``LONG_EVERY`` has windows of the full context, so that late positions are learned and not
forgotten. Each model's learning rate is constant, then falls linearly to zero at the end of its own training.
``--resume`` continues from the weights in the output folder (a model that is missing there starts from scratch).
``--stages`` runs only some of the stages.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import shutil
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdec.forward.hf_cache import new_cache
from specdec.models.loading import EMBEDDED
from training import corpus

VOCABULARY = 4096
CONTEXT = 2560
WINDOW = 256
BATCH_TOKENS = 4096
DISTIL_BATCH_TOKENS = 2048  # for the draft alone: it is small, and many small steps help it more than few large ones
LONG_EVERY = 8
EARLY_LAYER = 3
TARGET = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=12, num_attention_heads=6)
DRAFT = dict(hidden_size=192, intermediate_size=512, num_hidden_layers=2, num_attention_heads=6)
MUON_LR, ADAMW_LR = 0.02, 3e-3
SPLIT = range(3, 11)  # the layers that "deepen" makes two of, counted from 0
KEEP = 0.65  # of the change of the weights in "deepen" is kept
STAGES = {"joint": 0.30, "unloop": 0.15, "deepen": 0.30, "distil": 0.25}  # shares of the time budget
UNLOOP_WEIGHT = 0.5
TAIL_WEIGHT = 0.3  # of the cross entropy, beside the rejection rate
USES = 8
DECAY_FROM = 0.45  # the share of its own training after which a model's learning rate falls to zero


def train_tokenizer(documents: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer: every text can be written, and ids map to bytes one to one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        documents,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[corpus.END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=corpus.END_OF_TEXT,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def build_model(shape: dict) -> LlamaForCausalLM:
    """A randomly initialised Llama of one of the two shapes above, embeddings and head tied."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=0,
            **shape,
        )
    )


def deepened(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """Return the same model with each layer of ``SPLIT`` twice in a row, both at half their strength.

    Copies that started at strength zero never learned anything. These do, as each does half of the work from the start.
    """
    twice = [i for i in range(model.config.num_hidden_layers) for _ in range(1 + (i in SPLIT))]
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(twice)
    deep = LlamaForCausalLM(config).to(model.device)
    deep.load_state_dict(model.state_dict(), strict=False)  # the embeddings and the last norm
    for layer, i in zip(deep.model.layers, twice, strict=True):
        layer.load_state_dict(model.model.layers[i].state_dict())
        if i in SPLIT:
            for matrix in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
                matrix.data.mul_(0.5)
    return deep


@torch.no_grad()
def blend(model: LlamaForCausalLM, start: dict[str, torch.Tensor]) -> None:
    """Move the weights back to ``KEEP`` of the way from ``start`` to their present values."""
    model.load_state_dict({name: start[name].lerp(end, KEEP) for name, end in model.state_dict().items()})


class Windows:
    """Draws batches of token windows, each from one domain's packed documents."""

    def __init__(self, documents: dict[str, list[str]], tokenizer, device: torch.device, seed: int = 0):
        self.random = random.Random(seed)
        self.device = device
        self.streams: dict[str, torch.Tensor] = {}
        self.starts: dict[str, list[int]] = {}
        for name, texts in documents.items():
            ids: list[int] = []
            starts = []
            for encoded in tokenizer(texts).input_ids:
                starts.append(len(ids))
                ids += [*encoded, tokenizer.eos_token_id]
            self.streams[name], self.starts[name] = torch.tensor(ids), starts

    def _window(self, name: str, length: int) -> torch.Tensor:
        stream = self.streams[name]
        # Half of the windows begin at a document's start, as prompts do; copies always do, or the original would be cut
        # off.
        at_start = name == "copy" or self.random.random() < 0.5
        begin = self.random.choice(self.starts[name]) if at_start else self.random.randrange(len(stream))
        begin = max(0, min(begin, len(stream) - length))
        return stream[begin : begin + length]

    def batch(self, rows: int, length: int) -> torch.Tensor:
        """(rows, length + 1) token ids; the extra column is the last label."""
        names = self.random.choices(list(corpus.MIXTURE), list(corpus.MIXTURE.values()), k=rows)
        return torch.stack([self._window(name, length + 1) for name in names]).to(self.device)


class Learner:
    """One model with its optimisers: Muon for the matrices inside the blocks, AdamW for everything else."""

    def __init__(self, model: LlamaForCausalLM, rate: float):
        self.model, self.rate = model, rate
        blocks = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n]
        chosen = set(blocks)
        rest = [p for p in model.parameters() if p not in chosen]
        self.optimisers = (
            torch.optim.Muon(blocks, lr=MUON_LR),
            torch.optim.AdamW(rest, lr=ADAMW_LR, betas=(0.9, 0.95), weight_decay=0.0),
        )
        self.base = [optimiser.param_groups[0]["lr"] for optimiser in self.optimisers]

    def step(self, loss: torch.Tensor, progress: float) -> None:
        """One update; ``progress`` in [0, 1] is the share of this model's training that has passed."""
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        scale = self.rate * min(1.0, max(0.0, (1 - progress) / (1 - DECAY_FROM)))
        for optimiser, base in zip(self.optimisers, self.base, strict=True):
            optimiser.param_groups[0]["lr"] = base * scale
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)


def target_loss(model: LlamaForCausalLM, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Cross entropy (nats a token), the early layer's on a quarter of the rows, and the detached logits."""
    inputs, labels = ids[:, :-1], ids[:, 1:]
    out = model(input_ids=inputs, use_cache=False, output_hidden_states=True)
    loss = F.cross_entropy(out.logits.float().flatten(0, 1), labels.flatten())
    quarter = max(1, len(ids) // 4)
    early = model.lm_head(model.model.norm(out.hidden_states[EARLY_LAYER][:quarter]))
    early_loss = F.cross_entropy(early.float().flatten(0, 1), labels[:quarter].flatten())
    return loss, early_loss, out.logits.detach()


def distillation_loss(draft: LlamaForCausalLM, inputs: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the draft under the target's distribution, nats a token."""
    return _cross_entropy(*_distributions(draft, inputs, logits))


def rejection_loss(draft: LlamaForCausalLM, inputs: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The chance that a guess is rejected, plus ``TAIL_WEIGHT`` of the cross entropy.

    The chance is 1 - sum min(p, q) (Leviathan et al. 2211.17192, Theorem 3.5), which is half of the sum of |p - q|. The
    cross entropy is added because its gradient does not vanish where q is tiny.
    """
    p, log_q = _distributions(draft, inputs, logits)
    return 0.5 * (p - log_q.exp()).abs().sum(-1).mean() + TAIL_WEIGHT * _cross_entropy(p, log_q)


def _distributions(draft: LlamaForCausalLM, inputs: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The target's p and the draft's log q, (rows, length, vocabulary)."""
    q = draft(input_ids=inputs, use_cache=False).logits.float()
    return F.softmax(logits.float(), -1), F.log_softmax(q, -1)


def _cross_entropy(p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    return -(p * log_q).sum(-1).mean()


def target_logits(model: LlamaForCausalLM, inputs: torch.Tensor) -> torch.Tensor:
    """The target's logits alone, (rows, length, vocabulary)."""
    return model(input_ids=inputs, use_cache=False).logits


@torch.no_grad()
def write_windows(target: LlamaForCausalLM, prompts: torch.Tensor, length: int, greedy: bool) -> torch.Tensor:
    """Let the target continue ``prompts`` (rows, n) up to ``length`` tokens; documents follow one another."""
    return target.generate(
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        max_length=length,
        do_sample=not greedy,
        top_k=0,
        eos_token_id=None,
        past_key_values=new_cache(target),
    )


def repeats(ids: torch.Tensor, start: int, n: int = 4) -> torch.Tensor:
    """Which ids from ``start`` on complete an n-gram seen before since ``start``: (rows, length) of bool."""
    flags = torch.zeros_like(ids, dtype=torch.bool)
    for row, tokens in enumerate(ids.tolist()):
        seen = set()
        for end in range(start + n, len(tokens) + 1):
            gram = tuple(tokens[end - n : end])
            flags[row, end - 1] = gram in seen
            seen.add(gram)
    return flags


def unlikelihood_loss(model: LlamaForCausalLM, ids: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
    """-log(1 - p) of the flagged ids, averaged over them."""
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float()
    log_p = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    flags = flags[:, 1:].float()
    return -(torch.log1p(-log_p.exp().clamp(max=1 - 1e-4)) * flags).sum() / flags.sum().clamp(min=1)


@torch.no_grad()
def held_out_loss(model: LlamaForCausalLM, windows: Windows, rows: int = 16) -> dict[str, float]:
    """Nats a token on held-out windows of each domain, the same windows every time."""
    losses = {}
    for name, stream in windows.streams.items():
        count = min(rows, (len(stream) - 1) // WINDOW)
        ids = torch.stack([stream[i * WINDOW : (i + 1) * WINDOW + 1] for i in range(count)]).to(windows.device)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits.float()
        losses[name] = round(F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item(), 4)
    return losses


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write weights (bfloat16, shards under 10 MB) and tokenizer as any transformers checkpoint."""
    model = copy.deepcopy(model).to(torch.bfloat16)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(folder, max_shard_size="9MB")
    tokenizer.save_pretrained(folder)


def load_or_build(out: Path, resume: bool) -> tuple[PreTrainedTokenizerFast | None, LlamaForCausalLM, LlamaForCausalLM]:
    """Load tokenizer, target and draft from ``out``. What is missing there is None (tokenizer) or a new model."""
    tokenizer, target, draft = None, build_model(TARGET), build_model(DRAFT)
    if resume:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(out / "target")
        target = LlamaForCausalLM.from_pretrained(out / "target", dtype=torch.float32)
        if (out / "draft").exists():
            draft = LlamaForCausalLM.from_pretrained(out / "draft", dtype=torch.float32)
    return tokenizer, target, draft


class Training:
    """The pair while it is trained: its models, what they learn from, and one step of each stage."""

    def __init__(self, target: LlamaForCausalLM, draft: LlamaForCausalLM, windows: Windows, rate: float):
        self.device, self.windows, self.rate = windows.device, windows, rate
        self.target, self.draft = target.to(self.device), draft.to(self.device)
        self._target_learner, self._draft_learner = Learner(self.target, rate), Learner(self.draft, rate)
        self._start: dict[str, torch.Tensor] | None = None  # the target's weights as "deepen" began with them
        self._pools: dict[str, Iterator[tuple[torch.Tensor, ...]]] = {}
        self._autocast = torch.autocast(self.device.type, torch.bfloat16)

        # Compiled, these functions run a third faster on two cores; without a C++ compiler they run as they are.
        def compiled(function):
            able = self.device.type == "cuda" or shutil.which("g++")
            return torch.compile(function, dynamic=False) if able else function

        self._losses, self._logits_of, self._distil, self._reject, self._unlike = map(
            compiled, (target_loss, target_logits, distillation_loss, rejection_loss, unlikelihood_loss)
        )

    def enter(self, stage: str) -> None:
        """Make the target deeper where "deepen" begins, and blend its weights where that ends."""
        if stage == "deepen" and self._start is None:
            self.target = deepened(self.target)
            self._target_learner = Learner(self.target, self.rate)
            self._start = copy.deepcopy(self.target.state_dict())
        elif stage != "deepen" and self._start is not None:
            blend(self.target, self._start)
            self._start = None

    def step(self, stage: str, number: int, progress: float, target_progress: float) -> int:
        """Learn from one batch, and return its number of tokens.

        ``progress`` and ``target_progress`` are the shares of all training and of the target's that have passed.
        """
        batch_tokens = DISTIL_BATCH_TOKENS if stage == "distil" else BATCH_TOKENS
        length = WINDOW if number % LONG_EVERY else CONTEXT
        rows = math.ceil(batch_tokens / length)
        ids = self.windows.batch(rows, length)
        if stage != "distil":
            logits = self._learn_text(stage, ids, circles=stage != "joint" and number % 2 == 1, at=target_progress)
        elif number % 4:
            ids, logits = self._written(stage, rows)
        else:
            logits = self._judged(ids)
        if stage != "deepen":
            loss_of = self._reject if stage == "distil" else self._distil
            with self._autocast:
                draft_loss = loss_of(self.draft, ids[:, :-1], logits)
            self._draft_learner.step(draft_loss, progress)
        return ids[:, 1:].numel()

    def _learn_text(self, stage: str, ids: torch.Tensor, circles: bool, at: float) -> torch.Tensor:
        """One update of the target, which returns its logits. ``circles``: it also learns not to repeat itself."""
        with self._autocast:
            loss, early_loss, logits = self._losses(self.target, ids)
        loss = loss + 0.2 * early_loss
        if circles:
            (texts,) = self._written(stage, len(ids))
            with self._autocast:
                loss = loss + UNLOOP_WEIGHT * self._unlike(self.target, texts, repeats(texts, start=32))
        self._target_learner.step(loss, at)
        return logits

    def _judged(self, ids: torch.Tensor) -> torch.Tensor:
        """The frozen target's logits for all but the last of ``ids``."""
        with torch.no_grad(), self._autocast:
            return self._logits_of(self.target, ids[:, :-1])

    def _written(self, stage: str, rows: int) -> tuple[torch.Tensor, ...]:
        """The next windows for this stage that the target wrote; in "distil" its logits come with them."""
        if stage not in self._pools:
            self._pools[stage] = self._write(stage == "distil", rows)
        return next(self._pools[stage])

    def _write(self, distil: bool, rows: int) -> Iterator[tuple[torch.Tensor, ...]]:
        """Let the target write 128 windows, and yield all of them in an order by chance, ``rows`` at a time.

        For "unloop" they are greedy. For "distil" one half is greedy and the other one sampled.
        """
        length, greedy, uses = (WINDOW, (True, False), USES) if distil else (WINDOW // 2 + 32, (True, True), 2)
        while True:
            halves = self.windows.batch(128, 31).chunk(2)
            written = [write_windows(self.target, h, length + 1, g) for h, g in zip(halves, greedy, strict=True)]
            both = [torch.cat(written)]
            if distil:
                both.append(torch.cat([self._judged(part) for part in both[0].split(rows)]))
            for _ in range(uses):
                for some in torch.randperm(len(both[0]), device=self.device).split(rows):
                    yield tuple(part[some] for part in both)


def train(
    corpus_dir: Path, out: Path, minutes: float, stages: list[str], resume: bool, rate: float = 1.0, seed: int = 0
) -> None:
    """Train both models within ``minutes`` and write ``out/target``, ``out/draft`` and ``out/training.json``.

    ``rate`` scales both learning rates.
    """
    torch.manual_seed(seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    documents, held_out_documents = corpus.load(corpus_dir, seed)
    tokenizer, target, draft = load_or_build(out, resume)
    if tokenizer is None:
        tokenizer = train_tokenizer([d for name in ("story", "children", "python") for d in documents[name]])
    held_out = Windows(held_out_documents, tokenizer, device, seed)
    pair = Training(target, draft, Windows(documents, tokenizer, device, seed), rate)
    shares = [STAGES[stage] for stage in stages]
    edges = dict(zip(stages, accumulate(share / sum(shares) for share in shares), strict=True))
    target_end = max((edge for stage, edge in edges.items() if stage != "distil"), default=1.0)
    began, tokens, step = time.monotonic(), 0, 0
    log = []

    def report(stage: str) -> None:
        row = {"step": step, "stage": stage, "minutes": round((time.monotonic() - began) / 60, 1), "tokens": tokens}
        row |= {"target": held_out_loss(pair.target, held_out), "draft": held_out_loss(pair.draft, held_out)}
        log.append(row)
        print(json.dumps(row), flush=True)
        for name, model in (("target", pair.target), ("draft", pair.draft)):
            save(model, tokenizer, out / name)
        (out / "training.json").write_text(json.dumps(log, indent=1) + "\n")

    while (progress := (time.monotonic() - began) / (60 * minutes)) < 1:
        stage = next(stage for stage, edge in edges.items() if progress < edge or stage == stages[-1])
        pair.enter(stage)
        tokens += pair.step(stage, step, progress, progress / target_end)
        step += 1
        if step % 250 == 0:
            report(stage)
    pair.enter("end")
    report("end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the text files")
    parser.add_argument("--out", type=Path, default=EMBEDDED, help="where target/ and draft/ are written")
    parser.add_argument("--minutes", type=float, default=100, help="time budget of the training itself")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--rate", type=float, default=1.0, help="learning rate; below 1 for short resumed runs")
    arguments = parser.parse_args()
    train(arguments.corpus, arguments.out, arguments.minutes, arguments.stages, arguments.resume, arguments.rate)


if __name__ == "__main__":
    main()
