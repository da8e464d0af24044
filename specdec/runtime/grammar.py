"""Which tokens a grammar allows at each place of a call's text.

Generation under a grammar takes, at each place, the model's distribution over the tokens that the grammar allows there,
and forbids all others. In speculative decoding each row of a pass has a place of its own: row i stands after i draft
tokens, so its tokens are those that are allowed after them. A rejected draft token takes the grammar back to the place
in front of it.

A person's own function is followed here, and a grammar that is a text in ``specdec.runtime.guidance``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from specdec.errors import BadSetting, GrammarStuck, InvalidInput
from specdec.events import Allowed, Grammar, GrammarFunction
from specdec.runtime.guidance import read_grammar

KEPT = 64  # masks of one call, of V bytes each; a round asks about its own places, which are fewer


class Matcher(Protocol):
    """A grammar at one place of a text."""

    def allowed(self) -> torch.Tensor:
        """The tokens that may follow, (V,) bool on the CPU."""

    def read(self, token_id: int) -> bool:
        """Go on after a token that is allowed. False, and nothing changes, if that is not possible."""

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
        self._first = 0  # the mask after so many of them is the first that is kept
        self._after: list[torch.Tensor | None] = [matcher.allowed()]  # that one, the one after a token more, ...
        self._read = 0  # how many of them the matcher has read: all, or those before the first that is not allowed

    def after(self, ids: Sequence[int]) -> torch.Tensor | None:
        """The tokens that may follow the new tokens ``ids``, (V,); None where these already break the grammar."""
        asked = list(ids)
        same = min(len(self._ids), len(asked))
        if self._ids[:same] != asked[:same]:  # elsewhere, as in most calls, one goes on where the other ends
            same = len(os.path.commonprefix([self._ids, asked]))
        if same < len(asked) or same < self._first:
            self._back_to(same)
        for token_id in asked[same:]:
            before = self._after[-1]
            follows = before is not None and bool(before[token_id]) and self._matcher.read(token_id)
            self._read += follows
            self._ids.append(token_id)
            self._after.append(self._matcher.allowed() if follows else None)
            if len(self._after) > KEPT:
                del self._after[0]
                self._first += 1
        return self._after[len(asked) - self._first]

    def _back_to(self, count: int) -> None:
        """Forget all but the first ``count`` of the tokens that were asked about last."""
        del self._ids[count:]
        self._matcher.back(max(0, self._read - count))
        self._read = min(self._read, count)
        if count >= self._first:
            del self._after[count - self._first + 1 :]
        else:
            self._first, self._after = count, [self._matcher.allowed() if self._read == count else None]

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
    return Constraint(read_grammar(grammar, tokenizer, eos_ids, vocabulary), eos_ids)


def anything(vocabulary: int) -> Constraint:
    """Allows each token at each place, also after an end of the text."""
    free = torch.ones(vocabulary, dtype=torch.bool)
    return Constraint(partial(FunctionMatcher, lambda ids: free, frozenset(), vocabulary), frozenset())


class FunctionMatcher:
    """A person's own function that tells the allowed tokens from the new tokens so far."""

    def __init__(self, function: Allowed, eos_ids: frozenset[int], vocabulary: int):
        self._function, self._eos_ids, self._vocabulary = function, eos_ids, vocabulary
        self._ids: list[int] = []

    def allowed(self) -> torch.Tensor:
        ended = bool(self._ids) and self._ids[-1] in self._eos_ids
        return mask_of(self._eos_ids if ended else self._function(tuple(self._ids)), self._vocabulary)

    def read(self, token_id: int) -> bool:
        self._ids.append(token_id)
        return True

    def back(self, count: int) -> None:
        del self._ids[len(self._ids) - count :]


def mask_of(allowed: Any, vocabulary: int) -> torch.Tensor:
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
