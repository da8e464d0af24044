"""Translates between the vocabularies of a target and of a draft with another tokenizer.

Tokens are compared by the bytes that they add in the middle of a text, so it does not matter how a tokenizer writes a
space. The tokens that begin and end a text are compared by their role.
"""

from __future__ import annotations

import codecs
from typing import Any

import torch

from specdec.text import TokenBytes, text_of

# Stand-ins for tokens that play a role; no UTF-8 text holds these bytes.
_ROLES = {"bos_token_id": b"\xff<bos>", "eos_token_id": b"\xff<eos>"}
_ANCHOR = "\n"


def tokenizer_difference(target: Any, draft: Any) -> str | None:
    """The first difference of two tokenizers, in words; None if ids mean the same. Padding does not count."""
    ours = {token_id: token for token, token_id in target.get_vocab().items()}
    theirs = {token_id: token for token, token_id in draft.get_vocab().items()}
    for token_id in sorted(ours.keys() & theirs.keys()):
        if ours[token_id] != theirs[token_id]:
            return f"id {token_id} is {ours[token_id]!r} in the target's and {theirs[token_id]!r} in the draft's"
    extra = sorted(ours.keys() ^ theirs.keys())
    # A few added tokens at the end are common among models of one family; the draft simply never proposes them.
    if len(extra) > 0.01 * len(ours):
        owner, other = ("target", "draft") if extra[0] in ours else ("draft", "target")
        token = ours.get(extra[0], theirs.get(extra[0]))
        return f"id {extra[0]} is {token!r} in the {owner}'s and missing in the {other}'s"
    return None


class Vocabulary:
    """The tokens of one tokenizer by their bytes. Splits and encodes text."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        bytes_of = TokenBytes(tokenizer)
        roles = {getattr(tokenizer, role, None): data for role, data in _ROLES.items()}
        added = getattr(tokenizer, "added_tokens_decoder", {})
        special = {token_id for token_id, token in added.items() if token.special}
        self.bytes_of: dict[int, bytes] = {}
        self.id_of: dict[bytes, int] = {}
        # A character's own token comes before the byte of the fallback, which a model does not write it with.
        for token_id in sorted(tokenizer.get_vocab().values(), key=lambda i: (bytes_of.is_fallback(i), i)):
            data = self.bytes_of[token_id] = roles.get(token_id) or bytes_of(token_id)
            # A special token without a shared role is no text: it is neither looked for nor proposed.
            if token_id in roles or token_id not in special:
                self.id_of.setdefault(data, token_id)
        self._longest = max(map(len, self.id_of), default=0)

    def join(self, token_ids: list[int]) -> bytes:
        return b"".join(self.bytes_of.get(token_id, b"") for token_id in token_ids)

    def split(self, data: bytes) -> list[int]:
        """Split ``data`` into the longest tokens, from left to right. A byte that no token holds is left out."""
        ids, at = [], 0
        while at < len(data):
            ends = range(min(len(data), at + self._longest), at, -1)
            end = next((end for end in ends if data[at:end] in self.id_of), None)
            if end is not None:
                ids.append(self.id_of[data[at:end]])
            at = end or at + 1
        return ids

    def encode(self, data: bytes) -> list[int]:
        """Encode ``data`` as the tokenizer does after other text. Half a character at the end is left out."""
        end = data.find(b"\xff")
        text = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data[:end] if end >= 0 else data)
        # Many tokenizers add a space before the first word of a text, but not after other text.
        before, ids = (self._tokenizer(t, add_special_tokens=False).input_ids for t in (_ANCHOR, _ANCHOR + text))
        written = ids[len(before) :] if ids[: len(before)] == before else self.split(text.encode())
        if self.join(written) == b" " + text.encode():  # it took the rest of a word for a word
            written = self.split(text.encode())
        return written + (self.split(data[end:]) if end >= 0 else [])


class Translation:
    """Translates between a target's ids and a draft's."""

    def __init__(self, target: Any, draft: Any):
        self.target, self.draft = Vocabulary(target), Vocabulary(draft)
        self._target_tokenizer, self._draft_tokenizer = target, draft
        shared = sorted(
            (self.draft.id_of[data], t) for data, t in self.target.id_of.items() if data in self.draft.id_of
        )
        self.shared = torch.tensor(shared, dtype=torch.long).view(-1, 2)  # (s, 2): draft id, target id
        self.draft_id_of = {target_id: draft_id for draft_id, target_id in shared}

    def prompt(self, token_ids: list[int]) -> list[int]:
        """A prompt in the draft's ids, as the draft's own tokenizer encodes it."""
        roles = {getattr(self._target_tokenizer, role, None) for role in _ROLES}
        written = [token_id for token_id in token_ids if token_id in self.target.bytes_of and token_id not in roles]
        text = text_of(self._target_tokenizer, written)
        ids = self._draft_tokenizer(text, verbose=False).input_ids
        ended = ids and ids[-1] == self._draft_tokenizer.eos_token_id  # some tokenizers end every text
        return ids[:-1] if ended else ids

    def proposal(self, draft_ids: list[int], neg_log_probs: list[float]) -> tuple[list[int], list[float]]:
        """The drafted text in the target's ids, and -log of the draft's probability of each.

        ``neg_log_probs[i]`` is -log of the draft's probability of ``draft_ids[i]``. A target token gets the sum over
        the draft tokens that begin in it; 0 where it lies inside a token that began before it.
        """
        target_ids = self.target.encode(self.draft.join(draft_ids))
        sums, taken, start, end = [], 0, 0, 0
        for token_id in target_ids:
            end += len(self.target.bytes_of[token_id])
            sums.append(0.0)
            while taken < len(draft_ids) and start < end:
                sums[-1] += neg_log_probs[taken]
                start += len(self.draft.bytes_of.get(draft_ids[taken], b""))
                taken += 1
        return target_ids, sums
