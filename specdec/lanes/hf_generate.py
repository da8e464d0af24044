"""transformers' plain ``generate`` and its assisted generation, as events.

``generate`` cannot yield, so these lanes push their events: its streamer records the time of each token.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.generation.streamers import BaseStreamer

from specdec.drafters.draft_model import DraftModel
from specdec.engine.policy import Policy
from specdec.engine.request import NEUTRAL, LaneCall, Request, make_call, make_request
from specdec.errors import BadSetting, IncompatiblePair, NotNumbers
from specdec.events import Event, Finished, FinishReason, Round, SamplingParams
from specdec.forward.torch_private import wrap_pass
from specdec.lanes.decoding_thread import Emit, PushedLane
from specdec.lanes.hf_assistants import assistance, cannot_assist, with_config, with_fixed_gamma
from specdec.models.pair import Pair, Prompt
from specdec.runtime.clock import CallClock
from specdec.runtime.grammar import Masks


class _Stopped(BaseException):
    """Ends assisted generation at a stop string, which it would overshoot, because its draft does not know it."""


def generate(pair: Pair, prompt: Prompt, *, params: SamplingParams = SamplingParams()) -> Iterator[Event]:
    """Run transformers' plain ``generate``, the baseline: one ``Round`` for each token.

    Arguments, errors and events are those of ``speculative``. All settings of the model's own generation config are
    replaced by ``params``; ``Started.neutralised`` names those that would have changed the text.
    """
    return generate_lane(make_request(pair, prompt, params))


def assisted(
    pair: Pair, prompt: Prompt, *, gamma: int = 5, params: SamplingParams = SamplingParams()
) -> Iterator[Event]:
    """Run transformers' assisted generation at a fixed ``gamma`` of 1 to 16: one ``Round`` for each target pass.

    It drafts in the way of the pair: with a draft model, prompt lookup, the target's first layers or its MTP layers.
    transformers reports only the accepted ids, so ``draft`` and the seconds of the passes are None. Raises
    ``InvalidInput`` for what transformers cannot do, or samples from a wrong distribution.
    """
    return assisted_lane(make_request(pair, prompt, params), gamma)


def generate_lane(request: Request) -> Iterator[Event]:
    """``generate`` for a prompt that was encoded and checked before, as in a race."""
    return transformers_lane(make_call("generate", request))


def assisted_lane(request: Request, gamma: int | str | Policy, lane: str = "assisted") -> Iterator[Event]:
    """``assisted`` for a prompt that was encoded and checked before, as in a race. ``lane`` is its name there."""
    call = make_call(lane, request, gamma)
    if not isinstance(call.gamma, int) or gamma == 0:
        raise BadSetting(f"gamma is {gamma}; this lane drafts a fixed number of tokens, 1 to 16.")
    if reason := cannot_assist(request.pair):
        raise IncompatiblePair(f"{reason} Leave the lane {lane} out.")
    target, options = assistance(request, call.gamma)
    return transformers_lane(call, target, **options)


def draft_alone_lane(request: Request) -> Iterator[Event]:
    """Plain ``generate`` of the draft model: what the draft writes if no target checks it."""
    if reason := cannot_draft_alone(request.pair):
        raise IncompatiblePair(f"{reason} Leave the lane draft-alone out.")
    draft = request.pair.draft
    assert isinstance(draft, DraftModel)  # otherwise ``cannot_draft_alone`` gives a reason
    alone = Pair(target=draft.model, tokenizer=request.pair.tokenizer)
    return generate(alone, request.prompt_ids, params=request.params)


def cannot_draft_alone(pair: Pair) -> str | None:
    """Why the draft cannot write on its own; None if it can."""
    if not isinstance(pair.draft, DraftModel):
        return "This pair has no draft model that can run alone."
    if pair.draft.own_tokenizer:
        return "The draft has its own tokenizer."
    return None


class _Streamer(BaseStreamer):
    """Turns the ``put`` calls of ``generate`` into rounds. The first call is the prompt."""

    def __init__(self, call: LaneCall, emit: Emit, masks: Masks | None):
        self._call, self._emit, self._masks = call, emit, masks
        self._clock = CallClock()
        self._index = -1  # the first put is the prompt
        self.new_ids: list[int] = []
        self.prefill_seconds = 0.0
        self.reason: FinishReason = "length"
        self.ended = False
        self.elapsed_seconds = 0.0
        self.cpu_seconds: float | None = None

    def put(self, value: torch.Tensor) -> None:
        elapsed = self._clock.elapsed()
        if self._index >= 0 and not self.ended:
            block = value.flatten().tolist()
            kept, reason = self._call.cut(self.new_ids, block)
            self.ended, self.reason = reason is not None, reason or self.reason
            if self._index == 0:
                self.prefill_seconds = elapsed
            self.new_ids += block[:kept]
            if self._masks is not None:
                self._masks.require_obeyed(self._tokens())
            self._emit(self._round(tuple(block[:kept]), elapsed))
            if self._masks is not None and not self.ended:
                self._masks.require_choice(self._tokens())
            if reason == "stop" and self._call.lane != "generate":
                self.end()
                raise _Stopped
        self._index += 1

    def end(self) -> None:
        self.elapsed_seconds = self._clock.elapsed()
        self.cpu_seconds = self._clock.cpu(self._call.pair.device)

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """Do not count the time of what is no part of the work."""
        self._clock.pause()
        yield
        self._clock.resume()

    def _tokens(self) -> list[int]:
        """Prompt and new tokens."""
        return [*self._call.started.prompt_ids, *self.new_ids]

    def _round(self, ids: tuple[int, ...], elapsed: float) -> Round:
        plain = self._call.lane == "generate"
        return Round(
            index=self._index,
            draft=() if plain else None,
            token_id=ids[-1] if plain else None,
            token_kind="target" if plain else None,
            committed_ids=ids,
            draft_seconds=0.0 if plain else None,
            verify_seconds=None,
            elapsed_seconds=elapsed,
        )


class Numbers:
    """Checks the logits of every pass of a lane for NaN and infinity, from which ``generate`` would write tokens.

    A logits processor could do this too, but with one transformers copies the rows of every pass and loops over them.
    That takes several percent of the time of assisted generation. So the passes themselves are checked, and the time
    for it is not counted.

    On a CPU each pass is checked before its token is chosen. Where the host ``waits`` for the device, waiting for every
    pass would slow ``generate`` down. There the device keeps the largest value of all passes, and the host reads it at
    the end. Until then NaN and infinity are replaced, because a draw from them would end all work of the process.
    """

    def __init__(self, streamer: _Streamer, waits: bool):
        self._streamer, self._waits = streamer, waits
        self._largest: dict[str, torch.Tensor] = {}

    def watch(self, model: PreTrainedModel, whose: str) -> None:
        """Check the passes of ``model``, a copy that belongs to this lane (``with_config``)."""

        def watched(run: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(run)
            def checked(*args: Any, **kwargs: Any) -> Any:
                found = run(*args, **kwargs)
                with self._streamer.left_out():
                    self._see(whose, found.logits)
                return found

            return checked

        wrap_pass(model, watched)

    def require(self) -> None:
        """Raise ``NotNumbers`` if a pass so far held NaN or infinity. Waits for the device."""
        for whose, largest in self._largest.items():
            if not math.isfinite(largest.item()):
                raise NotNumbers(whose)

    def _see(self, whose: str, logits: torch.Tensor) -> None:
        # Minus infinity excludes a token. As the largest value of a row it would exclude all of them.
        largest = logits.amax(-1).abs().max()
        known = self._largest.get(whose)
        self._largest[whose] = largest if known is None else torch.maximum(known, largest)
        if self._waits:
            logits.nan_to_num_(nan=0.0, posinf=0.0, neginf=-math.inf)
        else:
            self.require()


class ObeyGrammar(LogitsProcessor):
    """Lets ``generate`` choose among the tokens that the call's grammar allows. ``masks``: those of the call.

    A draft may come to a place where nothing can follow, so that this is no error here. The streamer raises it for the
    text itself.
    """

    def __init__(self, masks: Masks):
        self._masks = masks

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self._masks.apply(scores, input_ids[0].tolist())


def transformers_lane(call: LaneCall, target: PreTrainedModel | None = None, **extra: Any) -> PushedLane:
    """The events of ``generate`` for ``call``. ``target`` and ``extra`` are those of ``run_generate``."""

    def run(emit: Emit) -> None:
        emit(call.started)
        masks = call.masks()
        streamer = _Streamer(call, emit, masks)
        numbers = Numbers(streamer, waits=call.pair.device.type == "cuda")
        if masks is not None:
            masks.require_choice(call.started.prompt_ids)
            extra["logits_processor"] = LogitsProcessorList([ObeyGrammar(masks)])
        try:
            run_generate(call, numbers, target, streamer=streamer, **extra)
            numbers.require()
        except _Stopped:
            numbers.require()
        except RuntimeError as error:  # finite logits that overflowed when they were divided by the temperature
            if "probability tensor" not in str(error):
                raise
            raise NotNumbers("model") from error
        emit(Finished(streamer.reason, streamer.prefill_seconds, streamer.elapsed_seconds, streamer.cpu_seconds))

    return PushedLane(run)


def run_generate(
    call: LaneCall, numbers: Numbers | None = None, target: PreTrainedModel | None = None, **extra: Any
) -> torch.Tensor:
    """Run transformers' ``generate`` for ``call`` with all settings explicit. Returns the ids (1, n), prompt included.

    ``numbers`` checks the passes. ``target`` is a copy of the pair's target (see ``assistance``). ``extra`` are further
    arguments of ``generate``; they replace settings with the same name.
    """
    ids = call.prompt_ids[None]
    target = with_config(call.pair.target, GenerationConfig()) if target is None else target
    draft = extra.get("assistant_model")
    if draft is not None:
        gamma = call.gamma
        assert isinstance(gamma, int)  # the lane takes no other draft length
        extra["assistant_model"] = draft = with_fixed_gamma(draft, gamma)
    if numbers is not None and "cache_implementation" not in extra:  # with one, passes are compiled
        numbers.watch(target, "model" if draft is None else "target")
        if draft is not None:
            numbers.watch(draft, "draft")
    with _own_random_state(call):
        return target.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **(_settings(call) | extra))


def _settings(call: LaneCall) -> dict[str, Any]:
    """Every generation setting, because a missing one is filled in from the model's own config."""
    params, eos = call.params, sorted(call.eos_ids)
    # Greedy decoding ignores top-k. transformers' default keeps it from warning about that.
    known = {name: value for name, value in NEUTRAL.items() if hasattr(call.pair.target.generation_config, name)}
    settings = known | {
        "top_k": 50,
        "max_new_tokens": params.max_new_tokens,
        "repetition_penalty": float(params.repetition_penalty),
        "eos_token_id": eos or None,
        # Nothing is padded here, but the draft's own ``generate`` skips ids that it takes for padding. It never skips
        # an EOS. Without an EOS, this must be an id that no text contains.
        "pad_token_id": eos[0] if eos else 2**31 - 1,
        "use_cache": True,
        "return_dict_in_generate": False,
        "output_scores": False,
    }
    if not params.greedy:
        settings |= {
            "do_sample": True,
            "temperature": float(params.temperature),
            "top_k": params.top_k,
            "top_p": float(params.top_p),
            "min_p": params.min_p or None,
        }
    if call.stop_criteria is not None and call.lane == "generate":
        # Made before: ``generate`` would build its own from the strings, within the measured time.
        settings |= {"stopping_criteria": StoppingCriteriaList([call.stop_criteria])}
    return settings


@contextlib.contextmanager
def _own_random_state(call: LaneCall) -> Iterator[None]:
    """Seed torch's global generator, from which ``generate`` draws, for this call; restore it afterwards."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # seeding changes all of them
    with torch.random.fork_rng(devices):
        torch.manual_seed(call.params.seed)
        yield
