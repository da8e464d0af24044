"""The tokens of one call: the prompt, what is committed, and room for a draft after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class TokenBuffer:
    """A buffer of ids on the target's device. ``length`` ids are committed, and a draft may follow them.

    Drafting writes its tokens into the buffer. So both models read slices of one tensor, and no value has to be copied
    to the host before the round is verified. ``tokens`` are the committed ids on the host.
    """

    def __init__(self, prompt_ids: torch.Tensor, room: int):
        self.tokens: list[int] = prompt_ids.tolist()
        with torch.inference_mode():  # like the passes: there, views and writes are cheaper
            self._ids = torch.cat([prompt_ids, prompt_ids.new_zeros(room)])
        self.device = self._ids.device

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def blocks_host(self) -> bool:
        """Whether the host waits for the device when it reads a value. Then a round should read only once."""
        return self.device.type != "cpu"

    def ids(self, start: int, end: int) -> torch.Tensor:
        """Ids ``start`` to ``end``, (end - start,)."""
        return self.part(self._ids, start, end)

    def keep(self, values: torch.Tensor) -> torch.Tensor:
        """Keep ``values`` (n,), one for each place of the text, for ``part``. A call may keep one such row.

        A synthetic draft keeps the target's text in this way.
        """
        return values.to(self.device)

    def part(self, row: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Places ``start`` to ``end`` of a kept row, (end - start,)."""
        return row[start:end]

    def ids_before(self, end: int) -> torch.Tensor:
        """The ids before ``end``, each at least once, (m,)."""
        return self._ids[:end]

    def write(self, offset: int, ids: torch.Tensor) -> None:
        """Put draft tokens ``ids`` (n,) after the committed ids and ``offset`` more."""
        start = self.length + offset
        self._ids[start : start + len(ids)].copy_(ids)

    def write_host(self, ids: Sequence[int]) -> None:
        """Put draft tokens that the host knows after the committed ids, without waiting for the device."""
        known = torch.tensor(ids, pin_memory=self.device.type == "cuda")
        self._ids[self.length : self.length + len(ids)].copy_(known, non_blocking=True)

    def commit(self, block: Sequence[int]) -> None:
        """Commit ``block``. All but its last token are accepted draft tokens, which are in the buffer already."""
        self.tokens += block
        self._ids[self.length - 1 : self.length].fill_(block[-1])
