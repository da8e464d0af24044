"""Whether a grammar is read in time. Some short schemas take minutes, and what reads them cannot be interrupted.

So a page has each new grammar read in a process of its own first, which is ended after ``SECONDS``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache

from specdec.errors import BadSetting
from specdec.events import GRAMMAR_KINDS, JSON_STYLE, Grammar
from specdec.runtime.guidance import LIMITS

SECONDS = 3.0  # with the start of the process, up to one second
_READ = """
import json, sys
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
kind, text, style, limits = json.load(sys.stdin)
defaults = {"defaults": style} if kind == "json-schema" else {}
spelled = getattr(LLMatcher, "grammar_from_" + kind.replace("-", "_"))(text, **defaults)
LLMatcher(LLTokenizer("byte"), spelled, log_level=0, limits=LLParserLimits(**limits)).compute_bitmask()
"""


@lru_cache(maxsize=64)
def require_read_in_time(grammar: Grammar) -> None:
    """Raise ``InvalidInput`` if the grammar takes too long to read, or ends what reads it.

    What else is wrong with it is told elsewhere.
    """
    if grammar.kind not in GRAMMAR_KINDS:
        return
    asked = json.dumps([grammar.kind, grammar.text, JSON_STYLE, LIMITS])
    try:
        reader = subprocess.run(
            [sys.executable, "-I", "-c", _READ],
            input=asked.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadSetting(f"grammar takes more than {SECONDS:.0f} s to read; use a simpler one. Nothing ran.") from None
    if reader.returncode < 0:  # this process would end too
        raise BadSetting("grammar ends the program that reads it; use a simpler one. Nothing ran.")
