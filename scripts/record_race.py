"""Records the race that ships with the package on this machine: ``python -m scripts.record_race``.

It is the race at start-up: the embedded pair, the default lanes, 64 tokens after the page's first example, three runs.
The shown run is kept. Record it on an idle machine, and again after a change of the pair, the passes, the
name of a definition, a verdict's sentences or the recording's lines.
"""

from __future__ import annotations

import json
import threading

from specdec.cli.arguments import leave_a_core
from specdec.events import SamplingParams
from specdec.measure.prompts import EXAMPLES, read_prompts
from specdec.models.loading import plan_pair
from specdec.models.pair_slot import Slot
from specdec.report.recording import line, shown_alone
from specdec.ui.jobs.context import JobContext
from specdec.ui.jobs.limits import Limits
from specdec.ui.jobs.race_settings import RaceSettings
from specdec.ui.jobs.race_stream import stream
from specdec.ui.jobs.recorded import RECORDED
from specdec.ui.jobs.startup import RUNS, TOKENS


def main() -> None:
    leave_a_core()
    ask = RaceSettings(read_prompts(EXAMPLES)[0].prompt, params=SamplingParams(max_new_tokens=TOKENS), runs=RUNS)
    slot = Slot(plan_pair())
    turn = JobContext(slot, lambda task: task.run(slot.pair), threading.Event())
    *_, last = stream(turn, ask, limits=Limits(), origin="recording")
    if last.verdict is None or last.verdict.doubts:
        raise SystemExit(f"Not written: {last.verdict or last.problem}")
    begin, *lines = shown_alone(last.text).splitlines(keepends=True)
    RECORDED.write_text("".join([line(json.loads(begin) | {"number": 0}), *lines]), encoding="utf-8")
    print(last.verdict.sentence)


if __name__ == "__main__":
    main()
