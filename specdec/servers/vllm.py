"""vLLM: every round, where it was started with ``--per-request-spec-decode-metrics detailed``.

Read in vLLM 0.32 (``v1/metrics/stats.py`` and ``entrypoints/generate/base/protocol.py``), and seen on a running one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specdec.servers.answer import Answer, Asked, Counts, counts_of, steps_of, sums_of, whole
from specdec.servers.client import Client
from specdec.servers.openai import OpenAI
from specdec.servers.probe import Probe
from specdec.servers.structured import vllm_grammar

COUNTERS = tuple(f"vllm:spec_decode_num_{name}_total" for name in ("drafts", "draft_tokens", "accepted_tokens"))


class Vllm(OpenAI):
    name = "vLLM"

    def version(self, probe: Probe) -> str | None:
        if probe.owner != "vllm" and not any(name.startswith("vllm:") for name in probe.metrics):
            return None
        return probe.version("/version")

    def speculation(self, probe: Probe) -> bool | None:
        # Counters of its own are missing where it was told to log none, and where a proxy answers for it.
        own = any(name.startswith("vllm:") for name in probe.metrics)
        return COUNTERS[0] in probe.metrics if own else None

    def counted(self, metrics: dict[str, float]) -> Counts | None:
        if any(name not in metrics for name in COUNTERS):
            return None
        return Counts(*(int(metrics[name]) for name in COUNTERS))

    def request(self, asked: Asked, model: str) -> tuple[str, dict[str, Any]]:
        path, body = self.call(asked, model)
        if asked.params.grammar is not None:
            body["structured_outputs"] = vllm_grammar(asked.params.grammar)
        return path, body | self.every_setting(asked.params) | {
            "return_token_ids": True,
        }

    def token_bytes(self, client: Client, model: str, text: str) -> list[tuple[Any, str | bytes]]:
        body = {"model": model, "prompt": text, "add_special_tokens": False, "return_token_strs": True}
        page = client.json("/tokenize", body)
        told = [page.get(key) for key in ("tokens", "token_strs")] if isinstance(page, dict) else [None]
        return list(zip(*told, strict=False)) if all(isinstance(each, list) for each in told) else []

    def told(self, answer: Answer, last: dict[str, Any], name: str) -> Answer:
        metrics = last.get("metrics")
        found = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
        if not isinstance(found, dict):
            return answer
        most = whole(found.get("num_spec_tokens"), "guesses a step", name, 1000)
        if found.get("per_step_accepted") is not None:
            steps = steps_of(found["per_step_accepted"], found.get("per_step_drafted"), name)
            return replace(answer, steps=steps, counts=sums_of(steps), most_guesses=most)
        named = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
        counts = counts_of([found.get(field) for field in named], name)
        # Without any step, the detailed lists are left out too.
        return replace(answer, steps=None if counts.steps else (), counts=counts, most_guesses=most)

    def likely(self, client: Client, model: str, ids: Sequence[int], count: int) -> list[tuple[int, float]]:
        body = {
            "model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "logprobs": count,
            "return_tokens_as_token_ids": True, "ignore_eos": True,
        }  # fmt: skip
        found = client.json("/v1/completions", body)
        try:
            told = found["choices"][0]["logprobs"]["top_logprobs"][0]
            rows = [(int(name.removeprefix("token_id:")), float(value)) for name, value in told.items()]
        except (TypeError, KeyError, IndexError, ValueError, AttributeError):
            return []
        return sorted(rows, key=lambda row: -row[1])
