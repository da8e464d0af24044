"""transformers' own decoding as the same events, and ``driven``: any lane, free-running on the one decoding thread.

``generate`` cannot yield, so it runs on a thread and stamps its tokens in the streamer. Pausing it at every token
would raise its clock; hence nothing here ever waits for the consumer. And CPU kernels keep a team of threads for
each thread that calls them; hence one decoding thread, for every lane, for the life of the process.
"""

from __future__ import annotations

import contextlib
import copy
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any

import torch
from transformers import GenerationConfig, PreTrainedModel, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from specdec.engine.request import NEUTRAL, Call, prepare
from specdec.errors import IncompatiblePair, InvalidInput
from specdec.events import Event, Finished, Round, SamplingParams
from specdec.models.pair import Pair, Prompt

Emit = Callable[[Event], None]


class _Cancelled(BaseException):
    """Unwinds ``generate`` from its streamer; not an Exception, so that nothing on the way swallows it."""


class _Stopped(BaseException):
    """Unwinds assisted generation at a stop string: it would overshoot it, and its draft cannot be told of it."""


def _start_decoding_thread() -> None:
    global _decoding_thread
    _decoding_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD_NAME)


_THREAD_NAME = "specdec-decode"
_start_decoding_thread()
os.register_at_fork(after_in_child=_start_decoding_thread)  # threads do not survive a fork


class PushedLane(Iterator[Event]):
    """A lane that pushes its events instead of yielding them. As an iterator it runs on the decoding thread."""

    def __init__(self, run: Callable[[Emit], None]):
        self.run = run
        self._batches: Iterator[list[Event]] | None = None
        self._events: Iterator[Event] = iter(())

    def __next__(self) -> Event:
        if self._batches is None:
            if threading.current_thread().name.startswith(_THREAD_NAME):
                raise InvalidInput("A lane of transformers is wrapped in a generator; give driven the lane itself.")
            # Driven by a twin: were it this object, the two would keep each other alive and an abandoned lane going.
            self._batches = driven(PushedLane(self.run))
            self._events = chain.from_iterable(self._batches)
        return next(self._events)

    def close(self) -> None:
        """End the work at once; there are no further events."""
        if self._batches is not None:
            self._batches.close()
        self._batches, self._events = iter(()), iter(())


def generate(pair: Pair, prompt: Prompt, *, params: SamplingParams = SamplingParams()) -> Iterator[Event]:
    """transformers' plain ``generate``, an event a token: the baseline. Arguments as in ``speculative``."""
    return PushedLane(_transformers_lane(prepare("generate", pair, prompt, params), {}))


def assisted(
    pair: Pair, prompt: Prompt, *, gamma: int = 5, params: SamplingParams = SamplingParams()
) -> Iterator[Event]:
    """transformers' assisted generation at a fixed ``gamma`` of 1 or more, an event a target pass.

    It streams accepted ids only, so drafts, statuses and pass times are None.
    """
    call = prepare("assisted", pair, prompt, params, gamma)
    if not isinstance(call.started.gamma, int) or gamma == 0:
        raise InvalidInput(f"gamma is {gamma}; this lane drafts a fixed number of tokens, 1 to 16.")
    if reason := cannot_assist(pair):
        raise IncompatiblePair(reason)
    return PushedLane(_transformers_lane(call, {"assistant_model": pair.draft}))


def cannot_assist(pair: Pair) -> str | None:
    """Why transformers' assisted generation does not take this pair, and what to do; None if it does."""
    models = pair.models(drafting=True)
    if len(models) == 1:
        return "transformers' assisted generation needs a draft model; leave this lane out."
    if pair.translation is not None:
        return "Target and draft have different tokenizers; leave the lane of assisted generation out."
    if any(model.device.type == "meta" for model in models):
        return (
            "transformers' assisted generation does not find the device of a model whose first weights are offloaded; "
            "leave this lane out."
        )
    rows = [model.config.get_text_config(decoder=True).vocab_size for model in models]
    if rows[0] != rows[1]:
        return (
            f"The target has {rows[0]} vocabulary rows and the draft {rows[1]}; transformers' assisted generation "
            "takes that for two tokenizers. Leave this lane out: speculative handles the padding."
        )
    return None


def driven(lane: Iterator[Event], interval: float = 0.0, max_seconds: float | None = None) -> Iterator[list[Event]]:
    """Run ``lane`` free on the decoding thread; yield what it produced, in order, at most every ``interval`` seconds.

    While there is nothing new (the lane waits for its turn, or reads a long prompt) an empty batch comes now and
    then, so that the consumer can act. Closing this generator cancels the lane: it ends at its next event, and the
    call waits until it has. A lane that has run for ``max_seconds`` is ended with ``Finished("deadline")``.
    """
    events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
    cancelled = threading.Event()
    rounds: list[float] = []  # elapsed seconds of the first and the latest round

    def emit(event: Event) -> None:
        if cancelled.is_set():
            raise _Cancelled
        late = max_seconds is not None and rounds and rounds[-1] > max_seconds
        if late and not isinstance(event, Finished):
            events.put(Finished("deadline", rounds[0], rounds[-1]))
            raise _Cancelled
        events.put(event)
        if isinstance(event, Round):
            rounds[min(1, len(rounds)) :] = [event.elapsed_seconds]

    def work() -> None:
        try:
            lane.run(emit) if isinstance(lane, PushedLane) else _pull(lane, emit)
        except _Cancelled:
            pass
        finally:
            events.put(None)

    running: Future = _decoding_thread.submit(work)
    try:
        ended = False
        while not ended:
            batch = _drain(events, interval)
            if ended := bool(batch) and batch[-1] is None:
                batch.pop()
            if batch or not ended:
                yield batch
        running.result()  # an error of the lane is raised here, behind the events that came before it
    finally:
        cancelled.set()
        if not running.cancel():
            running.exception()


