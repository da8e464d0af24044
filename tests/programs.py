"""The command ``specdec`` called in this process: one of its own would first import torch for seconds."""

from __future__ import annotations

import contextlib
import io
import warnings
from subprocess import CompletedProcess

import torch
from accelerate import PartialState
from transformers.utils import logging

from specdec.cli import main


def specdec_command(*arguments: str) -> CompletedProcess:
    """What the command prints and how it ends; what it sets for its whole process is set back."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    threads, verbosity = torch.get_num_threads(), logging.get_verbosity()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        try:
            main(list(map(str, arguments)))
        except SystemExit as end:  # as the interpreter takes it
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                print(end.code, file=err)
        finally:
            torch.set_num_threads(threads)
            logging.set_verbosity(verbosity)
            logging.enable_progress_bar()
            PartialState._reset_state()
    return CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
