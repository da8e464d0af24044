"""Reads prompt sets: our own, HumanEval, and conversations (Spec-Bench, MT-bench, SPEED-Bench).

The fields of a line tell which kind it is.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeGuard

from pydantic_core import from_json

from specdec.errors import BadSetting, InvalidInput, quoted

EXAMPLES = Path(__file__).parents[1] / "data" / "prompts.jsonl"
NAME = "the examples"
LARGEST = 16_000_000  # bytes of a set, unpacked
MOST = 10_000  # prompts of a set
LONGEST_NAME = 200  # characters of a name or a category; every trial and every row repeats them
LONGEST_FILE_NAME = 255  # characters, the limit of most file systems
GZIP = b"\x1f\x8b"  # the first bytes of a packed file
TAKEN = "name and prompt, task_id and prompt (HumanEval), or turns (Spec-Bench, MT-bench, SPEED-Bench)"


@dataclass(frozen=True, slots=True)
class PromptItem:
    """One prompt of a set. ``name`` is unique in the set; figures are summed up by ``category``.

    ``chat``: the prompt is sent as a chat message if the target's tokenizer has a chat template.
    """

    name: str
    category: str
    prompt: str
    chat: bool = False

    def message(self, tokenizer: Any) -> Any:
        """The prompt for the engine. For a pair without a tokenizer, the bytes of its text as ids (n,)."""
        if tokenizer is None:
            import torch  # reports load this module without torch

            return torch.tensor(list(self.prompt.encode()))
        templated = self.chat and getattr(tokenizer, "chat_template", None)
        return [{"role": "user", "content": self.prompt}] if templated else self.prompt


@dataclass(frozen=True, slots=True)
class Choice:
    """Which prompts of a set are measured, and whether as chat messages.

    name    the name of the set
    first   how many prompts of each category; None for all
    chat    send every prompt as a chat message; otherwise only those of conversations
    """

    name: str = "those given"
    first: int | None = None
    chat: bool = False

    def __post_init__(self) -> None:
        first = self.first
        if first is not None and (isinstance(first, bool) or not isinstance(first, int) or first < 1):
            raise BadSetting(f"first is {quoted(first)}; give a whole number, 1 or more.")
        if len(self.name) > LONGEST_FILE_NAME:
            raise InvalidInput(f"The name of the prompt set is longer than {LONGEST_FILE_NAME} characters; shorten it.")

    def of(self, items: Iterable[PromptItem]) -> tuple[PromptItem, ...]:
        """The chosen prompts of a set, in its order."""
        found, counts = [], Counter[str]()
        for item in items:
            counts[item.category] += 1
            if self.first is None or counts[item.category] <= self.first:
                found.append(replace(item, chat=True) if self.chat else item)
        return tuple(found)

    def check(self, tokenizer: Any) -> None:
        """Raise ``InvalidInput`` if ``chat`` is set and the tokenizer has no chat template."""
        if self.chat and not getattr(tokenizer, "chat_template", None):
            raise InvalidInput("The target's tokenizer has no chat template; turn chat off. Nothing ran.")


def read_prompts(path: Path) -> list[PromptItem]:
    """Read the prompts of a file of JSON lines, packed with gzip or not.

    Raises ``InvalidInput``, which names the line that cannot be used.
    """
    return parse_prompts(_text_of(Path(path)))


def _text_of(path: Path) -> str:
    """The content of a file, up to ``LARGEST`` bytes: a small packed file can unpack to more than the memory."""
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == GZIP
            found = (gzip.GzipFile(fileobj=file) if packed else file).read(LARGEST + 1)
    except FileNotFoundError as error:
        raise InvalidInput(f"{path} does not exist; name a file of JSON lines.") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is a damaged gzip file"
        raise InvalidInput(f"{path.name} cannot be read ({reason}).") from error
    if len(found) > LARGEST:
        raise InvalidInput(f"{path.name} holds more than {LARGEST // 10**6} MB of text; give a smaller set.")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path.name} cannot be read as UTF-8 text; give JSON lines with {TAKEN}.") from error


def parse_prompts(text: str) -> list[PromptItem]:
    """The prompts of JSON lines. Of a conversation only the first turn counts, because the others follow an answer."""
    lines = enumerate(text.split("\n"), start=1)  # not splitlines(), which also splits at characters that JSON allows
    items = [_item(number, line) for number, line in islice((at for at in lines if at[1].strip()), MOST + 1)]
    if len(items) > MOST:
        raise InvalidInput(f"The file has more than {MOST:,} prompts; give a smaller set.")
    if not items:
        raise InvalidInput(f"The file has no prompts. Give JSON lines with {TAKEN}.")
    seen: set[str] = set()
    for item in items:
        if item.name in seen:
            raise InvalidInput(f"Two prompts are called {item.name!r}; give each a name of its own.")
        seen.add(item.name)
    return items


def _item(number: int, line: str) -> PromptItem:
    try:
        record = from_json(line)  # unlike ``json``, it refuses half of a surrogate pair, which no page can show
    except ValueError as error:
        where = str(error).replace(" at line 1 column", ", at character")
        raise InvalidInput(f"Line {number} is not JSON ({where}).") from error
    fields = record if isinstance(record, dict) else {}
    name: Any
    if "turns" in fields:
        turns, name = fields["turns"], fields.get("question_id", number)
        prompt = turns[0] if isinstance(turns, list) and turns else None
        category = fields.get("category", "conversations")
    elif "task_id" in fields:
        prompt, name, category = fields.get("prompt"), fields["task_id"], "HumanEval"
    else:
        prompt, name = fields.get("prompt"), fields.get("name", number)
        category = fields.get("category", str(name))
    if not _text(prompt) or not _text(category):
        found = ", ".join(field[:40] for field in islice(fields, 10)) or type(record).__name__
        raise InvalidInput(f"Line {number} holds no prompt (found: {found}). Give {TAKEN}.")
    for what, value in (("name", name), ("category", category)):
        if not isinstance(value, (str, int)) or len(str(value)) > LONGEST_NAME:
            raise InvalidInput(
                f"Line {number} has a {what} that is not a text of up to {LONGEST_NAME} characters; give a shorter one."
            )
    name = str(name)
    return PromptItem(name, category, prompt, chat="turns" in fields)


def _text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())
