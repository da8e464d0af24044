"""Run pasted lines through a real shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def commands(lines: str, folder: Path) -> list[list[str]]:
    """The arguments of each command as bash passes them, in an empty folder without any of the commands."""
    noted = """command_not_found_handle() { printf '%s\\0' "$#" "$@"; }\n"""
    ran = subprocess.run(
        [shutil.which("bash"), "-c", noted + lines],
        env={"PATH": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(folder.iterdir()) == []
    fields, found = iter(ran.stdout.split("\0")[:-1]), []
    for count in fields:
        found.append([next(fields) for _ in range(int(count))])
    return found


def options(command: list[str]) -> dict[str, str]:
    return dict(zip(command, command[1:], strict=False))
