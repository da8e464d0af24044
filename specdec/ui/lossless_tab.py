"""The tab that tests, by sampling, whether speculation leaves the target's distribution alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event
from typing import Any

import gradio as gr

from specdec.errors import InvalidInput
from specdec.measure.losslessness import LEAST, Findings, Progress, self_test
from specdec.models.pair import Pair
from specdec.report.losslessness import COLUMNS, STOPPED, caption, headline, rows, sentence
from specdec.ui import fragments
from specdec.ui.limits import Limits
from specdec.ui.measuring import Buttons
from specdec.ui.work import Work

INTRODUCTION = (
    "Greedy text is compared token for token by every race. When sampling, what must stay the same is the "
    "distribution. So many short continuations are drawn with plain generate and with speculative decoding, and the "
    "two samples are compared. A third sample, with lossy top-k acceptance, shows that the test would have noticed."
)


class LosslessTab:
    """Built inside a ``gr.Tab``."""

    def __init__(self, work: Work, limits: Limits):
        self._work, self._limits = work, limits
        gr.HTML(f'<p class="sd-lede">{INTRODUCTION}</p>', apply_default_css=False)
        self._buttons = Buttons("Test it", "lossless")
        self._verdict = gr.HTML("", elem_id="sd-lossless-verdict", elem_classes="sd-fragment", apply_default_css=False)

    def wire(self, **queue: Any) -> None:
        self._buttons.wire(self._work.job(), self._test, [], {self._verdict: ""}, **queue)

    def _test(self, pair: Pair, stop: Event) -> Iterator[dict[Any, Any]]:
        status, began, shown, most = self._buttons.status, time.monotonic(), 0.0, self._limits.seconds
        for step in self_test(pair, draws=self._limits.draws, seconds=most):
            if isinstance(step, Findings):
                yield {status: "", self._verdict: _told(step)}
            elif stop.is_set():
                yield {status: fragments.status(STOPPED)}
                return
            elif most is not None and time.monotonic() - began > 2 * most:
                raise InvalidInput(
                    f"This pair is too slow for the test: in {2 * most:.0f}\u00a0s {step.done // 3} continuations of "
                    f"each sample were drawn, and it takes {LEAST['draws']}. Test it on your own machine."
                )
            elif time.monotonic() - shown > 0.25:
                shown = time.monotonic()
                yield {status: _progress(step)}


def _progress(step: Progress) -> str:
    return fragments.status(f"{step.done} of {step.total} continuations drawn.", step.done / step.total)


def _told(found: Findings) -> str:
    table = fragments.table(COLUMNS, rows(found), caption(found), minor=("cells", "acceptance"))
    return fragments.verdict(headline(found), None, [sentence(found)]) + table
