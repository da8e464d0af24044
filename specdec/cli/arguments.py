"""What commands do with the arguments that name a pair."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import torch

from specdec.models.loading import PairPlan, load, plan_pair
from specdec.models.pair import Pair
from specdec.models.settings import LoadOptions


def leave_a_core() -> None:
    """Use one thread less for the passes, and leave a core to the server and the browser.

    Otherwise a Stop on the page would be answered only at the end. The other commands that measure do this too, so that
    figures compare.
    """
    torch.set_num_threads(max(1, torch.get_num_threads() - 1))


def plan_of(arguments: Namespace) -> PairPlan:
    """The plan of the named pair, before its weights are loaded. An empty name counts as none."""
    dtype = arguments.dtype
    options = LoadOptions(
        arguments.device, dtype, dtype, arguments.draft_weights, bits=arguments.bits, engine=arguments.engine
    )
    return plan_pair(arguments.target, arguments.draft, options)


def pair_of(arguments: Namespace) -> Pair:
    """Load the named pair. Raises what ``load_pair`` raises."""
    return load(plan_of(arguments))


def load_arguments(arguments: Namespace) -> dict[str, Any]:
    """The arguments of ``load_pair`` that load the same pair, without those that are its defaults."""
    given = {"target": arguments.target, "draft": arguments.draft, "device": arguments.device}
    given |= {"dtype": arguments.dtype, "draft_dtype": arguments.dtype, "bits": arguments.bits}
    given |= {"draft_weights": arguments.draft_weights, "engine": arguments.engine}
    return {name: value for name, value in given.items() if value not in (None, "", "auto")}
