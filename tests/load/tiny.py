"""A pair small enough to run fast on a busy machine, saved in folders that a page loads."""

from __future__ import annotations

from pathlib import Path

from tests.fakes import byte_tokenizer, noisy_copy, tiny

CONTEXT = 4096


def save_pair(folder: Path) -> list[str]:
    """Write the pair below ``folder``; return the command's arguments that name it."""
    target = tiny("llama", context=CONTEXT)
    for name, model in (("target", target), ("draft", noisy_copy(target))):
        model.save_pretrained(folder / name)
        byte_tokenizer().save_pretrained(folder / name)
    return ["--target", str(folder / "target"), "--draft", str(folder / "draft")]
