"""Tests the tests: ``python -m benchmarks.mutants specdec/engine/verify.py -- tests/engine/test_verify.py``.

Changes one comparison, sum, product, constant, condition or ``not`` of a module at a time, and runs the tests that are
named after ``--`` with each change. A failing test has caught the change. Prints a line for each change that no test
caught, then how many were caught. A change without an effect cannot be caught, so look at the survivors.
``--before FOLDER`` tries each survivor with the tests of an earlier checkout too: what those caught is lost now.

Each change runs in a forked process, so torch is loaded once. It replaces the module at its import, and no file is
written. Programs that a test starts do not see it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.util
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
import transformers  # noqa: F401  what is imported before the fork is not imported again

ROOT = Path(__file__).parents[1]
LIMIT = 600  # seconds; a change that makes the tests run for longer counts as caught
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


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """The line with what stands there changed, and the whole source changed, for each change; annotations stay."""
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
                    yield f"{node.lineno}: {ast.unparse(changed)}", ast.unparse(tree)
                    _put(parent, name, place, node)


def _put(parent: ast.AST, name: str, place: int, node: ast.AST) -> None:
    held = getattr(parent, name)
    if isinstance(held, list):
        held[place] = node
    else:
        setattr(parent, name, node)


class Changed(MetaPathFinder, Loader):
    """Imports one module from another source."""

    def __init__(self, path: Path, source: str):
        self.names = {".".join(path.with_suffix("").parts)}
        if path.parts[0] == "scripts":  # pytest's pythonpath holds that folder, so tests import its modules by stem
            self.names.add(path.stem)
        self.path, self.source = str(ROOT / path), source

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self, origin=self.path) if name in self.names else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self.path
        exec(compile(self.source, self.path, "exec"), vars(module))


class Task(NamedTuple):
    """A source for the module at ``path``, and the tests to run with it in the checkout ``folder``."""

    path: Path
    source: str
    tests: list[str]
    folder: Path = ROOT


def caught(task: Task) -> bool:
    """Whether a test fails with this source in the module's place; runs in a process of its own."""

    def late(*_: object) -> None:
        os._exit(1)

    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    os.chdir(task.folder)
    sys.path[:0] = [str(task.folder), str(task.folder / "tests")]
    sys.meta_path.insert(0, Changed(task.path, task.source))
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        failed = pytest.main(["-n", "0", "-x", "-q", "-p", "no:cacheprovider", *task.tests])
    os._exit(int(failed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+", help="tests to run, and options of pytest")
    parser.add_argument("--every", type=int, default=1, help="4 tries a quarter of the changes")
    parser.add_argument("--before", type=Path, help="an earlier checkout, whose tests of the same names are compared")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    torch.set_num_threads(1)
    source = arguments.module.read_text(encoding="utf-8")
    for folder in filter(None, (ROOT, arguments.before)):
        if caught(Task(arguments.module, source, arguments.tests, folder.absolute())):
            sys.exit(f"The tests in {folder} fail before anything is changed.")
    found = list(mutants(source))[:: arguments.every]
    tasks = [Task(arguments.module, changed, arguments.tests) for _, changed in found]
    with multiprocessing.get_context("fork").Pool() as pool:
        survivors = []
        for (line, _), task, was_caught in zip(found, tasks, pool.imap(caught, tasks), strict=True):
            if not was_caught:
                survivors.append((line, task))
                print(f"{arguments.module}:{line}: not caught", flush=True)
        print(f"{len(found) - len(survivors)} of {len(found)} changes were caught.")
        if arguments.before:
            earlier = [task._replace(folder=arguments.before.absolute()) for _, task in survivors]
            lost = [line for (line, _), was in zip(survivors, pool.imap(caught, earlier), strict=True) if was]
            print(*(f"{arguments.module}:{line}: was caught before" for line in lost), sep="\n")
            print(f"{len(lost)} of the others were caught before.")


if __name__ == "__main__":
    main()
