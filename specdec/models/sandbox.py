"""Tries chat templates and tokenizers of strangers in another process, which can be ended.

A thread cannot be used. It cannot be ended within one operation of C code (a power of large numbers in a template, a
regular expression of a tokenizer). Such an operation may block all other threads, and a thread's memory cannot be
limited. A fork of this process would copy its page tables at each call, which takes long with large models. So one
small process does all of it. It starts when it is first needed. It has no torch, no network and no token of the owner,
and it renders with transformers' own code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

SECONDS = 5.0  # to render a chat
STARTING = 60.0  # seconds for the process to start on a busy machine
MEMORY = 3 * 2**30  # bytes of its address space
LONGEST = 2**24  # characters of an answer; no prompt is longer
SAMPLE = "Once upon a time 123 naïve 日本語 🙂\n\n\tdef f(x): return x  # " + "a" * 200 + " " * 50 + "!" * 50


class NoAnswer(Exception):
    """The work failed. The message gives the reason, as the end of a sentence."""


class TooMuch(NoAnswer):
    """The process was ended, because the work took too long or too much memory."""


class _Process:
    """The process. It takes one request at a time, and is started again if it had to be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = _started()
                self._exchange({"kind": "start"}, STARTING)
            return self._exchange(request, seconds)

    def end(self) -> None:
        """End the process at once, even during a request."""
        if (process := self._process) is not None:
            process.kill()
            process.wait()

    def _exchange(self, request: dict[str, Any], seconds: float) -> Any:
        process, late = self._process, threading.Event()
        assert process is not None and process.stdin is not None and process.stdout is not None

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline(LONGEST)
        except OSError:  # it ended before it read the request
            line = ""
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            process.kill()
            process.communicate()  # closes the pipes
            raise TooMuch(f"it takes more than {seconds:.0f} seconds" if late.is_set() else "it takes too much memory")
        good, found = json.loads(line)
        if not good:
            raise NoAnswer(found)
        return found


def _started() -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if "TOKEN" not in name}
    return subprocess.Popen(
        [sys.executable, "-P", __file__],  # -P: do not import modules of this folder by accident
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=kept | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1"},
        encoding="utf-8",
    )


_process = _Process()


def _forget_process() -> None:
    global _process
    _process = _Process()  # after a fork, the parent still uses the old one


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_process)


def render(tokenizer: Any, messages: list[dict[str, Any]]) -> str:
    """Turn chat messages into text by ``tokenizer``'s own template, ready for an answer.

    Raises ``NoAnswer`` where the template refuses them, ``TooMuch`` beyond ``SECONDS`` or ``MEMORY``; TypeError and
    ValueError for messages that are not JSON, and for a tokenizer that has several templates and no default.
    """
    template, names = tokenizer.get_chat_template(), dict(tokenizer.special_tokens_map)
    request = {"kind": "render", "template": template, "messages": messages, "names": names}
    return _process.ask(request, SECONDS)


def try_tokenizer(file: str, seconds: float) -> None:
    """Read a tokenizer.json and encode a short text with it.

    Raises ``NoAnswer`` where that fails, and ``TooMuch`` beyond ``seconds`` or ``MEMORY``.
    """
    _process.ask({"kind": "tokenizer", "file": file}, seconds)


def end() -> None:
    """End the process if it was started. Otherwise it would end a second or two after this program."""
    _process.end()


# The code below runs in the other process.


def _rendered(request: dict[str, Any]) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    messages = [{key: value for key, value in m.items() if value is not None} for m in request["messages"]]
    (text,), _ = render_jinja_template(
        conversations=[messages], chat_template=request["template"], add_generation_prompt=True, **request["names"]
    )
    return text


def _encoded(request: dict[str, Any]) -> int:
    from tokenizers import Tokenizer

    return len(Tokenizer.from_file(request["file"]).encode(SAMPLE).ids)


def _ready(request: dict[str, Any]) -> None:
    """Load what rendering needs before the first request, then limit the memory."""
    import transformers.utils.chat_template_utils  # noqa: F401

    try:
        import resource
    except ImportError:  # Windows: only the time is limited
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


_WORK: dict[str, Callable[[dict[str, Any]], Any]] = {"start": _ready, "render": _rendered, "tokenizer": _encoded}


def _serve() -> None:
    """Answer each line of JSON with a line of JSON until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = True, _WORK[request["kind"]](request)
        except MemoryError:
            return
        except Exception as error:
            answer = False, next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
