"""A page takes what its limits name, and refuses one more in a sentence that names both numbers."""

from __future__ import annotations

import pytest

from specdec.errors import BadSetting
from specdec.ui.jobs.limits import LOCAL, PUBLIC, Limits

FEW = Limits(new_tokens=7, runs=3, prompts=4, draws=9, stop_strings=2, stop_characters=5)
MOST = {"new_tokens": 7, "runs": 3, "prompts": 4, "draws": 9, "stop": ["12345", "6"]}


def test_what_a_limit_names_is_taken() -> None:
    FEW.take(**MOST)
    Limits(stop_strings=None, stop_characters=None).take(1, stop=["x" * 1000] * 100)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"new_tokens": 8}, "max_new_tokens is 8; this page allows at most 7. Nothing ran."),
        ({"runs": 4}, "runs is 4; this page allows at most 3. Nothing ran."),
        ({"prompts": 5}, "prompts is 5; this page allows at most 4. Nothing ran."),
        ({"draws": 10}, "draws is 10; this page allows at most 9. Nothing ran."),
        ({"stop": ["1", "2", "3"]}, "stop has 3 strings; this page allows at most 2. Nothing ran."),
        ({"stop": ["123456", "7"]}, "stop has a string of 6 characters; this page allows at most 5. Nothing ran."),
    ],
)
def test_one_more_is_refused(asked: dict, said: str) -> None:
    with pytest.raises(BadSetting) as refused:
        FEW.take(**MOST | asked)
    assert str(refused.value) == said


def test_what_is_not_asked_for_counts_once_at_most() -> None:
    Limits(new_tokens=5, runs=1, prompts=1, draws=1, stop_strings=0, stop_characters=0).take(5)


def test_strangers_reach_a_page_whose_pairs_are_not_free() -> None:
    assert PUBLIC.public and Limits(pairs="listed").public and not LOCAL.public
