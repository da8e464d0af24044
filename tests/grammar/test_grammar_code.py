"""The code to take home for transformers forbids what the lanes forbid, at each place of a text."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes import byte_tokenizer, letter_tokenizer

from specdec.events import Grammar
from specdec.report.code_grammar import PROCESSOR_IMPORTS, processor
from specdec.runtime.grammar import constraint_of
from tests.grammar.grammars import GRAMMARS
from tests.grammar.test_grammar_ways import LARK

NO_TEXT = (
    "start: A\nA: ~/b/",
    'start: A "b"\nA: ~/(.*b.*)/',
    "start: A\nA: ~/(.*a.{20})/",
    '%llguidance {"allow_invalid_utf8": true}\nstart: /[^a]*/',
)
BYTES, LETTERS = (byte_tokenizer, 320, 1), (lambda: letter_tokenizer(["a", "$", "b", "c", "d"]), 5, 4)
CASES = [(GRAMMARS[name], BYTES) for name in ("person", "optional", "letters beyond ASCII", "/words/", "/nothing/")]
CASES += [(Grammar("lark", text), BYTES) for text in (*LARK.values(), *NO_TEXT)]
CASES += [(Grammar("lark", 'start: "a" (<[301]> | <s>) "b"'), BYTES)]
CASES += [(Grammar("regex", text), LETTERS) for text in ("aZb*", "a(Zb|Zc)", "(a|c)Zb", "a(b|c[YZ])d?", "[a-d]*")]


def obeying(grammar: Grammar, tokenizer: Any, rows: int, eos: int) -> Any:
    """The logits processor of the code, for a text after a prompt of no token."""
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=rows))
    target = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=eos), config=config)
    scope = {"tokenizer": tokenizer, "target": target}
    lines = [*PROCESSOR_IMPORTS, "from transformers import LogitsProcessor", processor(grammar)]
    exec("\n".join(lines), scope)
    return scope["Obey"](0)


@pytest.mark.parametrize(("grammar", "vocabulary"), CASES, ids=lambda value: getattr(value, "text", "")[:20])
def test_the_code_for_transformers_allows_what_the_lanes_allow(grammar: Grammar, vocabulary: Any) -> None:
    make, rows, eos = vocabulary
    theirs = obeying(grammar, make(), rows, eos)
    masks, chance = constraint_of(grammar, make(), frozenset([eos]), rows).masks(0), random.Random(0)
    for _ in range(4):
        ids: list[int] = []
        while len(ids) < 40 and (allowed := masks.after(ids)) is not None and allowed.any():
            found = theirs(torch.tensor([ids], dtype=torch.long), torch.zeros(1, rows))[0] > float("-inf")
            assert found.equal(allowed), (ids, found.nonzero().flatten(), allowed.nonzero().flatten())
            ids.append(chance.choice(allowed.nonzero().flatten().tolist()))
            if ids[-1] == eos:
                break
