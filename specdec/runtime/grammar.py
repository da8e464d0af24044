"""Which tokens a grammar allows at each place of a call's text.

Generation under a grammar takes, at each place, the model's distribution over the tokens that the grammar allows there,
and forbids all others. In speculative decoding each row of a pass has a place of its own: row i stands after i draft
tokens, so its tokens are those that are allowed after them. A rejected draft token takes the grammar back to the place
in front of it.

JSON schemas, regular expressions and Lark grammars are read by llguidance, the library that vLLM uses. It is imported
only where a call has a grammar.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch

from specdec.errors import BadSetting, GrammarStuck, InvalidInput
from specdec.events import GRAMMAR_NAMES, JSON_STYLE, Allowed, Grammar, GrammarFunction

# Bounds on what a grammar may cost: a mask, some 15 ms at most, and the memory of its states, 100 MB at most. They hold
# on every page and in every program, because a grammar that passes them decodes too slowly to be of use. They do not
# bound the time to read a schema; a page tries that in a process of its own (``specdec.ui.jobs.grammar_cost``).
LIMITS: dict[str, Any] = {"initial_lexer_fuel": 1_000_000, "step_lexer_fuel": 200_000, "max_lexer_states": 50_000}
LIMITS |= {"max_items_in_row": 500}  # how many ways an ambiguous text may be read in; at 2,000 a mask takes 0.5 s


_BITS = torch.arange(8, dtype=torch.uint8)


class Matcher(Protocol):
    """A grammar at one place of a text."""

    def allowed(self) -> torch.Tensor:
        """The tokens that may follow, (V,) bool on the CPU."""

    def read(self, token_id: int) -> bool:
        """Go on after a token. False, and nothing changes, if it is not allowed."""

    def back(self, count: int) -> None:
        """Forget the last ``count`` tokens that were read."""


@dataclass(frozen=True)
class Constraint:
    """A grammar that was read and checked for one tokenizer. ``start`` makes a matcher at the beginning of a text."""

    start: Callable[[], Matcher]
    eos_ids: frozenset[int]

    def masks(self, prompt: int) -> Masks:
        """The masks of one call whose prompt has ``prompt`` tokens. The grammar is about the tokens after it."""
        return Masks(self.start(), prompt, self.eos_ids)


class Masks:
    """The tokens that are allowed at each place of one call's text, draft tokens included.

    Target and draft share them: what the draft asked for is known when the target asks again.
    """

    def __init__(self, matcher: Matcher, prompt: int, eos_ids: frozenset[int]):
        self._matcher, self._prompt, self._eos_ids = matcher, prompt, eos_ids
        self._ids: list[int] = []  # the new tokens that were asked about last
        self._after: list[torch.Tensor | None] = [matcher.allowed()]  # after none of them, after the first, ...
        self._read = 0  # how many of them the matcher has read: all, or those before the first that is not allowed

    def after(self, ids: Sequence[int]) -> torch.Tensor | None:
        """The tokens that may follow the new tokens ``ids``, (V,); None where these already break the grammar."""
        asked = list(ids)
        same = min(len(self._ids), len(asked))
        if self._ids[:same] != asked[:same]:  # elsewhere, as in most calls, one goes on where the other ends
            same = len(os.path.commonprefix([self._ids, asked]))
        if same < len(ids):
            del self._ids[same:], self._after[same + 1 :]
            self._matcher.back(max(0, self._read - same))
            self._read = min(self._read, same)
        for token_id in ids[same:]:
            follows = self._after[-1] is not None and self._matcher.read(token_id)
            self._read += follows
            self._ids.append(token_id)
            self._after.append(self._matcher.allowed() if follows else None)
        return self._after[len(ids)]

    def forced(self, tokens: Sequence[int], most: int) -> list[int]:
        """Up to ``most`` tokens that must follow ``tokens``, because each is the only one that is allowed.

        An end of the text is the last. ``tokens`` are the prompt and new tokens. So they are in the next methods.
        """
        ids = tokens[self._prompt :]
        found: list[int] = []
        while len(found) < most and not self._eos_ids.intersection(found[-1:]):
            allowed = self.after([*ids, *found])
            if allowed is None or allowed.sum() != 1:
                break
            found.append(int(allowed.long().argmax()))
        return found

    def obeyed(self, tokens: Sequence[int], ids: Sequence[int]) -> int:
        """How many of ``ids`` obey the grammar after ``tokens``, up to the first that does not."""
        before = tokens[self._prompt :]
        for count, token_id in enumerate(ids):
            allowed = self.after([*before, *ids[:count]])
            if allowed is None or not allowed[token_id]:
                return count
        return len(ids)

    def apply(self, logits: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
        """Logits (n, V) with minus infinity for what is not allowed.

        The last row was computed from ``tokens``, prompt included, and each earlier row from one token less.
        A row stays as it is after draft tokens that break the grammar, because these are not kept, and where the
        grammar allows no token that the model can choose (a draft may know fewer tokens than the target).
        """
        new = tokens[self._prompt :]
        ends = range(len(tokens) - len(logits) + 1 - self._prompt, len(tokens) + 1 - self._prompt)
        masks = [self.after(new[:n]) if n >= 0 else None for n in ends]  # a draft may read the prompt's last tokens
        free = torch.ones(logits.shape[-1], dtype=torch.bool)
        rows = torch.stack([free if mask is None else mask for mask in masks]).to(logits.device)
        masked = logits.masked_fill(~rows, float("-inf"))
        possible = (masked > float("-inf")).any(-1)
        return torch.where(possible[:, None], masked, logits)

    def require_choice(self, tokens: Sequence[int]) -> None:
        """Raise ``GrammarStuck`` if no token may follow ``tokens``."""
        allowed = self.after(tokens[self._prompt :])
        if allowed is None or not allowed.any():
            raise GrammarStuck()

    def require_obeyed(self, tokens: Sequence[int]) -> None:
        """Raise ``GrammarStuck`` if ``tokens`` go on after a place where none may follow.

        A round may keep a draft token that nothing can follow, and add another: ``apply`` leaves that row as it is.
        """
        if self.after(tokens[self._prompt :]) is None:
            raise GrammarStuck()


def constraint_of(grammar: Grammar, tokenizer: Any, eos_ids: frozenset[int], vocabulary: int) -> Constraint:
    """Read and check a grammar for a target with ``vocabulary`` ids. Raises ``InvalidInput`` with what is wrong."""
    if not eos_ids:
        raise InvalidInput(
            "With a grammar the text ends at an end-of-text token, and this call has none; set ignore_eos to False, or "
            "take a target with such a token."
        )
    if isinstance(grammar, GrammarFunction):
        return Constraint(partial(FunctionMatcher, grammar.allowed, eos_ids, vocabulary), eos_ids)
    return Constraint(_llguidance(grammar, tokenizer, eos_ids, vocabulary), eos_ids)


class FunctionMatcher:
    """A person's own function that tells the allowed tokens from the new tokens so far."""

    def __init__(self, function: Allowed, eos_ids: frozenset[int], vocabulary: int):
        self._function, self._eos_ids, self._vocabulary = function, eos_ids, vocabulary
        self._ids: list[int] = []
        self._allowed: list[torch.Tensor] = []
        self._look()

    def allowed(self) -> torch.Tensor:
        return self._allowed[-1]

    def read(self, token_id: int) -> bool:
        if not self._allowed[-1][token_id]:
            return False
        self._ids.append(token_id)
        self._look()
        return True

    def back(self, count: int) -> None:
        if count:
            del self._ids[-count:], self._allowed[-count:]

    def _look(self) -> None:
        ended = bool(self._ids) and self._ids[-1] in self._eos_ids
        found = self._eos_ids if ended else self._function(tuple(self._ids))
        self._allowed.append(_mask_of(found, self._vocabulary))


