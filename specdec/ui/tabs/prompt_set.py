"""The fields that say which prompts a benchmark measures: the examples, or a file; all, or some of each category."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import gradio as gr

from specdec.errors import SpecdecError
from specdec.measure.prompts import EXAMPLES, NAME, Choice, PromptItem, parse_prompts, read_prompts
from specdec.ui.fields import LABELS, whole_or_none
from specdec.ui.files import TextFile, chosen, file_field
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.queue import JobQueue
from specdec.ui.jobs.submit import INTERNAL, UNLIMITED, done

FIRST = LABELS["first"]


class PromptSet:
    """The field for a file is built where this is made, that for the number of prompts by ``first_field``.

    ``name`` is that of the benchmark; ``script`` the address of the script that reads files.
    """

    def __init__(self, name: str, script: str, jobs: JobQueue, limits: Limits):
        self._name, self._jobs, self._limits = name, jobs, limits
        most = f"up to {limits.file_bytes / 1e6:g} MB"
        hint = f"JSON lines or a JSON list (.jsonl, .json, .gz), {most}. Without a file: the example prompts."
        self.file = file_field(script, "Prompt set", hint, f"sd-{name}-set", limits)
        # The categories of the prompts, so that an estimate need not read the prompt set again.
        self.categories = gr.State([item.category for item in _items(None)])

    def first_field(self) -> gr.Textbox:
        return gr.Textbox(
            "", label=FIRST, info="the first N; empty: all", max_lines=1, min_width=90, elem_id=f"sd-{self._name}-first"
        )

    def wire(self) -> Any:
        """Wire the file. Returns the listener that changes ``categories``, which has no event of its own."""
        return self.file.change(self._categories_of, self.file, self.categories, **UNLIMITED, **INTERNAL)

    def read(self, file: Any, first: str | None, chat: bool) -> tuple[Choice, tuple[PromptItem, ...]]:
        """The prompts by the values of both fields. Raises ``InvalidInput``."""
        own = chosen(file, self._limits)
        choice = Choice(own.name if own else NAME, whole_or_none(FIRST, first), chat)
        return choice, choice.of(_items(own))

    async def _categories_of(self, request: gr.Request, file: Any) -> list[str]:
        """The category of each prompt of a set; none if it cannot be read. Start shows the reason."""

        def read() -> list[str]:
            return [item.category for item in _items(chosen(file, self._limits))]

        try:
            return await done(self._jobs, request, "read prompts", read)
        except SpecdecError:
            return []


def prompts_in(categories: Sequence[str], first: str | None) -> int:
    """How many prompts are measured, by the category of each prompt of the set. Raises ``InvalidInput``."""
    many = whole_or_none(FIRST, first)
    return sum(min(found, many or found) for found in Counter(categories).values())


def _items(own: TextFile | None) -> list[PromptItem]:
    return parse_prompts(own.text) if own else read_prompts(EXAMPLES)
