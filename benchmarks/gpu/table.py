"""Speeds of pairs of known shapes with random weights, in turns with transformers' own ways to write the same text."""

from __future__ import annotations

import copy
import functools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from benchmarks.gpu.campaign import Found, Setting
from benchmarks.gpu.models import stand_in, with_engine
from benchmarks.peers import COMPILED, compiling, first_calls, on_the_table, peers
from specdec.drafters.synthetic import SyntheticDraft, given_guesses
from specdec.engine.decode import decode
from specdec.engine.request import Request, make_call, make_request
from specdec.events import Event, SamplingParams
from specdec.forward.runner import Runner
from specdec.lanes.hf_generate import transformers_lane
from specdec.lanes.table import BASELINE, LOOP, Lane, LaneConfig
from specdec.measure import roofline
from specdec.measure.gain import RunMetrics, median_run
from specdec.measure.metrics import Metrics, pool
from specdec.measure.plan import Plan, Trial
from specdec.measure.prompts import EXAMPLES, PromptItem, read_prompts
from specdec.measure.roofline import limit_of, limit_record
from specdec.measure.shapes import recorded
from specdec.measure.summary import summarise
from specdec.measure.trials import trials
from specdec.models.pair import Pair
from specdec.models.presets import SHAPES
from specdec.models.shapes import shape_pair

NAMES = (
    "qwen2.5-7b:qwen2.5-0.5b", "qwen3-4b:qwen3-0.6b", "pythia-1.4b:pythia-160m", "gpt2-large:gpt2",
)  # fmt: skip
AGREEMENT, GAMMA, TOKENS, RUNS = 0.8, 4, 64, 3
ROWS = range(1, 18)
CACHED = 256  # tokens before a timed pass
REPEATS = 8  # of a timed pass; the first three warm up, capture, and load kernels
CERTAIN = 1e4  # a logit
EAGER, EAGER_LOOP = LaneConfig("eager", GAMMA), LaneConfig("eager-loop")
ASSISTED, SPECULATIVE = LaneConfig("assisted-agreeing", GAMMA), LaneConfig("speculative", GAMMA)

# A shape of a rehearsal: a thousandth of the parameters or fewer.
SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 320,
    "max_position_embeddings": 512, "n_embd": 32, "n_layer": 1, "n_head": 4,
}  # fmt: skip


def _with_engine(request: Request, engine: str) -> Request:
    return replace(request, pair=with_engine(request.pair, engine))


def _eager(request: Request, gamma: Any, *_: Any) -> Iterator[Event]:
    return decode(_with_engine(request, "eager"), gamma)


def _eager_loop(request: Request, *_: Any) -> Iterator[Event]:
    return decode(_with_engine(request, "eager"), 0)


def _rows(pair: Pair) -> tuple[Lane, ...]:
    """The lanes beside those of the table: ours without graphs, and assisted generation with guesses as good."""
    draft = pair.draft
    assert isinstance(draft, SyntheticDraft)

    def assisted(request: Request, gamma: Any, *_: Any) -> Iterator[Event]:
        return transformers_lane(make_call("assisted", request, gamma), assistant_model=_agreeing(request, draft))

    label = "transformers' assisted generation"
    return (
        Lane("eager", "Speculative, eager", "speculative decoding, eager", _eager, bench=None),
        Lane("eager-loop", "Our loop, eager", "our loop without a draft, eager", _eager_loop, "none", bench=None),
        Lane(ASSISTED.lane, label, label, assisted, "fixed", bench=None),
    )


