"""Streams as llama.cpp's server and SGLang write them, made by hand after their code. Nobody recorded them.

What an engine did is a list of rounds: how many tokens were drafted (0: a pass without guesses), how many of them were
kept, and the tokens that the round wrote. The first round is the prompt's own pass, which writes one token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from specdec.servers.answer import Step
from specdec.servers.client import Streamed


class Pass(NamedTuple):
    drafted: int
    accepted: int
    ids: tuple[int, ...]


def passes(*rounds: tuple[int, int], first: int = 100, cut: int = 0) -> list[Pass]:
    """Passes whose ids count up from ``first``; ``cut``: how many tokens of the last one are beyond the text's end."""
    found, at = [Pass(0, 0, (first,))], first + 1
    for drafted, accepted in rounds:
        found.append(Pass(drafted, accepted, tuple(range(at, at + accepted + 1))))
        at += accepted + 1
    if cut:
        found[-1] = found[-1]._replace(ids=found[-1].ids[:-cut])
    return found


def steps_of(made: Sequence[Pass]) -> tuple[Step, ...]:
    return tuple(Step(each.drafted, each.accepted) for each in made if each.drafted)


def llama_cpp(
    made: Sequence[Pass], stop_type: str = "limit", unsent: Sequence[int] = (), old: bool = False
) -> list[Streamed]:
    """The events of ``/completion``.

    ``unsent``: ids of tokens that end inside a character, which are not sent. ``old``: as versions of 2025, which count
    all tokens of a round at its first one.
    """
    found: list[dict] = []
    written = drafted = accepted = 0
    for each in made:
        drafted += each.drafted
        accepted += each.accepted
        written += each.accepted + 1 if old else 0
        for token_id in each.ids:
            written += 0 if old else 1
            if token_id not in unsent:
                timings = _timings(written, drafted, accepted)
                found.append({"index": 0, "content": f" {token_id}", "tokens": [token_id], "stop": False} | timings)
    end = {"index": 0, "content": "", "tokens": [], "stop": True, "stop_type": stop_type, "stopping_word": ""}
    found.append(end | _timings(written, drafted, accepted))
    return [Streamed(0.01 * place, record) for place, record in enumerate(found, start=1)]


def _timings(written: int, drafted: int, accepted: int) -> dict:
    guesses = {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
    return {"timings": {"cache_n": 0, "prompt_n": 4, "prompt_ms": 5.5, "predicted_n": written} | guesses}


def sglang(
    made: Sequence[Pass], interval: int = 1, finish: str = "length", proposed: int | None = None
) -> list[Streamed]:
    """The events of ``/v1/completions``. ``interval``: how many passes a chunk holds."""
    found: list[dict] = []
    for at in range(0, len(made), interval):
        ids = [i for each in made[at : at + interval] for i in each.ids]
        text = "".join(f" {i}" for i in ids)
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": None, "matched_stop": None}
        found.append({"choices": [choice | {"token_ids": ids} | ({} if at else {"prompt_token_ids": [1, 2, 3, 4]})]})
    found[-1]["choices"][0] |= {"finish_reason": finish, "matched_stop": 2 if finish == "stop" else None}
    checked = [each for each in made if each.drafted]
    if checked:
        histogram = [0] * (1 + max(each.accepted for each in checked))
        for each in checked:
            histogram[each.accepted] += 1
        details = {
            "spec_verify_ct": len(checked),
            "spec_num_correct_drafts": sum(each.accepted for each in checked),
            "spec_num_proposed_drafts": sum(each.drafted for each in checked) if proposed is None else proposed,
            "spec_correct_drafts_histogram": histogram,
        }
        found.append({"choices": [], "sglext": {"spec_tokens_details": details}})
    written = sum(len(each.ids) for each in made)
    found.append({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": written}})
    return [Streamed(0.01 * place, record) for place, record in enumerate(found, start=1)]


def as_text(streamed: Sequence[Streamed], done: bool) -> str:
    """The body of a stream. llama.cpp's own route ends without ``[DONE]``."""
    return "".join(f"data: {json.dumps(each.record)}\n\n" for each in streamed) + ("data: [DONE]\n\n" if done else "")
