"""The tokens of one call: the prompt, what is committed, and room for a draft behind it."""

from __future__ import annotations

import torch


class Context:
    """A buffer of ids on the target's device; ``length`` ids are committed, a draft may stand behind them.

    Drafting writes its tokens into the buffer, so that both models read slices of one tensor and no value has to
    travel to the host before the round is verified.
    """

    def __init__(self, prompt_ids: torch.Tensor, room: int):
        self.prompt_length = self.length = len(prompt_ids)
        self._ids = torch.cat([prompt_ids, prompt_ids.new_zeros(room)])
        self.device = self._ids.device

    def ids(self, start: int, end: int) -> torch.Tensor:
        """Ids ``start`` to ``end``, (end - start,): a view."""
        return self._ids[start:end]

    def place(self, offset: int) -> torch.Tensor:
        """The place (1,) of a draft token, ``offset`` behind the committed ids: a view to write it into."""
        start = self.length + offset
        return self._ids[start : start + 1]

    def commit(self, count: int, last: int) -> None:
        """Keep ``count`` ids for good. All but the ``last`` are accepted draft tokens, which stand here already."""
        self.length += count
        self._ids[self.length - 1 : self.length].fill_(last)
