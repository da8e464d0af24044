"""What the tests of heads have in common: the drafts of a call, to be compared with drafts made from scratch."""

from __future__ import annotations

import torch
from fakes import prompt_of, rounds_of

import specdec


def drafts_of(
    monkeypatch, pair: specdec.Pair, drafter: type, gamma: int, tokens: int
) -> tuple[list[tuple[list[int], torch.Tensor]], set[str | None]]:
    """Every draft of a call, as the text in front of it and the raw logits (gamma, V) of its guesses; and which kinds
    of token the target added.

    Lossy acceptance, as a random head is never right: so some guesses stand, and some do not.
    """
    found, propose = [], drafter.propose

    def noted(self, context, gamma, least_confidence):
        proposal = propose(self, context, gamma, least_confidence)
        if len(proposal.ids):
            found.append((list(context.tokens), torch.cat(proposal.logits)))
        return proposal

    monkeypatch.setattr(drafter, "propose", noted)
    params = specdec.SamplingParams(max_new_tokens=tokens)
    lossy = {"acceptance": "top-k", "accept_top_k": 260}
    events = list(specdec.speculative(pair, prompt_of(7), gamma=gamma, params=params, **lossy))
    return found, {event.token_kind for event in rounds_of(events)}


def require_close(ours: torch.Tensor, theirs: torch.Tensor, most: float) -> None:
    """Logits of one row, within ``most`` of their range; those of unknown tokens are -inf in both."""
    known = theirs.isfinite()
    assert torch.equal(ours.isfinite(), known)
    span = theirs[known].max() - theirs[known].min()
    apart = ((ours[known].double() - theirs[known]).abs().max() / span).item()
    assert apart < most, f"logits differ by {apart:.1e} of their range"
