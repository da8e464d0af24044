"""Tests the tests: ``python -m benchmarks.mutants specdec/engine/verify.py -- tests/engine/test_verify.py``.

Changes one comparison, sum, product, constant, condition or ``not`` of a module at a time, in a copy of the repository,
and runs the tests that are named behind ``--`` on each changed copy; a failing test has caught the change. Prints a
line for each change that no test caught, then how many were caught. A change that means the same as before cannot be
caught; look at what survives.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OTHER = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.FloorDiv: ast.Mult,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """The node changed, in each way there is."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[place] = OTHER[type(operator)]()
            yield changed
    elif isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in OTHER:
        changed = copy.deepcopy(node)
        changed.op = OTHER[type(node.op)]()
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield ast.copy_location(ast.Constant(not node.value), node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield ast.copy_location(ast.Constant(node.value + 1), node)
    elif isinstance(node, ast.IfExp):
        changed = copy.deepcopy(node)
        changed.body, changed.orelse = changed.orelse, changed.body
        yield changed


def mutants(source: str) -> Iterator[tuple[int, str, str]]:
    """The line, what stands there changed, and the whole source changed, for each change; annotations stay."""
    tree = ast.parse(source)
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inner in ast.walk(part)
    }
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            for place, node in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(node, ast.AST) or id(node) in annotations:
                    continue
                for changed in changes(node):
                    _put(parent, name, place, changed)
                    yield node.lineno, ast.unparse(changed), ast.unparse(tree)
                    _put(parent, name, place, node)


def _put(parent: ast.AST, name: str, place: int, node: ast.AST) -> None:
    held = getattr(parent, name)
    if isinstance(held, list):
        held[place] = node
    else:
        setattr(parent, name, node)


def caught(folder: Path, tests: list[str]) -> bool:
    """Whether a test fails in this copy; one that runs for ten minutes counts as failing."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=600)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+", help="tests to run, and options of pytest")
    parser.add_argument("--every", type=int, default=1, help="4 tries a quarter of the changes")
    arguments = parser.parse_args()
    source = (ROOT / arguments.module).read_text(encoding="utf-8")
    found = list(mutants(source))[:: arguments.every]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "copy")
        left_out = shutil.ignore_patterns(".git", "node_modules", ".venv", "build", ".*_cache")
        shutil.copytree(ROOT, folder, ignore=left_out)
        if caught(folder, arguments.tests):
            sys.exit("The tests fail before anything is changed.")
        survived = 0
        for line, text, changed in found:
            (folder / arguments.module).write_text(changed, encoding="utf-8")
            if not caught(folder, arguments.tests):
                survived += 1
                print(f"{arguments.module}:{line}: not caught: {text}", flush=True)
    print(f"{len(found) - survived} of {len(found)} changes were caught.")


if __name__ == "__main__":
    main()
