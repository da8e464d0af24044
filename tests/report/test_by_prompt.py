"""The table of a measurement with a row for each prompt."""

from __future__ import annotations

from judged import plain, trial

from specdec.lanes.table import BASELINE, LaneConfig
from specdec.measure.plan import Trial
from specdec.report import by_prompt
from specdec.report.by_prompt import prompts_table

THREE, FIVE = LaneConfig("speculative", 3), LaneConfig("speculative", 5)


def measured(prompt: str, config: LaneConfig, seconds: float, run: int = 0) -> Trial:
    return trial(run, config, plain(seconds), prompt, prompt)


def test_a_prompt_has_its_own_figures_and_none_before_all_lanes_ran_it() -> None:
    found = [measured(prompt, BASELINE, 0.02, run) for prompt in ("one", "two", "three") for run in range(2)]
    found += [measured("one", THREE, 0.01), measured("one", THREE, 0.005, 1), measured("two", THREE, 0.02)]
    table = prompts_table(found, servers=True)
    assert table is not None and "the plain server" in table.caption
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == ["one", "two"]
    assert rows["one"]["speed-up"] == "2.0x (2.0\u20134.0)" and rows["two"]["speed-up"] == "1.00x"
    assert float(rows["one"]["tokens/s"]) == 2 * float(rows["one"]["plain tokens/s"])
    assert rows["one"]["same text"] == "2 of 2"
    assert prompts_table(found[:2], servers=True) is None and prompts_table(found[:6], servers=True) is None


def test_several_lanes_have_a_column_each_and_a_long_set_is_cut(monkeypatch) -> None:
    monkeypatch.setattr(by_prompt, "MOST_ROWS", 2)
    found = [
        measured(prompt, config, seconds)
        for prompt in ("one", "two", "three")
        for config, seconds in ((BASELINE, 0.02), (THREE, 0.01), (FIVE, 0.005))
    ]
    table = prompts_table(found, servers=True)
    assert table is not None and table.caption.startswith("A row for each of the first 2 prompts of 3: ")
    assert table.columns == ("Prompt", "\u03b3\u00a03", "\u03b3\u00a05")
    assert table.rows == [["one", "2.0x", "4.0x"], ["two", "2.0x", "4.0x"]]
