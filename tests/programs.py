"""Call the command ``specdec`` in this process, because a new process spends seconds on importing torch."""

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
    """The command's output and exit status. Its settings for the whole process are reset afterwards."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    threads, verbosity = torch.get_num_threads(), logging.get_verbosity()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
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
    return CompletedProcess(arguments, code, out.getvalue(), err.getvalue())
