"""Prompt sets: our own, and those of Spec-Bench, MT-bench and HumanEval, told apart by their fields."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec.errors import InvalidInput

if TYPE_CHECKING:  # prompts are read where torch is not installed
    from specdec.models.pair import Prompt

EXAMPLES = Path(__file__).parents[1] / "data" / "prompts.jsonl"
TAKEN = "name and prompt, task_id and prompt (HumanEval), or question_id and turns (Spec-Bench, MT-bench)"


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt of a set. ``name`` is unique in the set; figures are summed up by ``category``.

    ``chat``: a question, put as a chat message to a target whose tokenizer has a template for such.
    """

    name: str
    category: str
    prompt: str
    chat: bool = False

    def message(self, tokenizer: Any) -> Prompt:
        """The prompt as the engine takes it."""
        templated = self.chat and getattr(tokenizer, "chat_template", None)
        return [{"role": "user", "content": self.prompt}] if templated else self.prompt


def read_prompts(path: Path) -> list[PromptItem]:
    """The prompts of a JSON-lines file. Raises ``InvalidInput`` with the line that cannot be used."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read as UTF-8 text ({error}).") from error
    return parse_prompts(text.split("\n"))  # splitlines would cut at characters that JSON lets stand


def parse_prompts(lines: Iterable[str]) -> list[PromptItem]:
    """The prompts of JSON lines; of a conversation its first turn, as only the first has no answer before it."""
    items = [_item(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not items:
        raise InvalidInput(f"There is no prompt in it. Give JSON lines with {TAKEN}.")
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            raise InvalidInput(f"Two prompts are called {item.name!r}; give each a name of its own.")
        seen.add(item.name)
    return items


def _item(number: int, line: str) -> PromptItem:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"Line {number} is not JSON ({error}).") from error
    fields = record if isinstance(record, dict) else {}
    if "turns" in fields:
        turns, name = fields["turns"], str(fields.get("question_id", number))
        prompt = turns[0] if isinstance(turns, list) and turns else None
        category = fields.get("category", "MT-bench")
    elif "task_id" in fields:
        prompt, name, category = fields.get("prompt"), str(fields["task_id"]), "HumanEval"
    else:
        prompt, name = fields.get("prompt"), str(fields.get("name", number))
        category = fields.get("category", name)
    if not _text(prompt) or not _text(category):
        found = ", ".join(map(str, fields)) or type(record).__name__
        raise InvalidInput(f"Line {number} holds no prompt (found: {found}). Give {TAKEN}.")
    return PromptItem(name, category, prompt, chat="turns" in fields)


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
