"""Times the passes of both models of a pair over several sequences with filled caches (``cached_batch``).

The passes that are compared run in turns. Other engines have other costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median

import torch
from transformers import PreTrainedModel

from specdec.drafters.draft_model import DraftModel
from specdec.errors import BadSetting, InvalidInput
from specdec.events import SamplingParams
from specdec.forward import cuda_graph
from specdec.forward.lean import LeanModel
from specdec.forward.lean_check import lean_model
from specdec.forward.static_buffers import bound_of
from specdec.lanes.table import LOOP, LaneConfig
from specdec.measure.cached_batch import PART, Timed, cached_batch, seconds_on
from specdec.measure.load import GRAPH, TRANSFORMERS, PassTimes, kept_by_place
from specdec.measure.metrics import pool
from specdec.measure.plan import Plan
from specdec.measure.prompts import PromptItem
from specdec.measure.roofline import Rates, rates_for, work_of
from specdec.measure.trials import trials
from specdec.models.compatibility import recurrent_layers
from specdec.models.memory import cache_bytes
from specdec.models.pair import Pair
from specdec.runtime.memory import free_bytes

TURNS = 9  # passes of each kind in a run; their median counts
SPARE = 2.5  # a cache that grows is copied, so it needs so many times its size


def draft_model_of(pair: Pair) -> PreTrainedModel:
    """The draft's model. Raises ``InvalidInput`` where rounds of this pair are not those that are folded."""
    if not isinstance(pair.draft, DraftModel) or pair.draft.own_tokenizer:
        raise InvalidInput(
            "The cost of this way to draft is not known under load. Give a draft that is a model with the target's "
            "tokenizer."
        )
    for model in (pair.target, *pair.draft.models):
        if recurrent_layers(model.config):
            raise InvalidInput(
                f"{type(model).__name__} has recurrent layers, whose passes under load are not measured here. Give "
                "models with attention alone."
            )
    return pair.draft.models[0]


def require_passes(pair: Pair, passes: str) -> None:
    """Raise ``InvalidInput`` if the pair has no such ``passes``, one of ``load.PASSES``."""
    models = (pair.target, draft_model_of(pair))
    for model in models if passes != TRANSFORMERS else ():
        if isinstance(reason := lean_model(model), str):
            raise InvalidInput(f"{type(model).__name__} has no lean passes. {reason} Take those of transformers.")
    if passes == GRAPH:
        if cuda_graph.capture_for(pair.device) is None:
            raise InvalidInput(f"CUDA graphs need a CUDA device, and this pair is on {pair.device}. Take lean passes.")
        if refused := cuda_graph.no_graphs(models):
            raise InvalidInput(f"Passes of this pair cannot be captured. {refused} Take lean passes.")


def recorded_acceptance(
    pair: Pair, items: Sequence[PromptItem], params: SamplingParams, gamma: int
) -> tuple[list[float], torch.Tensor]:
    """The shares of guesses kept by their place, of one run over the prompts, and the ids (n,) of the written texts.

    Our loop runs them one after another. The draft's weights are read as they are, as in the passes that are timed.
    """
    assert isinstance(pair.draft, DraftModel)  # see ``draft_model_of``
    exact = replace(pair, draft=replace(pair.draft, rounded=False))
    plan = Plan(tuple(items), (LaneConfig(LOOP.lane, gamma),), params, runs=1)
    found = [trial for trial in trials(exact, plan) if trial]
    ids = torch.tensor([token for trial in found for token in trial.token_ids], device=pair.device)
    return kept_by_place(pool(trial.metrics for trial in found)), ids


def contexts_of(pair: Pair, asked: Sequence[int] | None, usual: Sequence[int], gamma: int) -> list[int]:
    """The context lengths to measure: those asked for, or those of ``usual`` that fit. Raises ``BadSetting``."""
    bound = pair.context_length()
    most = bound - gamma - 1 if bound else max(asked or usual)
    for context in asked or ():
        if not 1 <= context <= most:
            reads = (
                f" up to {most}: this pair reads {bound} tokens, and a check reads {gamma + 1} more" if bound else ""
            )
            raise BadSetting(f"A context of {context} tokens is asked for; give 1{reads or ' or more'}.")
    found = [context for context in dict.fromkeys(asked or usual) if context <= most]
    if not found:
        raise BadSetting(f"This pair reads {bound} tokens, fewer than the usual contexts; give a shorter one.")
    return found


