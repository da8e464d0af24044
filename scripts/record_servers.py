"""Records the race of two vLLM servers that ships with the package.

``python -m scripts.record_servers plain=URL spec=URL "the machine of the servers"``, with the servers that
``specdec/ui/assets/recordings/README.md`` describes, on an idle machine. A server does not tell its machine, so the
last word does. The shown run is kept; it is not written while something else slows the servers.
"""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

from specdec.events import SamplingParams
from specdec.report.recording import line, shown_alone
from specdec.servers.address import Address, named_address
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.server_race import ServerRace, server_stream
from specdec.ui.static_page import SHIPPED

PROMPT = "Once upon a time, there was a little robot"
TOKENS, RUNS, TRIES = 64, 3, 100


def main(*words: str) -> None:
    plain, spec = (address for word in words[:2] if (address := named_address(word)))
    for _ in range(TRIES):
        text, doubts = recorded(plain, spec)
        if not doubts:
            break
    else:
        raise SystemExit(f"Not written: {', '.join(doubts)} in each of {TRIES} tries.")
    lines = [json.loads(each) for each in shown_alone(text).splitlines()]
    lines[0] |= {"number": 0, "origin": "recording"}
    for each in lines:
        if each["event"] == "started":
            each["machine"]["cpu"] = words[2]
        for fact in each.get("details") or ():
            if fact.get("label") == "Machine":
                fact["value"] = words[2]
    (SHIPPED / "vllm-cpu.jsonl").write_text("".join(map(line, lines)), encoding="utf-8")
    print(lines[-1]["sentence"])


def recorded(plain: Address, spec: Address) -> tuple[str, tuple[str, ...]]:
    """The lines of a race, and what makes its figures doubtful."""
    slot: Any = SimpleNamespace(pair=None, facts=None)  # servers need no pair
    context = JobContext(slot, lambda task: iter(()), threading.Event())  # type: ignore[arg-type, return-value]
    ask = ServerRace((plain, spec), PROMPT, SamplingParams(max_new_tokens=TOKENS, ignore_eos=True), runs=RUNS)
    *_, last = server_stream(context, ask, limits=Limits())
    if last.verdict is None:
        raise SystemExit(f"Not written: {last.problem}")
    return last.text, last.verdict.doubts


if __name__ == "__main__":
    main(*sys.argv[1:])
