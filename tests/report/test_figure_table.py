"""One table as a terminal, a Markdown file and a narrow page show it."""

from __future__ import annotations

from specdec.report.benchmark import terminal_table
from specdec.report.figure_table import FigureTable, csv_table, markdown_table

TABLE = FigureTable(
    "Times", ["Lane", "γ", "ms", "of"], [["A|b\nc", "1", "2", "x"], ["d", "", "4", "y"]], range(1, 3), 1
)


def test_figures_are_set_to_the_right() -> None:
    assert [column.justify for column in terminal_table(TABLE).columns] == ["left", "right", "right", "left"]
    assert terminal_table(TABLE).title == "Times"
    assert (
        markdown_table(TABLE)
        == "| Lane | γ | ms | of |\n| --- | ---: | ---: | --- |\n| A\\|b c | 1 | 2 | x |\n| d |  | 4 | y |\n"
    )


def test_a_part_keeps_its_mark_and_its_figures() -> None:
    part = TABLE.part([1], slice(1, None))
    assert (part.columns, part.rows, part.marked) == (["γ", "ms", "of"], [["", "4", "y"]], 0)
    assert list(part.figures) == [0, 1] and part.caption == TABLE.caption
    assert TABLE.part([0], slice(2)).marked is None and list(TABLE.part([0], slice(2)).figures) == [1, 2]


def test_values_with_line_ends_are_quoted_in_csv() -> None:
    assert csv_table([{"a": "x\ry", "b": 1}]) == 'a,b\n"x\ry",1\n'
