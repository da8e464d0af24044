"""What a page lets its visitors ask for: little on one's own machine, firm caps on a public one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Caps of one page; None means no cap beyond what the models themselves take."""

    new_tokens: int = 2048
    prompt_tokens: int | None = None
    seconds: float | None = None
    waiting: int | None = None
    runs: int = 25  # of one race
    prompts: int = 1000  # of a benchmark
    file_bytes: int = 10_000_000  # of a file that a visitor chose, unpacked
    draws: int = 500  # of each sample of the losslessness test
    public: bool = False  # pairs from the list only


LOCAL = Limits()
PUBLIC = Limits(
    new_tokens=256,
    prompt_tokens=512,
    seconds=60,
    waiting=16,
    runs=5,
    prompts=20,
    file_bytes=1_000_000,
    draws=200,
    public=True,
)
