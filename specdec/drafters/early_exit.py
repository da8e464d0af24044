"""Drafting with the target's own first layers. There is no second model, and both share the target's cache."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from transformers import PreTrainedModel

from specdec.drafters.base import (
    Drafter,
    DraftMethod,
    DraftWork,
    Finding,
    Planned,
    Proposal,
    Sized,
    after_kind,
    output_bytes,
)
from specdec.drafters.draft_model import ModelDraft
from specdec.drafters.forms import form_of
from specdec.errors import IncompatiblePair, InvalidInput
from specdec.facts import DraftFacts
from specdec.forward.hf import decoder_layers
from specdec.forward.model_info import attends
from specdec.forward.runner import Runner
from specdec.forward.torch_private import children_of, copy_with
from specdec.runtime.sampling import Sampler
from specdec.runtime.stopping import DraftStop
from specdec.runtime.tokens import TokenBuffer


@dataclass(frozen=True)
class EarlyExit(DraftMethod):
    """Draft with the target's first ``layers`` layers, followed by its final norm and its output layer.

    ``view`` is the target with those layers only; a pair fills it in. Raises ``InvalidInput`` for a number below 1, and
    ``IncompatiblePair`` for a target that cannot be left after so many layers.
    """

    kind: ClassVar[str] = "early-exit"
    label: ClassVar[str] = "Early exit"
    about: ClassVar[str] = "the target's own first layers guess"
    form: ClassVar[str] = form_of(kind)
    example: ClassVar[str] = "early-exit:3"

    layers: int
    view: PreTrainedModel | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.layers, bool) or not isinstance(self.layers, int) or self.layers < 1:
            raise InvalidInput(f"layers is {self.layers!r}; give a whole number of 1 or more.")

    @classmethod
    def parse(cls, text: str) -> Self | None:
        layers = after_kind(text, cls.kind)
        if layers is None:
            return None
        if not re.fullmatch("[0-9]{1,4}", layers):
            raise InvalidInput(f"{text!r} has no number of layers; write {cls.example}, for example.")
        return cls(int(layers))

    def describe(self) -> DraftFacts:
        return {
            "kind": self.kind,
            "text": f"{self.kind}:{self.layers}",
            "python": f"specdec.EarlyExit({self.layers})",
            "depends_on_start": False,
            "layers": self.layers,
        }

    def refuse(self, target_config: Any) -> None:
        refuse_exit(target_config, self.layers)

    def findings(self, target: Planned, parts: Sequence[Planned]) -> Iterator[Finding]:
        layers = target.config.get_text_config(decoder=True).num_hidden_layers
        share = self.layers / layers
        yield Finding(
            "note" if share > 0.3 else "good",
            "Cost",
            f"The first {self.layers} of {layers} layers: a draft pass costs about {share:.2f} of a target pass. "
            "Few targets guess well from their early layers without training for it.",
        )

    def work(self, target: Sized, parts: Sequence[Sized]) -> DraftWork:
        output, layers = output_bytes(target), target.config.get_text_config(decoder=True).num_hidden_layers
        return DraftWork((target.bytes - output) * self.layers / layers + output, self.layers)

    def bound_to(self, target: PreTrainedModel, tokenizer: Any) -> Self:
        return replace(self, view=first_layers(target, self.layers))

    def start(self, target: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer) -> Drafter:
        assert self.view is not None  # the pair filled it in
        return EarlyExitDraft(target, target.sharing(self.view), vocabulary, sampler, context)


def refuse_exit(config: Any, count: int) -> None:
    """Refuse a model that cannot be left after ``count`` layers, by its config alone."""
    if config.model_type == "git":  # its layers for images come first and may be as many as those for text
        raise IncompatiblePair("Early exit does not work with GIT models; use a draft model or prompt-lookup.")
    config = config.get_text_config(decoder=True)
    depth, kinds = config.num_hidden_layers, getattr(config, "layer_types", None) or ["full_attention"]
    if count >= depth:
        raise IncompatiblePair(f"Early exit after {count} layers, but the target has {depth}; use fewer.")
    if not any(map(attends, kinds[:count])):
        raise IncompatiblePair(f"None of the target's first {count} layers is an attention layer; use more.")
    if shared := getattr(config, "num_kv_shared_layers", 0):
        raise IncompatiblePair(
            f"Early exit does not work with this target, whose last {shared} layers read the keys and values of "
            "earlier ones; use prompt-lookup."
        )
    if getattr(config, "hidden_size_per_layer_input", None):
        raise IncompatiblePair(
            "Early exit does not work with this target, which gives each layer an input of its own; use prompt-lookup."
        )


def first_layers(model: PreTrainedModel, count: int) -> PreTrainedModel:
    """A view of ``model`` with its first ``count`` decoder layers. It shares every weight.

    transformers' own early exit changes the layer count in the shared config. Here every module on the way to the list
    of layers is a shallow copy with its own config, and the model itself does not change.
    """
    depth = model.config.get_text_config(decoder=True).num_hidden_layers
    layers = decoder_layers(model)
    if layers is None:
        raise IncompatiblePair(
            f"Early exit does not work with {type(model).__name__}: it has no single list of its {depth} layers. Use "
            "prompt-lookup."
        )
    path = next(name for name, module in model.named_modules() if module is layers).split(".")
    view = module = _shallow(model, count)
    for name in path[:-1]:
        inner = _shallow(module.get_submodule(name), count)
        children_of(module)[name] = inner
        module = inner
    children_of(module)[path[-1]] = layers[:count]
    return view


def _shallow(module: Any, count: int) -> Any:
    """A copy of ``module`` with the same children, and with a config of ``count`` layers if it has a config."""
    twin = copy_with(module, dict(children_of(module)))
    twin.__dict__.pop("forward", None)  # accelerate's hooks put one there that is bound to the copied module
    if hasattr(twin, "config"):
        twin.config = copy.deepcopy(twin.config)
        text = twin.config.get_text_config(decoder=True)
        text.num_hidden_layers = count
        kinds = getattr(text, "layer_types", None) or ()
        if len(kinds) > count:  # some configs derive them from the number of layers
            text.layer_types = kinds[:count]
    return twin


class EarlyExitDraft(ModelDraft):
    """Drafts with the target's first layers, in the target's own cache.

    Drafting fills the cache of those layers only. They are cropped before the target verifies, because its pass must
    start at the same length in all layers. So it computes these rows again, with the same values.
    """

    def __init__(self, target: Runner, first: Runner, vocabulary: int, sampler: Sampler, context: TokenBuffer):
        super().__init__(first, vocabulary, sampler, context)
        self._target = target

    def prefill(self, context: TokenBuffer) -> None:
        """Nothing to do: the target's pass over the prompt fills the shared cache."""

    def propose(self, context: TokenBuffer, gamma: int, stop: DraftStop | None) -> Proposal:
        if gamma == 0:
            return self._nothing
        cached = len(self._target)
        self._runner.follow(cached)
        proposal = super().propose(context, gamma, stop)
        self._runner.crop_to(cached)
        return proposal

    def crop_to(self, length: int) -> None:
        """Nothing to do: the target crops the shared layers."""

    def catch_up(self, context: TokenBuffer) -> None:
        """Nothing to do: the target's passes fill the shared cache."""

    def require_cache(self) -> None:
        """Nothing to do: the target's cache was checked already."""
