"""Run programs without importing torch for each: a new process spends 8 seconds on it, and 13 on the page's modules.

``specdec_command`` calls the command in this process. ``started`` gives a program a process of its own, forked from one
that has imported what programs need and has started no thread.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import runpy
import sys
import tempfile
import warnings
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from subprocess import CompletedProcess
from unittest.mock import patch

import torch
from accelerate import PartialState
from transformers.utils import logging

from specdec.cli import main
from tests.load.served import FORKS


def specdec_command(
    *arguments: str, encoding: str = "utf-8", given: str = "", closed: bool = False
) -> CompletedProcess:
    """The command's output and exit status. Its settings for the whole process are reset afterwards.

    ``encoding`` is that of both outputs, ``given`` the standard input. ``closed``: the output is a pipe that nobody
    reads.
    """
    out, err, code = _stream(encoding), _stream(encoding), 0
    shown = _closed_pipe(encoding) if closed else out
    threads, verbosity = torch.get_num_threads(), logging.get_verbosity()
    with (
        contextlib.redirect_stdout(shown),
        contextlib.redirect_stderr(err),
        patch.object(sys, "stdin", io.StringIO(given)),
        warnings.catch_warnings(),
    ):
        try:
            main(list(map(str, arguments)))
        except SystemExit as end:  # as the interpreter does
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=err)
        finally:
            torch.set_num_threads(threads)
            logging.set_verbosity(verbosity)
            logging.enable_progress_bar()
            PartialState._reset_state()
    with contextlib.suppress(BrokenPipeError):
        shown.flush()
    return CompletedProcess(arguments, code, *(_bytes(stream).decode(encoding) for stream in (out, err)))


def _stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding)


def _bytes(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    return stream.buffer.getvalue()


def _closed_pipe(encoding: str) -> io.TextIOWrapper:
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, "w", encoding=encoding)


def started(
    *arguments: str, cwd: Path, env: dict[str, str], out: Path, err: Path, given: str = ""
) -> ForkServerProcess:
    """Start ``python ARGUMENTS``: a file, ``-m`` and a module, or ``-c`` and a text. Its output goes into two files."""
    process = FORKS.Process(target=_program, args=(arguments, cwd, env, out, err, given))
    process.start()
    return process


def ran(*arguments: str, cwd: Path, env: dict[str, str] | None = None, given: str = "") -> CompletedProcess:
    """Run such a program to its end."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = started(*arguments, cwd=cwd, env=dict(env or os.environ), out=out, err=err, given=given)
        process.join()
        return CompletedProcess(arguments, process.exitcode, out.read_text("utf-8"), err.read_text("utf-8"))


def _program(arguments: tuple[str, ...], cwd: Path, env: dict[str, str], out: Path, err: Path, given: str) -> None:
    """What the forked process does: become the program."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.stdin = io.StringIO(given)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    importlib.reload(importlib.import_module("huggingface_hub.constants"))  # it reads the environment once
    torch.set_num_threads(1)
    how, *rest = arguments
    if how == "-m":
        sys.argv, sys.path[0] = rest, str(cwd)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = list(arguments)
        runpy.run_path(how, run_name="__main__")
