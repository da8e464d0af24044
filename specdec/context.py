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

    def write(self, offset: int, token: torch.Tensor) -> None:
        """Put ``token`` (0-d or (1,)) ``offset`` places behind the committed ids."""
        self._ids[self.length + offset] = token

    def commit(self, token_ids: list[int]) -> None:
        """Append ids for good, over whatever was drafted there."""
        end = self.length + len(token_ids)
        self._ids[self.length : end] = torch.tensor(token_ids, device=self._ids.device)
        self.length = end