def _drain(events: queue.SimpleQueue, interval: float) -> list[Event | None]:
    """Everything in the queue, ``interval`` seconds after the first of it came; nothing if none comes for a while."""
    try:
        batch = [events.get(timeout=max(interval, 0.1))]
    except queue.Empty:
        return []
    if interval and batch[0] is not None:
        time.sleep(interval)
    while not events.empty():
        batch.append(events.get())
    return batch


def _pull(lane: Iterator[Event], emit: Emit) -> None:
    try:
        for event in lane:
            emit(event)
    finally:
        if hasattr(lane, "close"):
            lane.close()


class _Streamer(BaseStreamer):
    """Turns ``put`` calls of ``generate`` into rounds: the prompt first, then the tokens of each target pass."""

    def __init__(self, call: Call, emit: Emit):
        self._call, self._emit = call, emit
        self._began = time.perf_counter()
        self._index = -1  # the first put is the prompt
        self.new_ids: list[int] = []
        self.prefill_seconds = 0.0
        self.reason = "length"
        self.ended = False
        self.elapsed_seconds = 0.0

    def put(self, value: torch.Tensor) -> None:
        elapsed = time.perf_counter() - self._began
        if self._index >= 0 and not self.ended:
            block = value.flatten().tolist()
            kept, reason = self._call.cut(self.new_ids, block)
            self.ended, self.reason = reason is not None, reason or self.reason
            if self._index == 0:
                self.prefill_seconds = elapsed
            self._emit(self._round(tuple(block[:kept]), elapsed))
            self.new_ids += block[:kept]
            if reason == "stop" and self._call.started.lane == "assisted":
                self.end()
                raise _Stopped
        self._index += 1

    def end(self) -> None:
        self.elapsed_seconds = time.perf_counter() - self._began

    def _round(self, ids: tuple[int, ...], elapsed: float) -> Round:
        plain = self._call.started.lane == "generate"
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


def _transformers_lane(call: Call, extra: dict[str, Any]) -> Callable[[Emit], None]:
    """A function that runs ``generate`` for ``call`` and emits its events."""

    def run(emit: Emit) -> None:
        emit(call.started)
        streamer = _Streamer(call, emit)
        with contextlib.suppress(_Stopped):
            run_generate(call, streamer=streamer, **extra)
        emit(Finished(streamer.reason, streamer.prefill_seconds, streamer.elapsed_seconds))

    return run


def run_generate(call: Call, **extra: Any) -> torch.Tensor:
    """transformers' ``generate`` for ``call``, all its settings explicit; the ids (1, n), prompt included."""
    ids = call.prompt_ids[None]
    if draft := extra.get("assistant_model"):
        extra["assistant_model"] = _with_fixed_gamma(draft, call.started.gamma)
    with _own_random_state(call):
        return call.pair.target.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **_settings(call), **extra)


def _settings(call: Call) -> dict[str, Any]:
    """Every field of generation, explicitly: one left out would be filled from the model's own config."""
    params, eos = call.params, sorted(call.eos_ids)
    # Greedy decoding reads no top-k; its own default keeps transformers from warning about a flag without effect.
    known = {name: value for name, value in NEUTRAL.items() if hasattr(call.pair.target.generation_config, name)}
    settings = known | {
        "top_k": 50,
        "max_new_tokens": params.max_new_tokens,
        "repetition_penalty": float(params.repetition_penalty),
        "eos_token_id": eos or None,
        # Nothing is padded here, but the draft's own ``generate`` does not read ids that it takes for padding. An EOS
        # never counts as that; where there is none, only an id that no text can hold will do.
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
    if call.stop_criteria is not None and call.started.lane == "generate":
        # Ready made: from the strings it would make its own, within its clock.
        settings |= {"stopping_criteria": StoppingCriteriaList([call.stop_criteria])}
    return settings


@contextlib.contextmanager
def _own_random_state(call: Call) -> Iterator[None]:
    """``generate`` draws from torch's global generator: seed it for this call and put it back."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []  # a seed reaches all of them
    with torch.random.fork_rng(devices):
        torch.manual_seed(call.params.seed)
        yield


def _with_fixed_gamma(draft: PreTrainedModel, gamma: int) -> PreTrainedModel:
    """The same weights in another object, whose generation config fixes the draft length and nothing else.

    Assisted generation reads the length from there. Passing ``num_assistant_tokens`` to ``generate`` has no effect, the
    default schedule changes the length as it goes, the default confidence threshold ends drafts early, and the draft's
    own config would change what it drafts. The draft itself stays as it is: another lane may be reading it.
    """
    fixed = copy.copy(draft)
    fixed._compiled_call_impl = draft._compiled_call_impl  # which a copy of a module leaves behind
    fixed.generation_config = GenerationConfig(
        num_assistant_tokens=gamma,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
        pad_token_id=draft.generation_config.pad_token_id,
    )
    return fixed
