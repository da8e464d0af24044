"""What the README shows runs as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_python_snippets_run() -> None:
    """Every Python block, in order, in one namespace; their assertions hold."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert blocks
    namespace: dict = {}
    for block in blocks:
        exec(block, namespace)


def specdec_command(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "specdec", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_terminal_prints_text_and_figures() -> None:
    """Piped, the terminal face is plain text: the continuation, the legend, the verdict, the comparison."""
    done = specdec_command("Once upon a time", "--gamma", "5", "--tokens", "24")
    assert done.returncode == 0, done.stderr
    assert "Once upon a time" in done.stdout and "\x1b" not in done.stdout
    assert "tok/s" in done.stdout and "Identical text: 24 of 24 tokens." in done.stdout


def test_terminal_prints_json_lines() -> None:
    """--json prints one event a line and nothing else."""
    done = specdec_command("Once upon a time", "--tokens", "8", "--json")
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events[0] == "started" and events[-1] == "finished" and events.count("started") == 2


def test_terminal_says_what_is_wrong() -> None:
    """Bad input is one sentence on the error stream, and a failing exit status."""
    done = specdec_command("Once", "--gamma", "40")
    assert done.returncode == 1 and "gamma 40 is outside 0-16" in done.stderr and not done.stdout
