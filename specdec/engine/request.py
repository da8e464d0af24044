"""A request is a prompt with its settings, checked before anything runs. A call is one lane's run of a request."""

from __future__ import annotations

import copy
import os
import platform
import secrets
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from specdec.engine.acceptance import Acceptance, Lossless, TopK
from specdec.engine.policy import Fixed, Policy, lengths_of, policy_of
from specdec.errors import BadSetting, InvalidInput, quoted
from specdec.events import FinishReason, SamplingParams, Started
from specdec.facts import MachineFacts
from specdec.forward.engine import Engine
from specdec.forward.hf_private import FewerStopTokens
from specdec.models.compatibility import refuse_rope_change
from specdec.models.pair import Pair, Prompt
from specdec.runtime.grammar import Constraint, Masks, constraint_of
from specdec.runtime.sampling import settings_of
from specdec.text import require_text
from specdec.version import VERSION

# Every field of a generation config that changes which tokens ``generate`` picks, with the value that has no effect.
# All of them are passed to ``generate``, because it fills a field that is left out from the model's own config.
NEUTRAL = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": None,
    "top_h": None,
    "typical_p": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "guidance_scale": None,
    "watermarking_config": None,
    "min_length": 0,
    "min_new_tokens": None,
    "max_time": None,
    "stop_strings": None,
    "prompt_lookup_num_tokens": None,
    "cache_implementation": None,
    "assistant_early_exit": None,
    "assistant_ensemble_weight": None,
    "use_mtp": None,
    "speculation_type": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "constraints": None,
    "force_words_ids": None,
    "token_healing": False,
}


class StopStrings(FewerStopTokens):
    """Says whether a call's text ends with a stop string.

    It looks once at each length of the text, because in the lane of ``generate`` both the loop and the streamer ask.
    """

    _seen: tuple[int, torch.Tensor] | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor | None, **kwargs: Any) -> torch.Tensor:
        if self._seen is None or self._seen[0] != input_ids.shape[1]:
            self._seen = input_ids.shape[1], super().__call__(input_ids, scores, **kwargs)
        return self._seen[1].to(input_ids.device)


@dataclass(frozen=True)
class Request:
    """A prompt that was encoded and checked once, with the settings of its sampling. All lanes of a race share it.

    ``prompt_ids`` (n,) stay on the device where they were made; a call copies them to the target's device.
    ``params.seed`` is the seed that is really used.
    """

    pair: Pair
    prompt_ids: torch.Tensor
    params: SamplingParams
    stop_criteria: StopStrings | None
    constraint: Constraint | None = None

    @property
    def eos_ids(self) -> frozenset[int]:
        """The ids that end the text."""
        return frozenset() if self.params.ignore_eos else self.pair.eos_ids

    def with_params(self, **changes: Any) -> Request:
        """The same prompt with another length or seed."""
        return replace(self, params=replace(self.params, **changes))

    def drafting_with(self, draft: Any) -> Request:
        """The same prompt and target with another draft."""
        return replace(self, pair=replace(self.pair, draft=draft, draft_tokenizer=None))


def make_request(pair: Pair, prompt: Prompt, params: SamplingParams) -> Request:
    """Encode and check a prompt. Raises ``InvalidInput``, which says what was found and what to do.

    Nothing runs on the device, so a process that may not use the device can check a request too.
    """
    if not isinstance(pair, Pair):
        raise InvalidInput(f"The pair is a {type(pair).__name__}; give a Pair; load_pair makes one from model names.")
    if not isinstance(params, SamplingParams):
        raise InvalidInput(f"params is a {type(params).__name__}; give SamplingParams(...), or leave it out.")
    # The pair set eval mode when it was made. Setting it here again would change a model that somebody may be training.
    for model in pair.models(drafting=True):
        if any(module.training for module in model.modules()):
            raise InvalidInput(f"{type(model).__name__} is in train mode, which drops activations; call its eval().")
    for text in params.stop:
        require_text("A stop string", text)
    prompt_ids = pair.encode(prompt)[0]
    if params.stop and pair.tokenizer is None:
        raise InvalidInput(f"stop is {quoted(params.stop)}, but the pair has no tokenizer to read its tokens with.")
    if params.seed is None:
        params = replace(params, seed=secrets.randbits(32))  # JSON readers round integers above 2^53
    stop = _stop_strings(pair, params.stop) if params.stop else None
    constraint = _constraint(pair, params)
    # A grammar is followed on the host, for which no graph waits. This holds for lanes that draft in another way too.
    if constraint is not None and pair.engine != "eager":
        pair = replace(pair, engine="eager")
    return Request(pair, prompt_ids, params, stop, constraint)


def _constraint(pair: Pair, params: SamplingParams) -> Constraint | None:
    if params.grammar is None:
        return None
    eos_ids: frozenset[int] = frozenset() if params.ignore_eos else pair.eos_ids
    return constraint_of(params.grammar, pair.tokenizer, eos_ids, pair.vocabulary)


def masks_of(pair: Pair, params: SamplingParams, prompt: int) -> Masks | None:
    """The masks of a call with a prompt of ``prompt`` tokens; None without a grammar."""
    constraint = _constraint(pair, params)
    return None if constraint is None else constraint.masks(prompt)


