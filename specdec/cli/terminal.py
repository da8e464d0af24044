"""Output of the commands that every encoding can hold, that cannot steer a terminal, and that may be cut off."""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from specdec.errors import SpecdecError, with_names

CLOSED = 128 + 13  # the exit status that a shell gives for a program that SIGPIPE ended
# Characters of our own sentences that ASCII or a Windows code page lacks. Others are written as an escape: \u4e2d.
STAND_INS = {
    "\u03b1": "alpha", "\u03b3": "gamma", "\u2013": "-", "\u2014": "-", "\u2212": "-", "\u00b7": "|", "\u00d7": "x",
    "\u2190": "<-", "\u2192": "->", "\u2026": "...", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"',
    "\u00a0": " ", "\u2009": " ", "\u202f": " ",
}  # fmt: skip
# C0 but tab and newline, DEL, C1, and what changes the direction of the text around it. A line may end with CR LF.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FIXED_SPACES = re.compile("[\u00a0\u2007\u2009\u202f]")
# What each setting is called on the command line.
OPTIONS = {
    "max_new_tokens": "--tokens", "temperature": "--temperature", "top_k": "--top-k", "top_p": "--top-p",
    "min_p": "--min-p", "stop": "--stop", "seed": "--seed", "gamma": "--gamma", "runs": "--runs", "first": "--first",
    "dtype": "--dtype",
}  # fmt: skip


def harmless(text: str) -> str:
    """The text with control characters as escapes, such as ``\\x1b``. Tabs and line ends stay."""
    return _STEERING.sub(lambda found: _escape(found[0]), text.replace("\r\n", "\n"))


def readable(text: str, encoding: str = "utf-8") -> str:
    """A sentence or a figure as a stream with this encoding shows it: without control characters, with plain spaces.

    A table needs it before it is laid out, because a stand-in may be wider than its character.
    """
    return _FIXED_SPACES.sub(" ", harmless(text)).encode(encoding, "specdec").decode(encoding)


def warn(message: str) -> None:
    """Write a line to the standard error."""
    print(readable(message), file=sys.stderr)


def refused(error: SpecdecError, options: Mapping[str, str] = OPTIONS) -> SystemExit:
    """The end of a command that refuses something. The sentence names ``options``, not the settings of Python."""
    return SystemExit(f"specdec: {with_names(error, options)}")


@contextlib.contextmanager
def terminal() -> Iterator[None]:
    """Run a command whose output never ends it with an exception.

    What the encoding of an output lacks is replaced. A reader that has closed the pipe ends the command without a
    message and with the status ``CLOSED``. The text of ``SystemExit`` is written as a line, and the status is 1. A
    warning of this package is written as a line too.
    """
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:  # the program was started without it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):  # not where a test or a notebook has put another object there
            stream.reconfigure(errors="specdec")
    status: int | str | None = None  # of a command that has not asked to end
    try:
        try:
            with _own_warnings():
                yield
        except SystemExit as end:
            status = end.code or 0
        except KeyboardInterrupt:  # also while models load
            status = 130
        if isinstance(status, str):
            warn(status)
            status = 1
        problem = _lost()
    except OSError as error:
        # An output without a buffer (python -u) has nothing left to write again, so its error must tell.
        outputs = error.filename is None and error.errno in (errno.EPIPE, errno.ENOSPC)
        problem = _lost() or (error if outputs else None)
        if problem is None:  # not an error of the output
            raise
    if problem is not None:
        closed = isinstance(problem, BrokenPipeError) or problem.errno == errno.EINVAL  # Windows says EINVAL
        if not closed:
            warn(f"specdec: the output cannot be written ({problem.strerror}).")
        status = CLOSED if closed else 1
    if status is not None:
        raise SystemExit(status)


@contextlib.contextmanager
def _own_warnings() -> Iterator[None]:
    """Show a warning of this package as a line. Python would add a path and a line of code."""
    others, ours = warnings.showwarning, Path(__file__).parent.parent

    def show(message: Warning | str, category: type[Warning], filename: str, *rest: Any, **named: Any) -> None:
        if Path(filename).is_relative_to(ours):
            warn(f"specdec: {message}")
        else:
            others(message, category, filename, *rest, **named)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = others


def _lost() -> OSError | None:
    """Write what is buffered. Where that fails, discard the rest, so that the end of Python does not try again.

    Returns the error of an output that cannot be written.
    """
    found = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            found = found or error
            _discard(stream)
    return found


def _discard(stream: TextIO) -> None:
    with contextlib.suppress(OSError):  # a stream without a file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _escape(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode() if not text.isascii() else f"\\x{ord(text):02x}"


def _replaced(error: Any) -> tuple[str, int]:
    """What stands for characters that a stream's encoding lacks."""
    text = error.object[error.start : error.end]
    return "".join(STAND_INS.get(character) or _escape(character) for character in text), error.end


codecs.register_error("specdec", _replaced)
