"""Who proposes: a draft model, the target's own early layers, or the context itself. Trees and EAGLE-style heads are
out of scope.

A drafter never decides what is kept.
"""

from __future__ import annotations

from specdec.drafters.base import Drafter, NoDraft
from specdec.drafters.early_exit import EarlyExit, EarlyExitDraft
from specdec.drafters.model import ModelDraft
from specdec.drafters.own_tokenizer import TranslatedDraft
from specdec.drafters.prompt_lookup import LookupDraft, PromptLookup
from specdec.models.pair import Pair
from specdec.passes.context import Context
from specdec.passes.runner import Runner
from specdec.passes.sampling import Sampler


def new_drafter(pair: Pair, drafting: bool, sampler: Sampler, context: Context, target: Runner) -> Drafter:
    """The drafter of one call."""
    if not drafting:
        return NoDraft(pair.vocabulary, context)
    if isinstance(pair.draft, PromptLookup):
        return LookupDraft(pair.draft, pair.vocabulary, sampler, context)
    if isinstance(pair.draft, EarlyExit):
        return EarlyExitDraft(target.sharing(pair.early), pair.vocabulary, sampler, context)
    if pair.translation is not None:
        return TranslatedDraft(pair, sampler, context)
    return ModelDraft(Runner(pair.draft), pair.vocabulary, sampler, context)
