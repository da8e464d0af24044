"""Keeps the log of a page short: each event is one line of bounded length, whatever a visitor sent."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

from specdec.ui.jobs.log import LOG as JOBS
from specdec.ui.jobs.log import cut
from specdec.ui.web_private import replace_log, replace_tracebacks

MESSAGE = 200  # characters of a message, and of an error's
PLACES = 10  # calls of a traceback, the innermost ones
CAUSES = 3  # errors that led to each other
LINE = 3000  # characters

LOG = logging.getLogger(__name__)


class OneLine(logging.Formatter):
    """A record as one bounded line. An error comes with the calls that led to it."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [f"{record.levelname}:{record.name}:{cut(record.getMessage(), MESSAGE)}"]
        error = record.exc_info[1] if record.exc_info else None
        while error is not None and len(parts) <= CAUSES:
            places = traceback.extract_tb(error.__traceback__, limit=-PLACES)
            where = ", ".join(f"{_short(place.filename)}:{place.lineno}" for place in places)
            parts.append(f"{type(error).__name__}: {cut(str(error), MESSAGE)} at {where or 'no known place'}")
            error = error.__cause__ or error.__context__
        return cut(_plain(" | ".join(parts)), LINE)


def log_to_terminal() -> None:
    """Write the log to the standard error, one bounded line for each record of any logger, uvicorn's own included.

    Call it before the page is served.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.captureWarnings(True)
    for name in ("asyncio", "python_multipart"):  # they may warn several times about one request, and so does uvicorn
        logging.getLogger(name).setLevel(logging.ERROR)
    replace_log(OneLine)
    JOBS.setLevel(logging.INFO)
    JOBS.addHandler(logging.StreamHandler())  # its lines are JSON, without a prefix
    JOBS.propagate = False


def log_tracebacks() -> None:
    """Log the errors that Gradio would print with a whole traceback, such as one about an unknown choice."""
    replace_tracebacks(_log_error)


def _log_error() -> None:
    LOG.error("A listener failed.", exc_info=True)


def _short(name: str) -> str:
    """A file by its name and folder."""
    return "/".join(Path(name).parts[-2:])


def _plain(text: str) -> str:
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
