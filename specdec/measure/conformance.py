"""Tests that other packages run on a way to draft or an acceptance rule: losslessness, and what its value promises."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import replace
from functools import partial
from itertools import product
from typing import ClassVar

import torch
from pydantic import TypeAdapter

from specdec.drafters.base import DraftChoices, DraftMethod, Proposal
from specdec.engine.acceptance import Acceptance
from specdec.engine.decode import decode, speculative
from specdec.engine.request import make_request
from specdec.events import SamplingParams
from specdec.facts import DraftFacts
from specdec.lanes.hf_generate import generate
from specdec.measure.enumeration import distance, distribution
from specdec.measure.losslessness import LosslessnessResult, self_test
from specdec.measure.result import collect
from specdec.models.loading import load_pair
from specdec.models.pair import Pair
from specdec.runtime import draws
from specdec.runtime.sampling import Sampler


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
        unknown = facts.keys() - DraftFacts.__annotations__.keys()
        assert not unknown, f"describe() has fields that DraftFacts lacks; put them into more: {unknown}"
        TypeAdapter(DraftFacts).validate_python(facts)
        assert facts["kind"] == self.method.kind, "describe() has another kind"
        assert {"python", "depends_on_start"} <= facts.keys(), "describe() must say python and depends_on_start"
        compile(facts["python"], "describe()", "eval")  # SyntaxError: "python" is no expression
        if not self.method.parts():
            assert type(self.method).parse(facts["text"]) == self.method, f"parse does not read {facts['text']!r}"
        assert type(self.method).parse("some/model") is None, "it takes the name of a model"

    def test_greedy_text_is_that_of_generate(self) -> None:
        """At several draft lengths, with both engines, also where the text ends inside a draft."""
        pair, drafted = self.pair(), False
        lengths = ((1, 24), (4, 48), (16, 40), (4, 1), (4, 2))
        for gamma, tokens, engine in (*((*each, "eager") for each in lengths), (4, 48, "graph")):
            params = SamplingParams(tokens, ignore_eos=True)
            ours = collect(speculative(replace(pair, engine=engine), self.prompt, gamma=gamma, params=params))
            plain = collect(generate(pair, self.prompt, params=params))
            where = f"at gamma {gamma} and {tokens} tokens, engine {engine}"
            assert ours.token_ids == plain.token_ids, f"another text {where}"
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


# Logits of the token after each of three tokens, for ``AcceptanceConformance``. A filter has removed one of the
# target's, and one of the draft's.
TARGET = torch.tensor([[1.0, 0.2, -0.7], [-0.5, 0.4, 1.1], [0.3, -math.inf, 0.9]])
DRAFT = torch.tensor([[0.1, 0.9, 0.0], [0.6, -math.inf, 0.2], [0.8, 0.3, -0.4]])


class AcceptanceConformance:
    """What every acceptance rule must pass. Subclass it in a test file of pytest, and set ``rule``::

        class TestTypical(AcceptanceConformance):
            rule = Typical()

    Two tables of three tokens stand in for the models. Every outcome of every draw is tried, so the distribution of the
    output is exact. A rule that does not claim to be lossless must only give results of the right form.
    """

    rule: ClassVar[Acceptance]
    tokens: ClassVar[int] = 3  # length of the texts whose distribution is computed

    def test_it_is_a_value(self) -> None:
        """Pickled and read again it is equal, it can be hashed, and it has its attributes."""
        assert pickle.loads(pickle.dumps(self.rule)) == self.rule, "a copy by pickle is not equal"
        assert isinstance(hash(self.rule), int)
        assert isinstance(self.rule.name, str) and isinstance(self.rule.lossless, bool)

    def test_sampled_text_has_the_distribution_of_the_target(self) -> None:
        """For drafts of one and of two tokens, and of two of which one counts."""
        exact = self._exact()
        for gamma, limit in ((1, None), (2, None), (2, 1)):
            sampler = Sampler(SamplingParams(temperature=1.0), torch.Generator().manual_seed(0))
            before = sampler.rng.get_state()
            found, _ = distribution(partial(self._text, gamma, limit, sampler), every=True)
            assert torch.equal(sampler.rng.get_state(), before), "it draws by itself; use specdec.runtime.draws"
            assert abs(sum(found.values()) - 1) < 1e-5, "the chances of its texts do not add up to 1"
            apart = distance(found, exact)
            assert not self.rule.lossless or apart < 1e-5, (
                f"it claims to be lossless, and at gamma {gamma}, limit {limit}, a text's chance is off by {apart:.2g}"
            )

    def test_greedy_text_is_that_of_the_target(self) -> None:
        """For every draft of up to three tokens, none included, and where only the first of them counts."""
        sampler = Sampler(SamplingParams(), torch.Generator().manual_seed(0))
        for gamma in range(4):
            for ids in product(range(len(TARGET)), repeat=gamma):
                logits = TARGET[[0, *ids]]
                choices = logits.argmax(-1).tolist()
                for limit in (None, 1):
                    kept, token = self._judge(list(ids), None, limit, logits, sampler)
                    same = [*ids[:kept], token] == choices[: kept + 1]
                    assert not self.rule.lossless or same, f"it claims to be lossless, and {ids} gives another text"

    def test_a_call_with_it_ends_and_is_reported(self) -> None:
        """Greedy and sampled, with the embedded pair. Greedy text is that of ``generate`` if the rule is lossless."""
        pair, prompt = load_pair(), "Once upon a time"
        for temperature in (0.0, 1.0):
            params = SamplingParams(16, temperature=temperature, seed=0, ignore_eos=True)
            ours = collect(decode(make_request(pair, prompt, params), 4, self.rule))
            assert len(ours.token_ids) == 16 and any(each.draft for each in ours.rounds)
            if self.rule.lossless and params.greedy:
                assert ours.token_ids == collect(generate(pair, prompt, params=params)).token_ids, "another greedy text"

    def _text(self, gamma: int, limit: int | None, sampler: Sampler) -> tuple[int, ...]:
        """A text of the two tables, drawn as the loop draws it."""
        text, q, p = [0], DRAFT.softmax(-1), TARGET
        while (left := self.tokens + 1 - len(text)) > 0:
            path = [text[-1]]
            for _ in range(min(gamma, left - 1)):
                path.append(int(draws.draw(q[path[-1:]], sampler.rng)))
            kept, token = self._judge(path[1:], q[path[:-1]], limit, p[path], sampler)
            text += [*path[1 : kept + 1], token]
        return tuple(text[1:])

    def _judge(
        self, ids: list[int], q: torch.Tensor | None, limit: int | None, logits: torch.Tensor, sampler: Sampler
    ) -> tuple[int, int]:
        """How many draft tokens the rule keeps, and which token follows."""
        drafted, most = torch.tensor(ids, dtype=torch.long), min(len(ids), len(ids) if limit is None else limit)
        draft = Proposal(drafted, q, DraftChoices(drafted), None if limit is None else torch.tensor(most))
        p = None if sampler.greedy else sampler.probabilities(logits)
        found = self.rule.judge(draft, logits, logits.argmax(-1), p, sampler)
        kept, token = int(found.accepted), int(found.token_id)
        assert 0 <= kept <= most, f"it keeps {kept} of {most} draft tokens"
        assert 0 <= token < logits.shape[-1], f"it adds the token {token}, and there are {logits.shape[-1]}"
        assert len(found.accept_prob) == len(ids), f"accept_prob has {len(found.accept_prob)} values, not {len(ids)}"
        return kept, token

    def _exact(self) -> dict[tuple[int, ...], float]:
        """The chance of each text of the target's table alone."""
        p = TARGET.double().softmax(-1).tolist()
        chances: dict[tuple[int, ...], float] = {(): 1.0}
        for _ in range(self.tokens):
            chances = {
                (*text, i): chance * row
                for text, chance in chances.items()
                for i, row in enumerate(p[text[-1] if text else 0])
                if row > 0
            }
        return chances
