"""The table of engines. To add one, add a class in a file of its own, and a row here."""

from __future__ import annotations

from specdec.servers.llama_cpp import LlamaCpp
from specdec.servers.openai import OpenAI
from specdec.servers.probe import Probe
from specdec.servers.sglang import SGLang
from specdec.servers.vllm import Vllm

ENGINES: tuple[OpenAI, ...] = (Vllm(), SGLang(), LlamaCpp(), OpenAI())  # the last one takes every server


def engine_of(probe: Probe) -> tuple[OpenAI, str | None]:
    """The engine that these answers come from, and its version; None where it does not tell it."""
    for engine in ENGINES:
        if (version := engine.version(probe)) is not None:
            return engine, version or None
    raise AssertionError("the last engine takes every server")
