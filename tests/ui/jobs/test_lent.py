"""A page whose device is lent for each task, as on ZeroGPU: what it does without a device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specdec.models.loading import plan_pair
from specdec.models.pair_slot import Slot
from specdec.ui.jobs.limits import PUBLIC
from specdec.ui.jobs.recorded import recorded_race
from specdec.ui.page import Page, build


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    slot = Slot(plan_pair(None, None))

    def run(task):
        raise AssertionError("nobody asked for a task")
        yield

    page = build(slot, PUBLIC, run)
    yield page
    page.close()


def test_a_lent_page_shows_a_recording_first_and_needs_no_device(page: Page) -> None:
    listeners = [fn.fn for fn in page.demo.fns.values()]
    assert recorded_race in listeners
    assert page.jobs.health()["running"] is None and page.jobs.lent


def test_the_pair_of_a_lent_page_is_fixed(page: Page) -> None:
    """A lent page's pair is fixed, because the processes that have the device know no other pair."""
    assert not [
        block for block in page.demo.blocks.values() if getattr(block, "elem_id", "") in ("sd-load", "sd-check")
    ]
