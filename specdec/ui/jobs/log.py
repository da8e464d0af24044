"""The log of a page: one JSON line for each job."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.ui.jobs.context import QueuedJob

VALUE = 80  # characters of a setting's name and of its value
VALUES = 30  # of a job, and of a value that holds others
LINE = 5000  # characters of the settings and counts of a job in JSON
WHY = 500  # characters of the reason of a failure

LOG = logging.getLogger("specdec.jobs")


class JobLog:
    """Writes the settings and the end of each job.

    Of a grammar only the kind is written, and of a prompt only the length, unless ``prompts`` is true; then the whole
    prompt is. Everything else that a visitor may have chosen is cut. In place of an address there is a code, which
    changes with each start of the program.
    """

    def __init__(self, prompts: bool = False):
        self._prompts, self._key = prompts, secrets.token_bytes(16)

    def wrote(
        self, place: QueuedJob, outcome: str, why: Any = None, seconds: float | None = None, counts: Any = None
    ) -> None:
        """Write a line about a job.

        ``outcome`` is done, stopped, left, cancelled, refused or the name of an error.
        """
        waited = (place.began or time.monotonic()) - place.joined
        record: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "job": place.job.kind}
        if place.visitor is not None:
            record["visitor"] = self._code(place.visitor.address)
        record |= {"outcome": outcome, "waited_seconds": round(waited, 3)}
        if seconds is not None:
            record["seconds"] = round(seconds, 3)
        settings = dict(place.job.settings)
        prompt = settings.pop("prompt", None)
        if grammar := settings.pop("grammar", None):  # its text may say what the prompt is about
            settings["grammar"] = str(grammar).partition(":")[0]
        for name, values in (("settings", settings), ("counts", counts or {})):
            record[name] = _short(values)
            if (length := len(json.dumps(record[name]))) > LINE:
                record[name] = {"left_out": f"{length} characters"}
        if prompt is not None and self._prompts:
            record["settings"]["prompt"] = str(prompt)
        elif prompt is not None:
            record["settings"]["prompt_characters"] = len(str(prompt))
        if why is not None and self._prompts:
            record["why"] = cut(str(why), WHY)  # not by default: a sentence may quote a visitor's text
        LOG.info(json.dumps(record))

    def _code(self, address: str) -> str:
        return hmac.new(self._key, address.encode(), hashlib.sha256).hexdigest()[:8]


def cut(text: str, most: int) -> str:
    """A text for the log: its first ``most`` characters, and how many were left out."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} characters left out)"


def _short(value: Any, depth: int = 3) -> Any:
    """A value for the log, as JSON takes it: names and texts cut, and the number of what was left out of a collection.

    Values deeper than ``depth`` are written as a text.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= 64 else f"a number of {value.bit_length()} bits"
    if depth and isinstance(value, Mapping):
        found = {cut(str(name), VALUE): _short(one, depth - 1) for name, one in islice(value.items(), VALUES)}
        return found | ({"left_out": len(value) - VALUES} if len(value) > VALUES else {})
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        rest = [f"{len(value) - VALUES} values left out"] if len(value) > VALUES else []
        return [_short(one, depth - 1) for one in islice(value, VALUES)] + rest
    return cut(value if isinstance(value, str) else repr(value), VALUE)