class GuidanceMatcher:
    """llguidance's matcher. The end of the text is kept here: that one does not go on to it, and not back from it.

    ``start`` makes one at the beginning of a text. It is needed where there is no other way back: after a token that
    nothing can follow, and in grammars that count tokens or end a rule at a stop string.
    """

    def __init__(self, start: Callable[[], Any], eos_ids: frozenset[int], vocabulary: int):
        self._start, self._eos_ids, self._vocabulary = start, eos_ids, vocabulary
        self._matcher = start()
        self._ids: list[int] = []  # what it has read
        self._ends = 0  # how often the end was read

    def allowed(self) -> torch.Tensor:
        if self._ends:
            return _mask_of(self._eos_ids, self._vocabulary)
        packed = torch.frombuffer(bytearray(self._matcher.compute_bitmask()), dtype=torch.uint8)
        if self._stuck():
            return _mask_of((), self._vocabulary)
        bits = packed[:, None].bitwise_right_shift(_BITS).bitwise_and(1)
        return bits.flatten()[: self._vocabulary].bool()

    def read(self, token_id: int) -> bool:
        if token_id in self._eos_ids:
            ends = bool(self._ends) or bool(self.allowed()[token_id])
            self._ends += ends
            return ends
        if self._ends or self._matcher.try_consume_tokens([token_id]) != 1:
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

    def _stuck(self) -> bool:
        """Whether nothing can follow, not even the end. Raises ``InvalidInput`` where a bound is passed."""
        if not self._matcher.is_error():
            return False
        reason = self._matcher.get_error()
        if not reason.startswith("NoExtension"):
            raise InvalidInput(f"The grammar takes too long to follow ({_reason(reason)}); use a simpler one.")
        return True


