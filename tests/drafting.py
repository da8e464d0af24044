"""What the tests of heads have in common: the drafts of a call, to be compared with drafts made from scratch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from fakes import prompt_of, rounds_of

import specdec


def require_drafts_from_scratch(
    monkeypatch, pair: specdec.Pair, drafter: type, gamma: int, scratch: Callable[[list[int], int], list[torch.Tensor]]
) -> None:
    """Every draft of a call has the logits of ``scratch``, which is given the text in front of it and how many guesses.

    Lossy acceptance, as a random head is never right: so some guesses stand, and some do not. The target's own states
    differ by 1e-5 between passes of other sizes.
    """
    found, propose = [], drafter.propose

    def noted(self, context, gamma, least_confidence):
        proposal = propose(self, context, gamma, least_confidence)
        if len(proposal.ids):
            found.append((list(context.tokens), torch.cat(proposal.logits)))
        return proposal

    lossy = {"acceptance": "top-k", "accept_top_k": 260}
    with monkeypatch.context() as patched:
        patched.setattr(drafter, "propose", noted)
        params = specdec.SamplingParams(max_new_tokens=24)
        events = list(specdec.speculative(pair, prompt_of(7), gamma=gamma, params=params, **lossy))
    for text, logits in found:
        for ours, theirs in zip(logits, scratch(text, len(logits)), strict=True):
            require_close(ours, theirs, 1e-4)
    assert len(found) > 3 and {event.token_kind for event in rounds_of(events)} >= {"correction", "bonus"}


def require_close(ours: torch.Tensor, theirs: torch.Tensor, most: float) -> None:
    """Logits of one row, within ``most`` of their range; those of unknown tokens are -inf in both."""
    known = theirs.isfinite()
    assert torch.equal(ours.isfinite(), known)
    span = theirs[known].max() - theirs[known].min()
    apart = ((ours[known].double() - theirs[known]).abs().max() / span).item()
    assert apart < most, f"logits differ by {apart:.1e} of their range"