def _stop_strings(pair: Pair, stop: tuple[str, ...]) -> StopStrings:
    try:
        return StopStrings(pair.tokenizer, list(stop))
    except (ValueError, IndexError, KeyError) as error:
        raise InvalidInput(
            f"stop is {quoted(stop)}, and the target's tokenizer has no token for some of its characters; leave those "
            "out."
        ) from error


@dataclass(frozen=True)
class LaneCall:
    """One lane's checked call."""

    request: Request
    lane: str
    policy: Policy
    acceptance: Acceptance
    stop_criteria: StopStrings | None

    @property
    def pair(self) -> Pair:
        return self.request.pair

    @property
    def gamma(self) -> int | str:
        """The draft length, or the policy's name."""
        return self.policy.gamma if type(self.policy) is Fixed else str(self.policy)

    @cached_property
    def prompt_ids(self) -> torch.Tensor:
        """(n,) on the target's device."""
        return self.request.prompt_ids.to(self.pair.device)

    @property
    def params(self) -> SamplingParams:
        return self.request.params

    @cached_property
    def eos_ids(self) -> frozenset[int]:
        return self.request.eos_ids

    def new_engine(self) -> Engine:
        """The engine that runs its passes."""
        tokens = len(self.prompt_ids) + self.params.max_new_tokens
        return self.pair.new_engine(tokens, settings=(settings_of(self.params), self.acceptance))

    @cached_property
    def started(self) -> Started:
        """The first event. Made on first use, where the call runs: to describe the pair may take passes."""
        return Started(
            lane=self.lane,
            prompt_ids=tuple(self.request.prompt_ids.tolist()),
            params=self.params,
            gamma=self.gamma,
            acceptance=self.acceptance.name,
            accept_top_k=self.acceptance.top_k if isinstance(self.acceptance, TopK) else None,
            pair=self.pair.describe(),
            machine=machine_facts(self.pair.device),
            versions=dict(versions()),
            neutralised=neutralised(self.pair),
            claims_lossless=self.acceptance.lossless,
        )

    def masks(self) -> Masks | None:
        """The masks of the call's grammar, made anew; None without a grammar."""
        constraint = self.request.constraint
        return None if constraint is None else constraint.masks(len(self.request.prompt_ids))

    def cut(self, before: list[int], block: list[int]) -> tuple[int, FinishReason | None]:
        """How many tokens of ``block`` may be appended after the new tokens ``before``, and why the call ends then.

        A token that ends the call is kept. An EOS in the prompt ends nothing. The reason is None if the call goes on.
        """
        for count, token_id in enumerate(block, start=1):
            if token_id in self.eos_ids:
                return count, "eos"
            if self.stop_criteria is not None:
                ids = torch.tensor([[*self.started.prompt_ids, *before, *block[:count]]])
                if self.stop_criteria(ids, None).all():
                    return count, "stop"
            if len(before) + count == self.params.max_new_tokens:
                return count, "length"
        return len(block), None


def make_call(
    lane: str, request: Request, gamma: int | str | Policy = 0, acceptance: Acceptance = Lossless()
) -> LaneCall:
    """Check what a lane adds to a request. Raises ``InvalidInput``, which says what was found and what to do."""
    pair, params = request.pair, request.params
    policy = policy_of(gamma)
    lengths_of(policy)  # refuses what it cannot be asked for
    drafting = policy != Fixed(0)
    if drafting and pair.draft is None:
        raise BadSetting(f"gamma is {policy}, but the pair has no draft; give the pair a draft, or use 0.")
    _check_length(pair, len(request.prompt_ids), params.max_new_tokens, drafting)
    if lane != "generate":  # a pass over several tokens may use other rope factors than a pass over one
        refuse_rope_change(pair.target.config, len(request.prompt_ids), params.max_new_tokens)
    return LaneCall(
        request=request,
        lane=lane,
        policy=policy,
        acceptance=acceptance,
        # A copy for each call, because it remembers the length at which it looked last.
        stop_criteria=copy.copy(request.stop_criteria),
    )


def neutralised(pair: Pair) -> dict[str, Any]:
    """The fields of the target's own generation config that would have changed the output, with their values."""
    config = pair.target.generation_config
    found = {name: getattr(config, name, None) for name in NEUTRAL}
    unset = (None, False)
    return {
        name: value if isinstance(value, (int, float, str, list)) else str(value)
        for name, value in found.items()
        if value not in unset and value != NEUTRAL[name] and value not in ([], {})
    }


def machine_facts(device: torch.device) -> MachineFacts:
    """The machine that the figures are measured on."""
    facts: MachineFacts = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions of the packages that decide speed and text."""
    packages = {name: version(name) for name in ("torch", "transformers")}
    return {"specdec": VERSION, "python": platform.python_version()} | packages


@lru_cache(maxsize=1)
def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _check_length(pair: Pair, prompt: int, new: int, drafting: bool) -> None:
    context = pair.context_length(drafting)
    if context is not None and prompt + new > context:
        of_draft = context != pair.context_length(drafting=False)
        whose, more = ("draft's context", ", or take another draft") if of_draft else ("context", "")
        raise InvalidInput(
            f"The prompt has {prompt} tokens; with {new} new ones that is {prompt + new}, and the {whose} holds "
            f"{context}. Shorten the prompt or ask for fewer new tokens{more}."
        )
