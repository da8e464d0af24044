"""Reads prompt sets: our own, and public ones, as JSON lines or as one JSON list.

The fields of a record tell which kind it is: a text to continue or a question, or the turns of a conversation.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from specdec.errors import BadSetting, InvalidInput, identified, quoted

EXAMPLES = Path(__file__).parents[1] / "data" / "prompts.jsonl"
NAME = "the examples"
# An example of text that obeys a JSON schema, in 45 tokens of the embedded target.
PET_PROMPT = "Max is a brown dog. He likes to run.\nAbout Max: "
PET_SCHEMA = EXAMPLES.with_name("pet_schema.json")
LARGEST = 16_000_000  # bytes of a set, unpacked
MOST = 10_000  # prompts of a set
LONGEST_NAME = 200  # characters of a name or a category; every trial and every row repeats them
LONGEST_FILE_NAME = 255  # characters, the limit of most file systems
GZIP = b"\x1f\x8b"  # the first bytes of a packed file
# Where sets keep the prompt, in the order of looking: Spec-Bench, MT-bench and SPEED-Bench; our own, HumanEval and
# sanitized MBPP; OpenAI's messages; ShareGPT; LMSYS chats; GSM8K; MATH.
PROMPTS = ("turns", "prompt", "messages", "conversations", "conversation", "question", "problem")
NAMES = ("name", "task_id", "question_id", "id")
USER, SYSTEM = ("user", "human"), ("system", "developer")
_DECODER = json.JSONDecoder()
TAKEN = "a prompt as text, in prompt or question, or as a conversation, in turns, messages or conversations"


def message_of(prompt: str, chat: bool) -> str | list[dict[str, str]]:
    """A prompt for the engine: with ``chat`` one user's message, for the target's chat template, else the text itself.

    An empty prompt stays a text, which the engine refuses as empty.
    """
    return [{"role": "user", "content": prompt}] if chat and prompt else prompt


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
        return message_of(self.prompt, self.chat and bool(getattr(tokenizer, "chat_template", None)))


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
    """The prompts of JSON lines or of a JSON list.

    Of a conversation only the first turn of the user counts, because the others follow an answer. What the system says
    before it is put in front of it. Raises ``InvalidInput``, which names the line that cannot be used.
    """
    items: list[PromptItem] = []
    lines: dict[str, int] = {}  # by the name of a prompt
    for line, number, record in islice(_records(text.removeprefix("\ufeff")), MOST + 1):
        item = _item(line, number, record)
        if item.name in lines:
            raise InvalidInput(
                f"Two prompts are called {item.name!r} (lines {lines[item.name]} and {line}); give each a name of its "
                "own."
            )
        lines[item.name] = line
        items.append(item)
    if len(items) > MOST:
        raise InvalidInput(f"The file has more than {MOST:,} prompts; give a smaller set.")
    if not items:
        raise InvalidInput(f"The file has no prompts. Give JSON lines with {TAKEN}.")
    return items


def _records(text: str) -> Iterator[tuple[int, int, str]]:
    """Each record's first line, its number, and its JSON. The number of a line is that of its record."""
    if text.lstrip()[:1] == "[":
        yield from _elements(text)
        return
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() splits at characters that JSON allows
        if line.strip():
            yield number, number, line


def _elements(text: str) -> Iterator[tuple[int, int, str]]:
    """The elements of a JSON list, as ``_records`` yields them; a list may have many in one line."""
    at = text.index("[") + 1
    line, number = 1 + text.count("\n", 0, at), 0
    while True:
        begin = _next(text, at)
        line += text.count("\n", at, begin)
        if not number and text[begin : begin + 1] == "]":
            at = begin
            break
        try:
            _, end = _DECODER.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            problem = f"{error.msg[0].lower()}{error.msg[1:]}, at character {error.colno}"
            raise InvalidInput(f"Line {error.lineno} is not JSON ({problem}).") from error
        except (RecursionError, ValueError) as error:
            raise InvalidInput(f"Line {line} is not JSON (its lists are too deep, or a number is too long).") from error
        number += 1
        yield line, number, text[begin:end]
        at = _next(text, end)
        line += text.count("\n", begin, at)
        if (mark := text[at : at + 1]) == "]":
            break
        if mark != ",":
            found = quoted(mark) if mark else "the end of the file"
            raise InvalidInput(f"Line {line} is not JSON (after element {number} of the list comes {found}).")
        at += 1
    if text[at + 1 :].strip():
        raise InvalidInput(f"Line {line} ends a list, and more follows it; give one list, or a record a line.")


