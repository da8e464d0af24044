"""Writes the documents that are made from the code: ``python -m scripts.documents``.

docs/api.md has every public name with its docstring. docs/metrics.md has every figure of
``specdec.report.definitions``. ``tests/test_documents.py`` fails if one of them is out of date.
"""

from __future__ import annotations

import argparse
import inspect
import re
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints

from typing_extensions import is_typeddict

import specdec
from specdec.report.definitions import DEFINITIONS
from specdec.report.other_names import other_names

DOCS = Path(__file__).parents[1] / "docs"

# Every name of ``specdec.__all__``, in the order of a first reading.
SECTIONS = {
    "Decoding": ("speculative", "generate", "assisted", "driven", "collect", "race", "verdict"),
    "Settings": ("SamplingParams", "Grammar", "AutoGamma", "ConfidenceStop"),
    "Pairs": ("load_pair", "Pair"),
    "Ways to draft": (
        "PromptLookup",
        "Suffix",
        "EarlyExit",
        "Eagle3",
        "Mtp",
        "DFlash",
        "DSpark",
        "Gemma4Assistant",
        "Combined",
        "Recycling",
    ),
    "Events": ("Event", "Started", "Round", "DraftToken", "Decision", "Finished"),
    "Facts": ("PairFacts", "ModelFacts", "DraftFacts", "EngineFacts", "MachineFacts"),
    "Results": ("Result", "Metrics", "Verdict", "Note"),
    "Errors": (
        "SpecdecError",
        "InvalidInput",
        "GrammarStuck",
        "IncompatiblePair",
        "LoadFailed",
        "LibraryChanged",
        "NotNumbers",
        "OutOfMemory",
        "DeviceLost",
    ),
}


def api() -> str:
    """Every public name with its signature and its docstring."""
    parts = [
        "# Public names",
        "Made from the docstrings by `python -m scripts.documents`. All of these are attributes of `specdec`. Shapes\n"
        "are in parentheses, times in seconds; p is the target's distribution and q the draft's.\n"
        "[architecture.md](architecture.md#a-policy) describes a `Policy`,\n"
        "[`drafters/base.py`](../specdec/drafters/base.py) a `DraftMethod`, and\n"
        "[`engine/acceptance.py`](../specdec/engine/acceptance.py) an `Acceptance`.",
    ]
    for section, names in SECTIONS.items():
        parts.append(f"## {section}")
        parts += [_entry(name, getattr(specdec, name)) for name in names]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, value: Any) -> str:
    lines = [f"### `{name}`"]
    if not callable(value):  # a union of classes
        parts = " | ".join(part.__name__ for part in value.__args__)
        return f"{lines[0]}\n\n```python\n{name} = {parts}\n```"
    if is_typeddict(value):
        return "\n\n".join([*lines, f"```python\n{_fields(value)}\n```", _markdown(inspect.getdoc(value) or "")])
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        lines.append(f"```python\n{_signature(name, value)}\n```")
    return "\n\n".join([*lines, _markdown(inspect.getdoc(value) or ""), *_properties(value)])


def _fields(value: Any) -> str:
    """The keys of a dict with their types; a question mark where a key may be missing."""
    marked = get_type_hints(value, include_extras=True)
    return "\n".join(
        f"{name}{'?' * (get_origin(marked[name]) is NotRequired)}: {_kind(kind)}"
        for name, kind in get_type_hints(value).items()
    )


def _kind(kind: Any) -> str:
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(_kind, get_args(kind)))
    if kind is NoneType:
        return "None"
    return (
        kind.__name__
        if isinstance(kind, type) and not get_args(kind)
        else str(kind).replace("typing.", "").replace("'", '"')
    )


def _properties(value: Any) -> list[str]:
    """The properties of a class that have docstrings of their own, with the first lines of these."""
    parts = {name: part for name, part in vars(value).items() if isinstance(part, property | cached_property)}
    found = {name: part.__doc__ for name, part in parts.items() if part.__doc__}
    rows = [f"- `{name}`: {text.splitlines()[0]}" for name, text in found.items() if name[0] != "_"]
    return ["Properties:\n\n" + _markdown("\n".join(rows))] if rows else []


def _signature(name: str, value: Any) -> str:
    """The signature in one line, or with a line for each argument if that is too long."""
    signature = inspect.signature(value)
    arguments, named = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not named:
            arguments.append("*")
            named = True
        arguments.append(_argument(parameter))
    returned = signature.return_annotation
    returns = "" if returned in (None, "None", signature.empty) else f" -> {returned}"
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){returns}"


def _argument(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is parameter.empty:
        value = ""
    elif default == specdec.SamplingParams():
        value = " = SamplingParams()"
    else:
        value = f" = {default!r}"
    kind = re.sub(r"Annotated\[(.+), Field\(.*?\)\]", r"\1", str(parameter.annotation))  # the bounds of a recording
    return f"{parameter.name}: {kind}{value}"


def _markdown(docstring: str) -> str:
    """A docstring as Markdown: single backticks for code. A paragraph of aligned fields stays as it is."""
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        aligned = any("   " in line.strip() for line in paragraph.splitlines())
        paragraphs.append(f"```text\n{paragraph}\n```" if aligned else paragraph.replace("``", "`"))
    return "\n\n".join(paragraphs)


def metrics() -> str:
    """Every figure that is shown, in a table."""
    lines = [
        "# What the figures mean",
        "",
        "Every figure of the page, the terminal and the exports has one definition. This table is made by `python -m",
        "scripts.documents` from `specdec/report/definitions.py`, which the page's hints come from too.",
        "",
        "A cost in *tokens of plain generate* is the number of tokens that plain `generate` writes in that time. A",
        "*target pass over one token* is one of our own loop without a draft (\u03b3 0). Both are measured in the",
        "same runs as the lane that is compared with them.",
        "",
        "**Of several runs** one is shown, that with the median speed-up; of an even number, the slower of the two",
        "in the middle. The lowest and the highest of all runs stand in brackets. No figure is a median of its own, as",
        "the ratio of two medians is not the median of the ratios. So figures can be checked against each other:",
        "",
        "- Of a race, and of each load on servers, all lanes and servers show the same run. With several servers that",
        "  speculate it is the median run of the one that is fastest at this load.",
        "- Each row of a benchmark, of a sweep and of a comparison of files shows a run of its own, and what it is",
        "  compared with (plain `generate`, the plain server, our loop at \u03b3 0) is that of the same run. The plain",
        "  lane has no speed-up, so its own row has the lowest and the highest tokens/s alone; files for programs have",
        "  in each other row the plain lane's tokens/s in the same run (`plain_tokens_per_second`).",
        "- Both shares below the large figure of a benchmark or a sweep are of the run of that figure, which is their",
        "  product. The row of our loop at \u03b3 0 may show another run; then a note says so.",
        "- Computed gains of a pair under load are each that of the median run.",
        "- Counts over all runs (guesses by place, tokens in a pass) say so.",
        "",
        "| Figure | Unit | Meaning | What it is not |",
        "|---|---|---|---|",
    ]
    lines += [f"| {d.name} | {d.unit} | {d.meaning} | {d.is_not} |" for d in DEFINITIONS.values()]
    lines += ["", "## What other tools call them", "", other_names()]
    return "\n".join(lines)


def texts() -> dict[str, str]:
    """The documents by their name in docs/."""
    return {"api.md": api(), "metrics.md": metrics()}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, text in texts().items():
        (DOCS / name).write_text(text, encoding="utf-8")
        print(f"docs/{name}: {len(text.splitlines())} lines")


if __name__ == "__main__":
    main()
