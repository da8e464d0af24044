"""Draws which folder of ``specdec`` imports which: ``python scripts/house.py`` writes it into docs/architecture.md.

The imports are read from the source, including those inside functions and under ``TYPE_CHECKING``. Folders have an
order, and a module may import only from its own folder and from lower ones. The rooms of ``ui`` have an order too, and
no modules import each other in a circle. An import that breaks this ends the program with a message.
``tests/test_imports.py`` checks the same rules, and that the drawing is up to date.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- house: written by scripts/house.py -->", "<!-- /house -->"
BASE = "events, facts, errors, text, closed_forms, entry_points, private, version"
# From high to low. "specdec" stands for the public names in specdec/__init__.py, which load on first use.
ORDER = (
    "app.py",
    "cli",
    "ui",
    "specdec",
    "report",
    "servers",
    "measure",
    "lanes",
    "engine",
    "models",
    "drafters",
    "forward",
    "runtime",
    BASE,
)

# The rooms of ``ui`` from high to low: its folders and the files beside them.
ROOMS = (
    "server",
    "page",
    "api",
    "tabs",
    "charts",
    "files",
    "jobs",
    "fields",
    "html",
    "assets",
    "static_page",
    "script_tables",
    "bundle",
    "visitor",
    "web_private",
)


def modules() -> dict[str, Path]:
    """Every module of the package and ``app.py``, by its full name."""
    found = {"app": ROOT / "app.py"}
    for path in sorted((ROOT / "specdec").rglob("*.py")):
        found[".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")] = path
    return found


def folder_of(module: str) -> str:
    """The name in ``ORDER`` of a module's folder."""
    if module == "app":
        return "app.py"
    _, *inner = module.split(".")
    if not inner:
        return "specdec"
    if inner[0] == "__main__":
        return "cli"
    return BASE if inner[0] in BASE.split(", ") else inner[0]


def imports_of(path: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """The line and the full name of each import in a file; of ``from a import b`` also ``a.b`` where it is a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise SystemExit(f"{path.relative_to(ROOT)}:{node.lineno}: relative import; write the full name")
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            inner = [name for name in parts if name in known]
            yield from ((node.lineno, name) for name in inner)
            if node.module and len(inner) < len(parts):
                yield node.lineno, node.module


def arrows() -> dict[tuple[str, str], list[str]]:
    """The imports between two folders: ``(importing, imported)`` with their places in the code."""
    known, found = modules(), defaultdict(list)
    for module, path in known.items():
        # The public names list lower modules. That is no dependency of their own folder's modules.
        for line, name in imports_of(path, known):
            if name == "specdec" or name.startswith("specdec."):
                here, there = folder_of(module), folder_of(name)
                if here != there:
                    found[here, there].append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return dict(found)


def upward(found: dict[tuple[str, str], list[str]]) -> list[str]:
    """The places where a module imports from a higher folder, or from one that is not in ``ORDER``."""
    place = {folder: index for index, folder in enumerate(ORDER)}
    return [
        where
        for (here, there), places in found.items()
        if here not in place or there not in place or place[here] > place[there]
        for where in places
    ]


def circle() -> list[str]:
    """Modules that import each other in a circle, the first one again at the end; empty if there is no circle.

    Imports inside functions and under ``TYPE_CHECKING`` count too.
    """
    known = modules()
    graph = {module: {name for _, name in imports_of(path, known) if name in known} for module, path in known.items()}
    del graph["specdec"]  # the public names, which load on first use
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def upward_in_the_page() -> list[str]:
    """The places where a module of ``ui`` imports from a higher room."""
    known, found = modules(), []
    for module, path in known.items():
        for line, name in imports_of(path, known):
            rooms = [one.split(".")[2] for one in (module, name) if one.startswith("specdec.ui.")]
            if len(rooms) == 2 and ROOMS.index(rooms[0]) > ROOMS.index(rooms[1]):
                found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return found


def drawing(found: dict[tuple[str, str], list[str]]) -> str:
    """The graph in Mermaid without arrows that follow from others, and a table with all arrows."""
    below: dict[str, set[str]] = {folder: set() for folder in ORDER}
    for here, there in found:
        if ORDER.index(here) < ORDER.index(there):  # other arrows ended the program before
            below[here].add(there)

    def reaches(start: str, goal: str) -> bool:
        return any(step == goal or reaches(step, goal) for step in below[start])

    nodes = {folder: f"n{index}" for index, folder in enumerate(ORDER)}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {nodes[folder]}["{folder}"]' for folder in ORDER]
    for here in ORDER:
        for there in sorted(below[here], key=ORDER.index):
            if not any(reaches(step, there) for step in below[here] - {there}):
                lines.append(f"    {nodes[here]} --> {nodes[there]}")
    lines += ["```", "", "| Folder | Imports from |", "|---|---|"]
    for here in ORDER:
        names = ", ".join(f"`{there}`" for there in sorted(below[here], key=ORDER.index))
        lines.append(f"| `{here}` | {names or 'nothing'} |")
    return "\n".join(lines)


def with_drawing(document: str, drawn: str) -> str:
    """The document with the block between the two marks replaced."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{DOCUMENT.name} lacks the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{drawn}\n{END}{after}"


def main() -> None:
    found = arrows()
    if wrong := upward(found) + upward_in_the_page():
        sys.exit("These imports go up:\n" + "\n".join(wrong))
    if around := circle():
        sys.exit("These modules import each other: " + " -> ".join(around))
    drawn = drawing(found)
    DOCUMENT.write_text(with_drawing(DOCUMENT.read_text(encoding="utf-8"), drawn), encoding="utf-8")
    print(drawn)


if __name__ == "__main__":
    main()
