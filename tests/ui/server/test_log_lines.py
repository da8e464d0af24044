"""Every logger of a served page writes one bounded line for each event."""

from __future__ import annotations

import logging

import uvicorn
import uvicorn.config

from specdec.ui.server import log_lines
from specdec.ui.server.log_lines import LINE, log_to_terminal

LONG = "a\nb\x1b[31m\u202e" + "x" * 100_000


def fail(depth: int) -> None:
    if depth:
        fail(depth - 1)
    try:
        raise KeyError(LONG)
    except KeyError as error:
        raise ValueError(LONG) from error


def forget_handlers(monkeypatch) -> None:
    """Make the loggers what they are when the program starts, until the test ends."""
    for name in (None, "uvicorn", "uvicorn.error", "uvicorn.access", "specdec.jobs", "asyncio", "python_multipart"):
        logger = logging.getLogger(name)
        for attribute, value in (("handlers", []), ("level", logger.level), ("propagate", logger.propagate)):
            monkeypatch.setattr(logger, attribute, value)
    for part in (uvicorn.config.LOGGING_CONFIG["formatters"], uvicorn.config.LOGGING_CONFIG["handlers"]):
        monkeypatch.setitem(part, "default", dict(part["default"]))
    monkeypatch.setattr(logging, "captureWarnings", lambda capture: None)


def test_every_logger_writes_one_bounded_line(monkeypatch, capsys):
    forget_handlers(monkeypatch)
    log_to_terminal()
    uvicorn.Config("app:app", log_level="warning")
    names = ["specdec.ui.server.gateway", "uvicorn.error", "asyncio", "somebody.else"]
    for name in names:
        try:
            fail(200)
        except ValueError:
            logging.getLogger(name).exception("It failed: %s", LONG)
    logging.getLogger("asyncio").warning("socket.send() raised exception.")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    logging.getLogger("specdec.jobs").info('{"job": "race"}')
    lines = capsys.readouterr().err.splitlines()
    assert lines.pop() == '{"job": "race"}'
    assert [line.split(":")[1] for line in lines] == names
    for line in lines:
        assert len(line) <= LINE + 40 and line.isprintable() and "characters left out" in line
        first, last, cause = line.split(" | ")
        assert first.startswith("ERROR:") and r"It failed: a\nb\x1b[31m\u202exxx" in first
        assert (
            last.startswith(r"ValueError: a\nb\x1b[31m") and last.count("server/test_log_lines.py:") == log_lines.PLACES
        )
        assert cause.startswith("KeyError: ")
