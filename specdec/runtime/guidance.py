"""Grammars that are texts: JSON schemas, regular expressions and Lark grammars.

They are read by llguidance, the library that vLLM uses. It is imported only where a call has such a grammar.
"""

from __future__ import annotations

import re
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, cast

import torch

from specdec.errors import BadSetting, InvalidInput
from specdec.events import GRAMMAR_NAMES, JSON_STYLE, Grammar

# Bounds on what a grammar may cost: a mask, some 15 ms, and the memory of its states, 100 MB at most. They hold on
# every page and in every program, because a grammar that passes them decodes too slowly to be of use. A mask takes
# longer where the next bytes are certain, because llguidance writes all of them out: 0.1 s for 100,000, and up to 0.8 s
# for 490,000, the most that were seen. No bound of llguidance holds for the time to read a schema; a page tries that in
# a process of its own (``specdec.ui.jobs.grammar_cost``).
LIMITS: dict[str, Any] = {"initial_lexer_fuel": 1_000_000, "step_lexer_fuel": 200_000, "max_lexer_states": 50_000}
LIMITS |= {"max_items_in_row": 500}  # how many ways an ambiguous text may be read in; at 2,000 a mask takes 0.5 s

PATIENCE = 5  # seconds until a caller is told that the grammar is still being read
NEVER = {0xC0, 0xC1, *range(0xF5, 0x100)}  # bytes that are in no text
_BITS = torch.arange(8, dtype=torch.uint8)
# A rule's name and its attributes up to ``temperature``; strings and expressions among them hold any character.
_TEMPERATURE = re.compile(
    r"""^\s*[!?]*[a-z_]\w*\s*\[(?:[^]"/]|"(?:\\.|[^"\\])*"|/(?:\\.|[^/\\])*/)*?\btemperature\s*=""", re.MULTILINE
)


@dataclass(frozen=True)
class _Reader:
    """A target's tokenizer as llguidance reads it, with ``vocabulary`` ids.

    ``special`` are the ids that stand for no text, and ``lacking`` the bytes of texts that no token spells alone.
    ``last`` is the grammar that was read last, with what ``read_grammar`` gave for it: all prompts of a measurement
    have the same, and to read it may take seconds.
    """

    tokenizer: Any
    eos_ids: frozenset[int]
    vocabulary: int
    special: torch.Tensor
    lacking: frozenset[int]
    last: dict[Grammar, Callable[[], GuidanceMatcher]] = field(default_factory=dict)


class GuidanceMatcher:
    """llguidance's matcher. The end of the text is kept here: that one does not go on to it, and not back from it.

    ``start`` makes one at the beginning of a text. It is needed where there is no other way back: after a token that
    nothing can follow, and in grammars that count tokens or end a rule at a stop string.
    """

    def __init__(self, start: Callable[[], Any], reader: _Reader):
        self._start, self._reader = start, reader
        self._matcher = start()
        self._ids: list[int] = []  # what it has read
        self._ends = 0  # how often the end was read

    def allowed(self) -> torch.Tensor:
        if self._ends:
            return self._only(self._reader.eos_ids)
        packed = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        if self._stuck():
            return self._only(())
        bits = packed[:, None].bitwise_right_shift(_BITS).bitwise_and(1)
        mask = bits.flatten()[: self._reader.vocabulary].bool()
        for token_id in self._doubtful(mask).tolist():
            mask[token_id] = self._fits(token_id)
        return mask

    def read(self, token_id: int) -> bool:
        if token_id in self._reader.eos_ids:
            self._ends += 1
            return True
        if self._matcher.try_consume_tokens([token_id]) != 1:
            self._stuck()
            return False
        self._ids.append(token_id)
        return True

    def back(self, count: int) -> None:
        ends = min(count, self._ends)
        self._ends -= ends
        if count > ends:
            del self._ids[ends - count :]
            if not self._matcher.rollback(count - ends):
                self._matcher = self._start()
                self._matcher.try_consume_tokens(self._ids)

    def _only(self, ids: Any) -> torch.Tensor:
        mask = torch.zeros(self._reader.vocabulary, dtype=torch.bool)
        mask[[*ids]] = True
        return mask

    def _doubtful(self, mask: torch.Tensor) -> torch.Tensor:
        """The allowed ids that may break the grammar all the same, (n,).

        Inside, llguidance writes special tokens in bytes, which the complement of an expression (``~`` in Lark) allows.
        Where the next bytes are certain, it allows the tokens of that text, from which the tokenizer drops what it
        cannot spell.
        """
        if self._reader.lacking.intersection(self._matcher.compute_ff_bytes()):
            return mask.nonzero().flatten()
        return self._reader.special[mask[self._reader.special]]

    def _fits(self, token_id: int) -> bool:
        if token_id in self._reader.eos_ids:
            return self._matcher.is_accepting()
        return self._matcher.validate_tokens([token_id]) == 1

    def _stuck(self) -> bool:
        """Whether nothing can follow, not even the end. Raises ``InvalidInput`` where a bound is passed."""
        if not self._matcher.is_error():
            return False
        reason = self._matcher.get_error()
        if not reason.startswith("NoExtension"):
            raise InvalidInput(f"The grammar takes too long to follow ({_reason(reason)}); use a simpler one.")
        return True