def _agreeing(request: Request, draft: SyntheticDraft) -> Any:
    """The draft's model for assisted generation, whose choice at each place is replaced by that of ``SyntheticDraft``.

    Its passes are the true ones.
    """
    prompt = request.prompt_ids.tolist()
    known, seed = draft.continuations[tuple(prompt)], request.params.seed or 0
    vocabulary = draft.models[0].get_output_embeddings().weight.shape[0]
    guesses = given_guesses(prompt, known, draft.agreement, vocabulary, seed).to(request.pair.device)
    twin = copy.copy(draft.models[0])
    # ``generate`` takes another number of ids for another tokenizer. Here both models have the same ids.
    twin.config = copy.deepcopy(twin.config)
    twin.config.vocab_size = request.pair.target.config.vocab_size
    usual = twin.forward

    @functools.wraps(usual)
    def forward(*args: Any, **given: Any) -> Any:
        found = usual(*args, **given)
        end, rows = given["past_key_values"].get_seq_length(), found.logits.shape[1]
        places = torch.arange(end - rows + 1, end + 1, device=guesses.device).clamp(max=len(guesses) - 1)
        found.logits[0].scatter_(1, guesses[places][:, None], CERTAIN)
        return found

    twin.forward = forward
    return twin


def built(setting: Setting, name: str) -> tuple[Pair, tuple[PromptItem, ...], SamplingParams]:
    """The pair of a shape with its recorded text, its prompt, and the settings of its calls."""
    stand_in(setting)
    if setting.rehearsal:
        roofline.SECONDS = 0.01
        small_shapes(name)
    dtype = "float32" if setting.rehearsal else "bfloat16"
    pair = shape_pair(name, AGREEMENT, str(setting.device), dtype, "graph")
    example = read_prompts(EXAMPLES)[0]
    items = (PromptItem(example.name, example.category, example.prompt),)
    params = SamplingParams(32 if setting.rehearsal else TOKENS, seed=0, ignore_eos=True)
    return recorded(pair, items, params), items, params


def small_shapes(name: str) -> None:
    """Make the shapes of a pair as small as those of a rehearsal."""
    for place, model in enumerate(name.split(":")):
        fields = SHAPES[model]
        grouped = {"num_key_value_heads": 2} if "num_key_value_heads" in fields else {}
        sizes = {key: value for key, value in SMALL.items() if key in fields}
        sizes |= {"vocab_size": sizes["vocab_size"] - 16 * place}  # as in some of the pairs
        SHAPES[model] = fields | sizes | grouped | ({"head_dim": 8} if "head_dim" in fields else {})


def shape(setting: Setting, name: str) -> Iterator[Found]:
    """All lanes but compiled ones, the costs of passes, and the limit of the hardware."""
    began = time.monotonic()
    pair, items, params = built(setting, name)
    facts = pair.describe()
    setting.wait()
    weights = sum(weight.nbytes for model in pair.models(drafting=True) for weight in model.parameters())
    found: Found = {"shape": name, "pair": facts, "weight_bytes": weights}
    found |= {
        "build_seconds": time.monotonic() - began,
        "settings": _settings(setting, params),
    }
    yield found
    configs = (BASELINE, ASSISTED, EAGER_LOOP, EAGER, LOOP, SPECULATIVE)
    with on_the_table(_rows(pair)):
        plan = Plan(items, configs, params, found["settings"]["runs"])
        measured = list(filter(None, trials(pair, plan)))
        found["lanes"] = [_lane(measured, config) for config in configs]
    found["line"] = _line(found["lanes"])
    yield found
    found["passes"] = {
        f"{role} {engine}": _pass_seconds(setting, pair, model, engine)
        for role, model in (("target", pair.target), ("draft", pair.draft.models[0]))
        for engine in ("eager", "graph")
    }
    yield found
    found["limit"] = limit_record(
        limit_of(pair), pair, plan, [t for t in measured if t.lane in (BASELINE.lane, LOOP.lane)]
    )
    yield found


