"""Files from visitors are checked again on the server, and can never be a file of the server."""

from __future__ import annotations

import json
from typing import Any

import pytest

import specdec
from specdec.models.loading import plan_pair
from specdec.models.pair_slot import Slot
from specdec.ui.files import MOST_FILES, chosen, chosen_files
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.page import build


def test_a_file_comes_with_its_name() -> None:
    assert chosen(None, PUBLIC) is None and chosen("", PUBLIC) is None
    assert chosen({"name": "set.jsonl", "text": ""}, PUBLIC) == ("set.jsonl", "")
    largest = "\u00e9" * (PUBLIC.file_bytes // 2)
    assert chosen({"name": "set.jsonl", "text": largest}, PUBLIC) == ("set.jsonl", largest)
    assert chosen({"name": "\ud800", "text": "\udfff"}, PUBLIC) == ("?", "?")


@pytest.mark.parametrize(
    "value, complaint",
    [
        ({"name": "set.jsonl", "text": "\u00e9" * 500_001}, "set.jsonl is larger than 1 MB"),
        ({"name": "set.jsonl", "text": None}, "could not be read"),
        ({"name": "n" * 256, "text": ""}, "could not be read"),
        ({"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}, "could not be read"),
        ("/etc/passwd", "could not be read"),
        (5, "could not be read"),
    ],
)
def test_a_forged_request_is_refused(value: Any, complaint: str) -> None:
    with pytest.raises(specdec.InvalidInput, match=complaint):
        chosen(value, PUBLIC)


FILE = {"name": "a.jsonl", "text": "x" * 400_000}


def test_several_files_together_are_no_larger_than_one_may_be() -> None:
    assert chosen_files(None, PUBLIC) == chosen_files("", PUBLIC) == chosen_files([], PUBLIC) == []
    assert [file.name for file in chosen_files([FILE, FILE], PUBLIC)] == ["a.jsonl", "a.jsonl"]
    with pytest.raises(specdec.InvalidInput, match="together are larger than 1 MB"):
        chosen_files([FILE] * 3, PUBLIC)


@pytest.mark.parametrize("value", [5, {}, "x", [5], [{"path": "/etc/passwd"}], [{"name": "a", "text": ""}] * 99, [[]]])
def test_forged_lists_of_files_are_refused(value: Any) -> None:
    with pytest.raises(specdec.InvalidInput, match=f"could not be read|up to {MOST_FILES}"):
        chosen_files(value, PUBLIC)


def test_no_component_takes_or_serves_files() -> None:
    page = build(Slot(plan_pair(None, None)), PUBLIC)
    models = [getattr(block, "data_model", None) for block in page.demo.blocks.values()]
    page.close()
    assert not [model for model in models if model and "FileData" in json.dumps(model.model_json_schema())]
