"""Facts about a pair and a machine, as plain values. Events, recordings, results and written code hold these types.

They may come from a stranger's file, so each value has a bound. What shows a field that may be missing does without it.
"""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict  # pydantic supports the standard one only from Python 3.12 on

OPEN = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)
_Text = Annotated[str, Field(max_length=1000)]  # may be a path
_Count = Annotated[int, Field(ge=0, le=1_000_000)]
_Many = Annotated[int, Field(ge=0, le=2**53 - 1)]
_Plain: TypeAlias = _Text | int | float | bool | None


@with_config(OPEN)
class ModelFacts(TypedDict):
    """Facts about a model.

    - ``name``: its hub id, or the last part of its folder; ``local`` says that it is a folder.
    - ``layers``: None if its config does not say it.
    - ``parameters``, ``rows``: how many weights it has, and the rows of its vocabulary.
    - ``dtype``: of its weights, such as "bfloat16"; ``bits`` are those of packed weights, else None.
    - ``revision``: the commit of the hub; None for a folder, and for a model that ``load_pair`` has not loaded.
    - ``own_forward``: why its passes use transformers' ``forward``; None if they use the lean one. Missing where
      nothing has been decoded.
    - ``torch_passes``: why torch runs all its passes; None if those over few rows are native. Missing where nothing
      has been decoded.
    - ``in_16_bits``: that native passes read its float32 weights in 16 bits, to the same logits. Missing where they
      do not.
    """

    name: _Text
    layers: _Count | None
    parameters: NotRequired[_Many]
    dtype: _Text
    rows: NotRequired[_Many]
    local: NotRequired[bool]
    revision: NotRequired[_Text | None]
    bits: _Count | None
    own_forward: NotRequired[_Text | None]
    torch_passes: NotRequired[_Text | None]
    in_16_bits: NotRequired[bool]


@with_config(OPEN)
class DraftFacts(TypedDict):
    """Facts about a way to draft; see ``specdec.drafters.base.DraftMethod.describe``.

    - ``kind``: its name, such as "model" or "prompt-lookup"; ``text`` is what ``--draft`` takes, ``python`` the
      expression that builds it.
    - ``depends_on_start``: whether a guess depends on the place where its draft began, or a draft may be shorter than
      asked.
    - ``name`` to ``bits``, and ``own_forward`` to ``in_16_bits``: as in ``ModelFacts``, of a draft that has a model
      or weights.
    - ``own_tokenizer``: whether a draft model has another tokenizer than the target.
    - ``agreement``: the chance that a synthetic draft agrees, 0 to 1.
    - ``max_ngram``, ``min_ngram``: tokens that prompt lookup looks for.
    - ``layer_ids``: which hidden states a head reads.
    - ``one_pass``: whether a draft takes one pass, whatever its length. Missing where it does not.
    - ``most_guesses``: how many guesses such a draft has at most. Missing without a bound.
    - ``more``: what a method of another package says besides.
    """

    kind: _Text
    text: _Text
    python: NotRequired[_Text]
    depends_on_start: NotRequired[bool]
    name: NotRequired[_Text]
    layers: NotRequired[_Count | None]
    parameters: NotRequired[_Many]
    dtype: NotRequired[_Text]
    rows: NotRequired[_Many]
    local: NotRequired[bool]
    revision: NotRequired[_Text | None]
    bits: NotRequired[_Count | None]
    own_tokenizer: NotRequired[bool]
    agreement: NotRequired[Annotated[float, Field(ge=0, le=1)]]
    max_ngram: NotRequired[_Count]
    min_ngram: NotRequired[_Count]
    layer_ids: NotRequired[Annotated[list[_Count], Field(max_length=100)]]
    one_pass: NotRequired[bool]
    most_guesses: NotRequired[_Count]
    more: NotRequired[Annotated[dict[_Text, _Plain], Field(max_length=20)]]
    own_forward: NotRequired[_Text | None]
    torch_passes: NotRequired[_Text | None]
    in_16_bits: NotRequired[bool]


@with_config(OPEN)
class EngineFacts(TypedDict):
    """What runs the passes. ``reason``: why the graph engine was asked for and cannot run; else None."""

    name: Literal["eager", "graph"]
    reason: _Text | None


Exactness: TypeAlias = Literal["rounds", "counts", "speed"]


@with_config(OPEN)
class ServerFacts(TypedDict):
    """Facts about a server that ran a lane. Its address is not among them.

    - ``engine``, ``version``: such as "vLLM" and "0.32.0"; the version is None if it does not tell it.
    - ``model``: the name that the server gives to its model; of a folder the last part.
    - ``speculation``: whether it speculates; None if it does not tell.
    - ``guesses``: how many guesses a step makes at most; None if it does not tell.
    - ``exact``: what it told: "rounds" each round; "counts" the sums of all rounds; "speed" neither.
    - ``ids``: whether it told token ids. Without them a token is a piece of its text.
    """

    engine: _Text
    version: _Text | None
    model: _Text
    speculation: bool | None
    guesses: Annotated[int, Field(ge=0, le=1000)] | None
    exact: Exactness
    ids: bool


@with_config(OPEN)
class PairFacts(TypedDict):
    """Facts about a pair.

    - ``name``: a name in place of those of its models, else None.
    - ``context``: how many tokens a text of it may have; None without a bound.
    - ``device``: where the target is, such as "cuda:0"; ``compiled`` says whether it was compiled.
    - ``draft``: None without a draft.
    - ``engine``: missing where nothing has been decoded.
    - ``server``: missing unless a server ran the lane.
    """

    name: _Text | None
    context: NotRequired[_Many | None]
    device: _Text
    compiled: bool
    target: ModelFacts
    draft: DraftFacts | None
    engine: NotRequired[EngineFacts]
    server: NotRequired[ServerFacts]


@with_config(OPEN)
class MachineFacts(TypedDict):
    """The machine of a measurement. ``threads``: how many torch used; ``gpu`` is missing without one."""

    cpu: _Text
    cores: _Count | None
    threads: _Count
    device: _Text
    gpu: NotRequired[_Text]


def on_servers(facts: PairFacts) -> bool:
    """Whether a server ran the lane: the plain lane beside it was no ``generate`` but another server."""
    return "server" in facts


def takes_one_pass(facts: PairFacts) -> bool:
    """Whether a draft of the pair takes one pass, whatever its length. Such a way to draft is a block drafter."""
    return bool(facts["draft"] and facts["draft"].get("one_pass"))
