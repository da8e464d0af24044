"""What all ways to draft with a head have in common: weights of their own that belong to one target."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from specdec.drafters.base import DraftMethod, Loaded, after_kind
from specdec.errors import IncompatiblePair, InvalidInput, quoted
from specdec.facts import DraftFacts


@dataclass(frozen=True)
class TrainedHead(DraftMethod):
    """A way to draft with a trained head. ``head`` is its hub id or folder; once it is loaded, the head itself."""

    noun: ClassVar[str] = "head"  # what a person calls it
    shipped: ClassVar[str | None] = None  # the name of a head that ships with the package, which is no folder

    head: Any

    @classmethod
    def parse(cls, text: str) -> Self | None:
        name = after_kind(text, cls.kind)
        if name is None:
            return None
        if not name:
            raise InvalidInput(f"{text!r} names no {cls.noun}; write {cls.example}, for example.")
        return cls(name)

    def parts(self) -> tuple[str, ...]:
        return (self.head,) if isinstance(self.head, str) else ()

    def loaded(self, models: Sequence[Loaded]) -> Self:
        ((head, _),) = models
        return replace(self, head=head)

    def _named(self) -> DraftFacts:
        """The facts of every head: what it is called, and that its guesses depend on where a draft began."""
        where = self.head if isinstance(self.head, str) else self.head.name
        local = where != self.shipped and Path(where).exists()
        name = Path(where).name if local else where
        return {
            "kind": self.kind,
            "text": f"{self.kind}:{name}",
            "python": f"specdec.{type(self).__name__}({json.dumps(name)})",
            "depends_on_start": True,
            "name": name,
            "local": local,
        }


def in_target_ids(logits: torch.Tensor, offsets: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Turn logits (n, D) over a head's own tokens into logits (n, V): -inf for tokens that the head does not know.

    ``offsets`` (D,): the id of each token in the target's vocabulary minus that in the head's.
    """
    ids = torch.arange(len(offsets), device=logits.device) + offsets
    return logits.new_full((len(logits), vocabulary), float("-inf")).index_copy_(1, ids, logits)


def require_layers(head: str, found: object) -> None:
    """Raise ``IncompatiblePair`` unless the ``num_hidden_layers`` that ``head`` sets is a number of layers."""
    if type(found) is not int or found < 1:
        raise IncompatiblePair(
            f"The {head} sets num_hidden_layers to {quoted(found)}; it must be a number of layers. Choose another head."
        )