def compiled(setting: Setting, name: str) -> Iterator[Found]:
    """``generate`` with a static cache and compiled passes, in turns with the lanes that matter beside it."""
    pair, items, params = built(setting, name)
    request = make_request(pair, items[0].message(pair.tokenizer), params)
    room = len(request.prompt_ids) + params.max_new_tokens
    configs = (LaneConfig(COMPILED[0]), BASELINE, LOOP, SPECULATIVE)
    found: Found = {"shape": name, "settings": _settings(setting, params)}
    if setting.rehearsal:  # a compiler takes longer than all else
        torch.compile = lambda function, **options: function
    with tempfile.TemporaryDirectory() as folder, on_the_table(peers(pair, room)):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # an old cache would hide the time of compiling
        took, failed = first_calls(pair, configs, [request])
        found["failed"] = {config.label: reason for config, reason in failed.items()}
        yield found
        plan = Plan(items, tuple(took), params, found["settings"]["runs"])
        measured = list(filter(None, trials(pair, plan)))
        found["lanes"] = [_lane(measured, config) for config in took]
        found["compiling_seconds"] = {config.lane: seconds for config, seconds in compiling(took, measured).items()}
    yield found | {"line": _line(found["lanes"])}


def _settings(setting: Setting, params: SamplingParams) -> Found:
    runs = 1 if setting.rehearsal else RUNS
    return {"agreement": AGREEMENT, "gamma": GAMMA, "tokens": params.max_new_tokens, "runs": runs}


def _lane(measured: Sequence[Trial], config: LaneConfig) -> Found:
    """The figures of one lane: its rate and gain in each run, and medians of its costs."""
    summary = next(each for each in summarise(measured) if each.lane_config == config)
    loop = EAGER_LOOP if config.lane == EAGER.lane else LOOP
    runs = sorted({trial.run for trial in measured})
    sides = [RunMetrics(*(_pooled(measured, run, each) for each in (BASELINE, config, loop))) for run in runs]
    speculates = config in (EAGER, SPECULATIVE)
    middle = median_run(sides)
    return {
        "lane": config.lane,
        "label": config.row.choice,
        "gamma": config.gamma,
        "tokens_per_second": summary.rates,
        "gain": summary.gains,
        "speculation": [side.speculation for side in sides] if speculates else None,
        "same_text": summary.same,
        "compared": summary.compared,
        "alpha": summary.figure("alpha"),
        "tokens_a_pass": summary.figure("mean_acceptance_length"),
        "c": middle.cost_coefficient if speculates else None,
        "v": middle.verify_growth if speculates else None,
        "outside_passes": summary.figure("overhead_share"),
    }


def _pooled(measured: Sequence[Trial], run: int, config: LaneConfig) -> Metrics | None:
    found = [trial.metrics for trial in measured if trial.run == run and trial.lane_config == config]
    return pool(found) if found else None


def _line(lanes: Sequence[Found]) -> str:
    """The gain of each lane over plain ``generate``."""
    gains = [
        f"{lane['lane']}{':0' * (lane['gamma'] == 0)} {median(lane['gain']):.2f}x" for lane in lanes if lane["gain"]
    ]
    return ", ".join(gain for gain in gains if not gain.startswith("generate "))


@torch.inference_mode()
def _pass_seconds(setting: Setting, pair: Pair, model: Any, engine: str) -> dict[str, float]:
    """Median seconds of a pass of ``model`` after 256 tokens, by its rows: 1 to 17."""
    ids = torch.randint(256, (CACHED + 1,), generator=torch.Generator().manual_seed(0)).to(setting.device)
    found = {}
    with with_engine(pair, engine).new_engine(CACHED + 1 + ROWS[-1], None) as made:
        context = made.context(ids, ROWS[-1])
        runner = Runner(model, made)
        runner.forward(ids[:-1], keep=1, committed=True)
        for rows in ROWS[:: 8 if setting.rehearsal else 1]:
            end, seconds = CACHED + rows, []
            for _ in range(REPEATS):
                runner.run(
                    "pass",
                    (id(model), rows),
                    lambda end=end, rows=rows: runner.forward(context.ids(CACHED, end), rows),
                    end,
                )
                runner.crop_to(CACHED)
                setting.wait()
                seconds.append(runner.take_seconds())
            found[str(rows)] = median(seconds[3:])
    return found
