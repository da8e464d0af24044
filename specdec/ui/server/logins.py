"""The login of a page with a password: which requests have one, and how often an address may fail."""

from __future__ import annotations

import logging
import math
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Message, Send

from specdec.ui.server.rate_limits import Buckets, Rate
from specdec.ui.server.request_checks import Refusal
from specdec.ui.web_private import is_logged_in

BODY = 4000  # bytes of a name and a password
FAILURES = Rate(10, 1 / 30)  # of an address
ADVICE = "After 10 failed logins an address has to wait half a minute for each further one."  # on Gradio's login page

log = logging.getLogger(__name__)


class Logins:
    """The logins of ``app``, a Gradio app with a password. Gradio keeps a token of each in a cookie.

    Gradio itself asks for a token at some of its routes only, and takes any number of wrong passwords.
    """

    def __init__(self, app: Any):
        self._app, self._failures = app, Buckets(FAILURES)

    def has(self, connection: HTTPConnection) -> bool:
        """Whether a request carries the token of a login."""
        return is_logged_in(self._app, connection.cookies)

    def watched(self, address: str, send: Send) -> Send:
        """Pass on Gradio's answer to a login and note a failure. Raises ``Refusal`` after too many of them."""
        if wait := self._failures.take(address):  # it counts as failed until it has succeeded
            seconds = math.ceil(wait)
            sentence = f"Too many logins from your address failed. Try again in {seconds} seconds."
            raise Refusal(429, sentence, **{"Retry-After": str(seconds)})

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] == 200:
                    self._failures.put_back(address)
                else:
                    log.warning("A login failed.")  # neither the name nor the password, which may be one of elsewhere
            await send(message)

        return note
