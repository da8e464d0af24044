"""How a pair is loaded, and the names to choose from. Loads without torch, for the parser of the command line."""

from __future__ import annotations

from dataclasses import dataclass

ENGINES = ("auto", "eager", "graph")
DTYPES = ("float32", "bfloat16", "float16")
DRAFT_WEIGHTS = ("auto", "same", "int8")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a pair is loaded. The fields are arguments of ``load_pair``, which explains them.

    ``token``: whether the owner's token is sent to the hub, when a pair is planned and when it is loaded; False for a
    stranger's choice.
    """

    device: str = "auto"
    dtype: str = "auto"
    draft_dtype: str = "auto"
    draft_weights: str = "auto"
    revision: str | None = None
    draft_revision: str | None = None
    bits: int | None = None
    engine: str = "auto"
    token: bool = True
