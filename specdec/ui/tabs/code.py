"""Makes the code to take home for the page."""

from __future__ import annotations

import json

from specdec.drafters.registry import method_of
from specdec.errors import InvalidInput, SpecdecError
from specdec.report.code_export import take_home


def expression_of(kind: str, text: str) -> str:
    """The Python expression that builds a way to draft, made from its text form.

    A recording may come from anywhere, and an expression in it could be any program. Raises ``InvalidInput`` for an
    unknown way.
    """
    method = method_of(text, others=False)
    if method is None or method.kind != kind:
        raise InvalidInput("Its draft method is not part of this package, so no code is written for it.")
    return str(method.describe()["python"])


def code_answer(record: str) -> str:
    """The blocks of code for each tool, or why there are none, for the scripts."""
    try:
        return json.dumps({"codes": take_home(record, expression_of)})
    except SpecdecError as error:
        return json.dumps({"problem": str(error)})