def _next(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    while text[at : at + 1].isspace():
        at += 1
    return at


def _item(line: int, number: int, text: str) -> PromptItem:
    try:
        record = from_json(text)  # unlike ``json``, it refuses half of a surrogate pair, which no page can show
    except ValueError as error:
        where = str(error).replace(" at line 1 column", ", at character")
        broken = " Write each record in one line, or all as a JSON list." * where.startswith("EOF")
        raise InvalidInput(f"Line {line} is not JSON ({where}).{broken}") from error
    fields = record if isinstance(record, dict) else {}
    places = PROMPTS + ("text",) * ("task_id" in fields)  # MBPP
    place = next((place for place in places if fields.get(place) is not None), None)
    if place is None:
        found = ", ".join(field[:40] for field in islice(fields, 10)) or type(record).__name__
        raise InvalidInput(f"Line {line} holds no prompt (found: {found}). Give {TAKEN}.")
    try:
        prompt = _prompt(fields[place])
    except InvalidInput as error:
        raise InvalidInput(f"Line {line} holds no prompt: the field {place} {error}. Give {TAKEN}.") from error
    name = next((label for field in NAMES if (label := _label(line, fields, field))), str(number))
    chat = not isinstance(fields[place], str)
    return PromptItem(name, _label(line, fields, "category") or _category(fields, place, chat, name), prompt, chat)


def _prompt(value: Any) -> str:
    """The prompt of a text or of a conversation. Raises ``InvalidInput`` with the end of a sentence about it."""
    if isinstance(value, str):
        if not value.strip():
            raise InvalidInput("is empty")
        return value
    if not isinstance(value, list):
        raise InvalidInput(f"is {identified(value)}")
    before: list[str] = []
    roles: list[str] = []
    for turn in value:
        roles.append(str(turn.get("role") or turn.get("from") or "user") if isinstance(turn, dict) else "user")
        if roles[-1] in USER:
            return "\n\n".join([*before, _said(turn)])
        if roles[-1] in SYSTEM:
            before.append(_said(turn))
    raise InvalidInput(f"has no turn of a user (found: {quoted(', '.join(roles))})" if roles else "has no turn")


def _said(turn: Any) -> str:
    """The text of a turn: itself, or its content, which may come in parts. Raises what ``_prompt`` raises."""
    content = turn
    if isinstance(turn, dict):
        content = turn["value"] if turn.get("content") is None and "value" in turn else turn.get("content")
    if isinstance(turn, dict) and isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        if len(texts) < len(parts):
            raise InvalidInput("has a turn with a part that is no text")
        content = "".join(texts)
    if not isinstance(content, str):
        found = ", ".join(field[:40] for field in islice(turn, 10)) if isinstance(turn, dict) else identified(turn)
        raise InvalidInput(f"has a turn without a text (found: {found or 'nothing'})")
    if not content.strip():
        raise InvalidInput("has an empty turn")
    return content


def _label(line: int, fields: dict[str, Any], field: str) -> str:
    """A name or a category; empty if it is left out, null or blank."""
    value = fields.get(field)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not (value is None or isinstance(value, str)) or len(value or "") > LONGEST_NAME:
        raise InvalidInput(
            f"Line {line} has a {field} that is {identified(value)}; give a text of up to {LONGEST_NAME} characters."
        )
    return value if value and value.strip() else ""


def _category(fields: dict[str, Any], place: str, chat: bool, name: str) -> str:
    """The category of a record that names none."""
    if chat:
        return "conversations"
    if "task_id" in fields:  # "HumanEval/0"; MBPP has numbers
        benchmark, slash, _ = str(fields["task_id"]).partition("/")
        return benchmark if benchmark and slash else "MBPP" if "test_list" in fields else "tasks"
    return name if place == "prompt" else "questions"
