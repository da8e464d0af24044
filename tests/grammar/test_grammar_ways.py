"""What is allowed at a place does not depend on the way there, and no lane writes on where nothing may follow."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fakes import byte_tokenizer, letter_tokenizer, random_table, table_model

import specdec
from specdec.engine.request import make_request
from specdec.errors import GrammarStuck
from specdec.events import Grammar
from specdec.runtime import grammar
from specdec.runtime.grammar import constraint_of
from tests.grammar.grammars import GRAMMARS
from tests.grammar.test_grammar_equality import EOS
from tests.grammar.test_grammar_exactly import DRAFT, END, OPEN, PROMPT, TARGET, pair_of

LARK = {
    "stop string": 'start: "f" mid "g"\nmid[stop="|"]: /[a-z ]*/',
    "lazy": 'start: "f" mid "g"\nmid[lazy]: /[a-z ]*x/',
    "suffix": 'start: "f" mid "g"\nmid[suffix="|"]: /[a-z ]*/',
    "counted tokens": 'start: (mid "-")+\nmid[max_tokens=3]: /[a-z ]*/',
    "recursive": 'start: e\ne: t ("+" t)*\nt: /[0-9]+/ | "(" e ")"',
    "ignored": 'start: (ID | "if")+\nID: /[a-z]{1,6}/\n%ignore / /',
    "nothing follows": 'start: "a" ("b" | "c" NONE)+\nNONE: /x/ & /y/',
}
ALL = GRAMMARS | {name: Grammar("lark", text) for name, text in LARK.items()} | {"any": Grammar("json-schema", "{}")}


@pytest.mark.parametrize("name", [*LARK, "any", "person", "escapes", "/words/", "/same beginnings/"])
def test_masks_are_those_of_a_fresh_matcher_after_any_way_there(monkeypatch, name: str) -> None:
    """Also after a way back to where no mask was kept."""
    monkeypatch.setattr(grammar, "KEPT", 3)
    rule, chance = constraint_of(ALL[name], byte_tokenizer(), frozenset([EOS]), 320), random.Random(0)
    masks, ids = rule.masks(0), []
    for step in range(250):
        found, fresh = masks.after(ids), rule.masks(0).after(ids)
        assert (found is None) == (fresh is None) and (found is None or found.equal(fresh)), (step, ids)
        if found is None or not found.any() or chance.random() < 0.2:
            ids = ids[: max(0, len(ids) - chance.randint(1, 5))]
        elif chance.random() < 0.1:
            ids = [*ids, *(chance.randrange(320) for _ in range(chance.randint(1, 6)))]
        else:
            ids = [*ids, chance.choice(found.nonzero().flatten().tolist())]


def test_a_way_back_from_where_nothing_follows() -> None:
    """After "ac" only letters follow that the tokenizer has not."""
    rule = constraint_of(Grammar("regex", "a(b|c[YZ])d?"), letter_tokenizer(list("abcde")), frozenset([4]), 5)
    masks = rule.masks(0)
    for ids, expected in (([0, 2], []), ([0, 1], [3, 4]), ([0, 2, 1], None), ([0, 1, 3], [4]), ([0, 1, 3, 4, 4], [4])):
        found = masks.after(ids)
        assert (None if found is None else found.nonzero().flatten().tolist()) == expected


def allowed(kind: Any, text: str, ids: list[int], tokenizer: Any = None, vocabulary: int = 320) -> list[int] | None:
    rule = constraint_of(Grammar(kind, text), tokenizer or byte_tokenizer(), frozenset([EOS]), vocabulary)
    found = rule.masks(0).after(ids)
    return None if found is None else found.nonzero().flatten().tolist()


def test_only_a_grammar_that_names_special_tokens_allows_them() -> None:
    """The ids of no text, and the end where the text is not whole, are not the complement of any text."""
    letter = byte_tokenizer().convert_tokens_to_ids("a")
    for text in ("start: A\nA: ~/b/", "start: A\nA: ~/(.*a.{20})/", 'start: A "b"\nA: ~/(.*b.*)/'):
        for ids in ([], [letter]):
            found = allowed("lark", text, ids)
            assert found and letter in found and not {0, *range(300, 320)} & {*found}
            assert (EOS in found) == ('"b"' not in text)
    assert allowed("lark", 'start: "a" (<[301]> | <s>) "b"', [letter]) == [0, 301]


@pytest.mark.parametrize("text", ["aZb*", "aZ", "a(Zb|Zc)", "(a|c)Zb"])
def test_what_must_follow_and_cannot_be_spelled_is_not_left_out(text: str) -> None:
    """The tokenizer drops a letter that it lacks, so llguidance allows what follows that letter."""
    tokenizer = letter_tokenizer(["a", "$", "b", "c", "d"])
    assert allowed("regex", text, [0], tokenizer, 5) == []


def test_a_long_text_holds_few_masks() -> None:
    masks = constraint_of(Grammar("regex", "a*"), byte_tokenizer(), frozenset([EOS]), 320).masks(0)
    ids = [byte_tokenizer().convert_tokens_to_ids("a")] * 300
    for count in range(301):
        last = masks.after(ids[:count])
    assert len(masks._after) == grammar.KEPT
    assert last is not None and masks.after(ids[:5]).equal(last)


def test_a_grammar_that_passes_a_bound_at_a_token_says_so() -> None:
    text = 'start: a b c d\na: b? c? d? "x"?\nb: a? c? "y"?\nc: a? b? d? "z"?\nd: a? b? c? "w"?'
    masks, ids = constraint_of(Grammar("lark", text), byte_tokenizer(), frozenset([EOS]), 320).masks(0), []
    with pytest.raises(specdec.InvalidInput, match="takes too long to follow"):
        while (allowed := masks.after(ids)) is not None:
            ids.append(next(i for i in allowed.nonzero().flatten().tolist() if i != EOS))


def closed(text: tuple[int, ...]) -> list[int]:
    """Nothing may follow an opening bracket but the first."""
    return [] if OPEN in text[1:] else [END] if len(text) > 3 else [OPEN, 1, 2]


@pytest.mark.parametrize("tokens", [3, 4, 6])
def test_no_lane_writes_on_where_nothing_may_follow(tokens: int) -> None:
    outcomes = set()
    for seed in range(8):
        table = random_table(4, 2, seed=seed)
        pair = specdec.Pair(table_model(table, eos=END), table_model(table))

        def outcome(start: Any, pair: specdec.Pair = pair, mask: bool = True, **settings: Any) -> Any:
            params = specdec.SamplingParams(max_new_tokens=tokens, grammar=closed, draft_mask=mask)
            try:
                return specdec.collect(list(start(pair, torch.tensor(PROMPT), params=params, **settings))).token_ids
            except GrammarStuck:
                return None

        plain = outcome(specdec.generate)
        outcomes.add(plain is None)
        assert outcome(specdec.speculative, gamma=3) == outcome(specdec.speculative, gamma=3, mask=False) == plain
        assert outcome(specdec.assisted, gamma=3) == plain
    assert outcomes == {True, False}


def test_a_draft_alone_may_come_to_where_nothing_follows() -> None:
    """It is no error if the target does not go there."""
    for seed in (3, 5, 10):
        target, draft = (table_model(random_table(4, 2, seed=at), eos=END) for at in (seed, seed + 50))
        pair = specdec.Pair(target, draft)

        def first(text: tuple[int, ...]) -> list[int]:
            return [] if text[:1] == (OPEN,) else [END] if len(text) > 2 else [1, 2, *([] if text else [OPEN])]

        params = specdec.SamplingParams(max_new_tokens=6, grammar=first)
        texts = [
            specdec.collect(list(start(pair, torch.tensor(PROMPT), params=params))).token_ids
            for start in (specdec.generate, specdec.speculative, specdec.assisted)
        ]
        assert texts[0] == texts[1] == texts[2]


def test_a_function_may_write_each_mask_into_the_same_tensor() -> None:
    def ids(text: tuple[int, ...]) -> list[int]:
        return [END] if len(text) == 4 else [0, 1] if len(text) % 2 else [1, 2]

    shared = torch.zeros(4, dtype=torch.bool)

    def written(text: tuple[int, ...]) -> Any:
        shared.zero_()
        shared[ids(text)] = True
        return shared

    def numpy(text: tuple[int, ...]) -> Any:
        return written(text).numpy()

    texts = []
    for given in (ids, written, numpy):
        params = specdec.SamplingParams(max_new_tokens=6, grammar=given)
        events = specdec.speculative(pair_of("model"), torch.tensor(PROMPT), gamma=3, params=params)
        texts.append(specdec.collect(list(events)).token_ids)
    assert texts[0] == texts[1] == texts[2] and len(texts[0]) == 5


def test_no_lane_of_a_request_with_a_grammar_runs_in_graphs() -> None:
    """Also where the pair's own draft runs in none, and that of another lane could."""
    pair = specdec.Pair(table_model(TARGET, eos=END), table_model(DRAFT), engine="auto")
    request = make_request(pair, torch.tensor(PROMPT), specdec.SamplingParams(grammar=lambda text: [END]))
    assert request.drafting_with(specdec.PromptLookup()).pair.engine == "eager"
