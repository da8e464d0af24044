"""The log of a page: one JSON line for each job."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdec.ui.machine import Place

LOG = logging.getLogger("specdec.jobs")


class Journal:
    """Writes the settings and the end of each job.

    Of a prompt only the length is written, unless ``prompts`` is true. In place of an address there is a code, which
    changes with each start of the program.
    """

    def __init__(self, prompts: bool = False):
        self._prompts, self._key = prompts, secrets.token_bytes(16)

    def wrote(
        self, place: Place, outcome: str, why: Any = None, seconds: float | None = None, counts: Any = None
    ) -> None:
        """Write a line about a job.

        ``outcome`` is done, stopped, left, cancelled, refused, failed or an error's name.
        """
        waited = (place.began or time.monotonic()) - place.joined
        record: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "job": place.job.kind}
        if place.visitor is not None:
            record["visitor"] = self._code(place.visitor.address)
        record |= {"outcome": outcome, "waited_seconds": round(waited, 3)}
        if seconds is not None:
            record["seconds"] = round(seconds, 3)
        settings = dict(place.job.settings)
        if not self._prompts and "prompt" in settings:
            settings["prompt_characters"] = len(str(settings.pop("prompt")))
        record |= {"settings": settings, "counts": counts or {}}
        if why is not None and self._prompts:
            record["why"] = str(why)  # not by default: a sentence may quote a visitor's text
        LOG.info(json.dumps(record, default=str))

    def _code(self, address: str) -> str:
        return hmac.new(self._key, address.encode(), hashlib.sha256).hexdigest()[:8]
