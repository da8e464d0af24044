"""Tests that a way to draft of another package can run: losslessness, and what its value promises."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import ClassVar

from specdec.drafters.base import DraftMethod
from specdec.engine.decode import speculative
from specdec.events import SamplingParams
from specdec.lanes.hf_generate import generate
from specdec.measure.losslessness import LosslessnessResult, self_test
from specdec.measure.result import collect
from specdec.models.loading import load_pair
from specdec.models.pair import Pair


class DrafterConformance:
    """What every way to draft must pass. Subclass it in a test file of pytest, and set ``method``::

        class TestBigrams(DrafterConformance):
            method = Bigrams()

    The target is that of the embedded pair, so nothing is fetched. ``pair`` may return another pair. ``prompt`` must be
    one after which the method drafts.
    """

    method: ClassVar[DraftMethod]
    prompt: ClassVar[str] = "List: red, blue, green, red, blue, green, red,"
    draws: ClassVar[int] = 60  # continuations of four tokens for the comparison of distributions

    def pair(self) -> Pair:
        """The pair that is tested."""
        return replace(load_pair(), draft=self.method)

    def test_it_is_a_value_that_its_text_names(self) -> None:
        """Pickled, and read again from the text of ``describe``, it is equal. ``describe`` gives plain values."""
        facts = self.method.describe()
        assert pickle.loads(pickle.dumps(self.method)) == self.method, "a copy by pickle is not equal"
        assert json.loads(json.dumps(facts)) == facts, f"describe() has values that JSON does not give back: {facts}"
        assert facts["kind"] == self.method.kind, "describe() has another kind"
        if not self.method.parts():
            assert type(self.method).parse(facts["text"]) == self.method, f"parse does not read {facts['text']!r}"
        assert type(self.method).parse("some/model") is None, "it takes the name of a model"

    def test_greedy_text_is_that_of_generate(self) -> None:
        """At several draft lengths, also where the text ends inside a draft."""
        pair, drafted = self.pair(), False
        for gamma, tokens in ((1, 24), (4, 48), (16, 40), (4, 1), (4, 2)):
            params = SamplingParams(tokens, ignore_eos=True)
            ours = collect(speculative(pair, self.prompt, gamma=gamma, params=params))
            plain = collect(generate(pair, self.prompt, params=params))
            assert ours.token_ids == plain.token_ids, f"another text at gamma {gamma} and {tokens} tokens"
            assert all(len(each.draft or ()) <= gamma for each in ours.rounds), f"longer drafts than gamma {gamma}"
            drafted = drafted or any(each.draft for each in ours.rounds)
        assert drafted, "it made no guess; set a prompt after which it drafts"

    def test_sampled_text_has_the_distribution_of_the_target(self) -> None:
        """By the package's own test of losslessness, which recomputes the probabilities of every step."""
        params = SamplingParams(temperature=1.0, seed=0)
        *_, found = self_test(self.pair(), self.prompt, draws=self.draws, params=params)
        assert isinstance(found, LosslessnessResult)
        assert found.drafted, "it made no guess; set a prompt after which it drafts"
        assert found.verdict != "not lossless", f"q is not what the draft tokens were drawn from: {found.steps}"