def _llguidance(
    grammar: Grammar, tokenizer: Any, eos_ids: frozenset[int], vocabulary: int
) -> Callable[[], GuidanceMatcher]:
    try:
        from llguidance import LLMatcher, LLParserLimits
    except ImportError:
        raise InvalidInput(
            "A grammar needs the package llguidance, which is not installed; install specdec with the extra grammar, "
            "or give a function of your own."
        ) from None
    texts = {
        "json-schema": lambda: LLMatcher.grammar_from_json_schema(grammar.text, defaults=cast(Any, JSON_STYLE)),
        "regex": lambda: LLMatcher.grammar_from_regex(grammar.text),
        "lark": lambda: LLMatcher.grammar_from_lark(grammar.text),
    }
    if grammar.kind not in texts:
        raise InvalidInput("A recording does not hold the function that its text obeyed, so it cannot run again.")
    name = GRAMMAR_NAMES[grammar.kind]
    try:
        spelled = texts[grammar.kind]()
    except ValueError as error:
        raise BadSetting(f"grammar cannot be read as {name}: {_reason(str(error))}.") from None
    reader = _tokenizer_of(tokenizer, tuple(sorted(eos_ids)), vocabulary)
    matcher = LLMatcher(reader, spelled, log_level=0, limits=LLParserLimits(verbose_errors=False, **LIMITS))
    if matcher.is_error():
        raise BadSetting(f"grammar cannot be read as {name}: {_reason(matcher.get_error())}.")
    start = partial(GuidanceMatcher, matcher.deep_copy, eos_ids, vocabulary)
    if not start().allowed().any():
        raise BadSetting("grammar allows no text that the target's tokenizer can begin.")
    return start


# By tokenizer: to read one takes up to a second.
_tokenizers: weakref.WeakKeyDictionary[Any, dict[tuple[tuple[int, ...], int], Any]] = weakref.WeakKeyDictionary()


def _tokenizer_of(tokenizer: Any, eos_ids: tuple[int, ...], vocabulary: int) -> Any:
    from llguidance.hf import from_tokenizer

    if tokenizer is None:
        raise InvalidInput("A grammar is about text, but the pair has no tokenizer; give a function of token ids.")
    known = _tokenizers.setdefault(tokenizer, {})
    if (eos_ids, vocabulary) not in known:
        try:
            known[eos_ids, vocabulary] = from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=list(eos_ids))
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidInput(
                f"The target's tokenizer cannot be read for a grammar ({_reason(str(error))}); give a function of "
                "token ids."
            ) from None
    return known[eos_ids, vocabulary]


def _mask_of(allowed: Any, vocabulary: int) -> torch.Tensor:
    """What a function allows, as (V,) bool: token ids, or such a tensor itself."""
    if hasattr(allowed, "__array__"):  # a tensor, or one of numpy
        allowed = torch.as_tensor(allowed)
    if isinstance(allowed, torch.Tensor) and allowed.dtype == torch.bool:
        if allowed.shape != (vocabulary,):
            raise BadSetting(f"grammar gave a mask of shape {tuple(allowed.shape)}; give ({vocabulary},).")
        return allowed.to("cpu", copy=True)  # the function may write its next mask into the same tensor
    mask = torch.zeros(vocabulary, dtype=torch.bool)
    ids = [int(token_id) for token_id in allowed]
    if wrong := next((i for i in ids if not 0 <= i < vocabulary), None):
        raise BadSetting(f"grammar allows the token id {wrong}; the target has the ids 0 to {vocabulary - 1}.")
    mask[ids] = True
    return mask


def _reason(text: str) -> str:
    """The line of a library's message that says what is wrong, cut."""
    lines = text.strip().splitlines() or ["no reason given"]
    found = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    return " ".join(found.split())[:200].rstrip(".:")