def read_grammar(
    grammar: Grammar, tokenizer: Any, eos_ids: frozenset[int], vocabulary: int
) -> Callable[[], GuidanceMatcher]:
    """Read and check a grammar that is a text. What is returned makes a matcher at the beginning of a text.

    Warns if that takes more than ``PATIENCE`` seconds. Raises ``InvalidInput`` with what is wrong.
    """
    try:
        from llguidance import LLMatcher, LLParserLimits
    except ImportError:
        raise InvalidInput(
            "A grammar needs the package llguidance, which is not installed; install specdec with the extra grammar, "
            "or give a function of your own."
        ) from None
    texts = {
        "json-schema": lambda: LLMatcher.grammar_from_json_schema(
            _object(grammar.text), defaults=cast(Any, JSON_STYLE)
        ),
        "regex": lambda: LLMatcher.grammar_from_regex(grammar.text),
        "lark": lambda: LLMatcher.grammar_from_lark(grammar.text),
    }
    if grammar.kind not in texts:
        raise InvalidInput("A recording does not hold the function that its text obeyed, so it cannot run again.")
    if grammar.kind == "lark" and _TEMPERATURE.search(grammar.text):
        raise BadSetting(
            "grammar gives a rule a temperature, which would have no effect; leave it out, and set the temperature of "
            "the whole text."
        )
    reader, name = _reader_of(tokenizer, eos_ids, vocabulary), GRAMMAR_NAMES[grammar.kind]
    if (known := reader.last.get(grammar)) is not None:
        return known
    try:
        spelled = texts[grammar.kind]()
    except ValueError as error:
        raise BadSetting(f"grammar cannot be read as {name}: {_reason(str(error))}.") from None
    limits = LLParserLimits(verbose_errors=False, **LIMITS)
    matcher = _apart(lambda: LLMatcher(reader.tokenizer, spelled, log_level=0, limits=limits))
    if matcher.is_error():
        raise BadSetting(f"grammar cannot be read as {name}: {_reason(matcher.get_error())}.")
    start = partial(GuidanceMatcher, matcher.deep_copy, reader)
    if not start().allowed().any():
        raise BadSetting("grammar allows no text that the target's tokenizer can begin.")
    reader.last.clear()
    reader.last[grammar] = start
    return start


def _object(schema: str) -> str:
    """A schema's text, if it can be one that llguidance reads."""
    if not schema.lstrip().startswith("{"):
        raise ValueError("a schema is an object in braces, or true")
    return schema


def _apart(read: Callable[[], Any]) -> Any:
    """What ``read`` returns, in a thread of its own: to read a grammar cannot be interrupted, and to wait for it can.

    After an interruption the thread goes on until it is done, or until the process ends.
    """
    found: Future[Any] = Future()

    def run() -> None:
        try:
            found.set_result(read())
        except BaseException as error:
            found.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    for seconds in count(1):
        thread.join(1)  # short waits, which Ctrl-C ends on each system
        if not thread.is_alive():
            return found.result()
        if seconds == PATIENCE:
            warnings.warn("The grammar is still being read; a simpler one is read sooner.", stacklevel=2)


# By tokenizer: to read one takes up to a second.
_readers: weakref.WeakKeyDictionary[Any, dict[tuple[frozenset[int], int], _Reader]] = weakref.WeakKeyDictionary()


def _reader_of(tokenizer: Any, eos_ids: frozenset[int], vocabulary: int) -> _Reader:
    from llguidance.hf import from_tokenizer

    if tokenizer is None:
        raise InvalidInput("A grammar is about text, but the pair has no tokenizer; give a function of token ids.")
    known = _readers.setdefault(tokenizer, {})
    if (eos_ids, vocabulary) not in known:
        try:
            read = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=sorted(eos_ids))
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"The target's tokenizer cannot be read for a grammar ({_reason(str(error))}); give a function of "
                "token ids."
            ) from None
        special = torch.tensor([i for i in range(vocabulary) if read.is_special_token(i)], dtype=torch.long)
        alone = {byte: bytes([byte]) for byte in range(256) if byte not in NEVER}
        lacking = frozenset(
            byte for byte, text in alone.items() if read.decode_bytes(read.tokenize_bytes(text)) != text
        )
        known[eos_ids, vocabulary] = _Reader(read, eos_ids, vocabulary, special, lacking)
    return known[eos_ids, vocabulary]


def _reason(text: str) -> str:
    """The line of a library's message that says what is wrong, cut."""
    lines = text.strip().splitlines() or ["no reason given"]
    found = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    return " ".join(found.split())[:200].rstrip(".:")