@torch.inference_mode()
def pass_times(
    pair: Pair,
    ids: torch.Tensor,
    context: int,
    batch: int,
    gamma: int,
    runs: int,
    timed: Timed = seconds_on,
    passes: str = TRANSFORMERS,
) -> PassTimes:
    """Time the ``passes`` (see ``load.PASSES``) of ``batch`` sequences with ``context`` tokens each.

    ``ids`` (n,) are tokens of real texts. Each sequence begins at another place of them: sequences that were alike
    would read the same experts of a mixture of experts.
    """
    draft = draft_model_of(pair)
    rows = _rows(ids, batch, context + gamma + 1)
    new = rows[:, context:]
    cached = cached_batch(pair.target, rows[:, :context], gamma + 1, passes)
    guessing = cached_batch(draft, rows[:, :context], 1, passes)
    kinds: dict[int, Callable[[], float]] = {0: partial(guessing.seconds, new[:, :1], timed)}  # 0: the draft's
    kinds |= {width: partial(cached.seconds, new[:, :width], timed) for width in range(1, gamma + 2)}
    for run_pass in kinds.values():
        run_pass()
    found: dict[int, list[float]] = {width: [] for width in kinds}
    for _ in range(runs):
        took = [{width: run_pass() for width, run_pass in kinds.items()} for _ in range(TURNS)]
        for width in kinds:
            found[width].append(median(turn[width] for turn in took))
    return PassTimes(context, batch, {width: found[width] for width in range(1, gamma + 2)}, found[0], passes)


def _rows(ids: torch.Tensor, batch: int, tokens: int) -> torch.Tensor:
    """``batch`` rows of ``tokens`` ids, spread over the text ``ids`` (n,), which begins again at its end."""
    starts = torch.arange(batch, device=ids.device) * len(ids) // batch
    return ids[(starts[:, None] + torch.arange(tokens, device=ids.device)) % len(ids)]


def fits(pair: Pair, context: int, batch: int, gamma: int, passes: str) -> bool:
    """Whether the caches and logits of such a measurement fit into the free memory, by estimate."""
    tokens, models = context + gamma + 1, pair.models(drafting=True)
    tokens = bound_of(tokens) if passes == GRAPH else tokens
    caches = sum(cache_bytes(model.config, model.dtype, tokens) for model in models)
    logits = max(gamma + 1, min(PART, context)) * pair.vocabulary * torch.float32.itemsize
    return batch * (SPARE * caches + 2 * logits) < free_bytes(pair.device)


def all_pass_times(
    pair: Pair,
    ids: torch.Tensor,
    contexts: Sequence[int],
    levels: Sequence[int],
    gamma: int,
    runs: int,
    passes: str = TRANSFORMERS,
) -> Iterator[PassTimes]:
    """Time the ``passes`` at each context and each number of sequences that fits into memory, in order."""
    for context in contexts:
        for batch in levels:
            if fits(pair, context, batch, gamma, passes):
                yield pass_times(pair, ids, context, batch, gamma, runs, passes=passes)


class MachineLimit:
    """The least seconds that the passes of a pair could take here, by the rates of ``roofline``."""

    def __init__(self, models: Sequence[tuple[LeanModel, Rates]]):
        self._target, self._draft = models

    def least(self, times: PassTimes) -> PassTimes:
        """The least seconds of the same passes."""

        def of(model: tuple[LeanModel, Rates], width: int) -> list[float]:
            lean, rates = model
            return [rates.seconds(work_of(lean, width, times.context, times.batch))]

        target = {width: of(self._target, width) for width in times.target}
        return replace(times, target=target, draft=of(self._draft, 1))


def machine_limit(pair: Pair) -> MachineLimit | str:
    """Measure the rates for both models, with weights as these passes read them. A sentence if they are not known."""
    leans: list[LeanModel] = []
    for role, model in (("target", pair.target), ("draft", draft_model_of(pair))):
        lean = lean_model(model)
        if isinstance(lean, str):
            return f"The work of a pass of the {role} is not known. {lean}"
        leans.append(lean)
    return MachineLimit([(lean, rates_for(lean)) for lean in leans])
