"""SGLang: every round, where the sizes of its chunks agree with its own counts.

Read in ``python/sglang/srt`` of SGLang, autumn 2026: ``entrypoints/openai/protocol.py``, ``serving_completions.py``,
``serving_chat.py`` and ``utils.py`` (``spec_tokens_details_from_meta_info``), and ``managers/tokenizer_manager.py``.
Not tried on a running server.

``return_spec_tokens_details`` adds the sums of an answer and a histogram: how many steps kept 0, 1, 2 ... guesses.
SGLang does not list its steps. But each chunk has the ids of whole steps, so where there are as many chunks after the
first token as steps, every chunk is one step, and the histogram must be that of the chunks. Otherwise (a client that
reads late, ``--stream-interval``) only the sums are told. Versions before these fields tell speed alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from specdec.servers.answer import Answer, Asked, Counts, Step, counts_of, wholes
from specdec.servers.openai import OpenAI
from specdec.servers.probe import Probe
from specdec.servers.structured import sglang_grammar

PAGES = ("/server_info", "/get_server_info")  # its name of today, and that of versions before


class SGLang(OpenAI):
    name = "SGLang"

    def version(self, probe: Probe) -> str | None:
        if probe.owner != "sglang" and not any(name.startswith("sglang:") for name in probe.metrics):
            return None
        return next(filter(None, (probe.version(path) for path in PAGES)), "")

    def speculation(self, probe: Probe) -> bool | None:
        pages = [page for path in PAGES if "speculative_algorithm" in (page := probe.page(path))]
        return pages[0]["speculative_algorithm"] is not None if pages else None

    def in_order(self, probe: Probe) -> bool:
        # With more than one branch a step checks a tree of guesses.
        return all(probe.page(path).get("speculative_eagle_topk") in (None, 0, 1) for path in PAGES)

    def request(self, asked: Asked, model: str) -> tuple[str, dict[str, Any]]:
        path, body = self.call(asked, model)
        if asked.params.grammar is not None:
            body |= sglang_grammar(asked.params.grammar)
        return path, body | self.every_setting(asked.params) | {
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "return_token_ids": True,
            "return_spec_tokens_details": True,
        }

    def told(self, answer: Answer, last: dict[str, Any], name: str) -> Answer:
        extra = last.get("sglext")
        found = extra.get("spec_tokens_details") if isinstance(extra, dict) else None
        if not isinstance(found, dict):
            return answer
        named = ("spec_verify_ct", "spec_num_proposed_drafts", "spec_num_correct_drafts")
        counts = counts_of([found.get(field, 0) for field in named], name)
        made, rest = divmod(counts.drafted, counts.steps or 1)
        if rest:  # the number of guesses changes from step to step, and is not told for each
            return replace(answer, counts=counts)
        histogram = wholes(found.get("spec_correct_drafts_histogram", []), "the histogram of accepted guesses", name)
        steps = _steps(answer, counts, made, histogram)
        return replace(answer, steps=steps, counts=counts, most_guesses=made or None)


def _steps(answer: Answer, counts: Counts, made: int, histogram: tuple[int, ...]) -> tuple[Step, ...] | None:
    """The steps by the chunks after the first token; None where the engine's own counts do not confirm them."""
    if not answer.pieces or any(piece.ids is None for piece in answer.pieces) or len(answer.pieces[0].ids or ()) != 1:
        return None
    accepted = [len(piece.ids or ()) - 1 for piece in answer.pieces[1:]]
    if len(accepted) != counts.steps:
        return None
    if accepted:
        accepted[-1] += counts.accepted - sum(accepted)  # the end of the text may cut the last step
    told = {kept: times for kept, times in enumerate(histogram) if times}
    if Counter(accepted) != told or not all(0 <= kept <= made for kept in accepted):
        return None
    return tuple(Step(made, kept) for kept in accepted)
