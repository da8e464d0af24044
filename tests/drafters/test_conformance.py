"""The tests that other packages run on their own way to draft: an honest one passes, and a faulty one is found."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import specdec
from examples.own_drafter import BigramIndex, Bigrams
from specdec.drafters.prompt_lookup import LookupDraft
from specdec.measure.conformance import DrafterConformance
from specdec.models.loading import EMBEDDED


class TestBigrams(DrafterConformance):
    method = Bigrams()

    def pair(self) -> specdec.Pair:
        return specdec.load_pair(EMBEDDED / "draft", self.method)  # a smaller target


class Faulty(LookupDraft):
    """Claims a distribution that its guesses were not drawn from."""

    def propose(self, context, gamma, stop):
        found = super().propose(context, gamma, stop)
        return found if found.q is None else found._replace(q=torch.full_like(found.q, 1 / found.q.shape[1]))


@dataclass(frozen=True)
class FaultyBigrams(Bigrams):
    def start(self, target, vocabulary, sampler, context):
        return Faulty(BigramIndex(), target.engine, vocabulary, sampler, context)


class Wrong(TestBigrams):
    __test__ = False
    method = FaultyBigrams()


def test_a_wrong_distribution_is_found() -> None:
    with pytest.raises(AssertionError, match="q is not what the draft tokens were drawn from"):
        Wrong().test_sampled_text_has_the_distribution_of_the_target()
