"""Checks the current folder before it is uploaded as a Space: ``python -m scripts.space_check [cpu|gpu|zerogpu]``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceHardware, metadata_load
from yaml import YAMLError  # type: ignore[import-untyped]

from specdec.cli.check import SIGNS
from specdec.cli.output import console_of
from specdec.cli.parsers.shared import Parser
from specdec.drafters.base import Finding


@dataclass(frozen=True, slots=True)
class Home:
    """A kind of Space: what it installs and runs."""

    requirements: str
    pythons: tuple[str, ...]  # "3.12" allows every 3.12.x
    torches: tuple[str, ...] = ()  # empty: any


HOMES = {
    "cpu": Home("requirements.txt", ("3.11", "3.12")),
    "gpu": Home("requirements.txt", ("3.11", "3.12")),
    "zerogpu": Home("requirements-zerogpu.txt", ("3.12.12",), ("2.8.0", "2.9.1", "2.10.0", "2.11.0")),
}
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
FIELDS = {
    "title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "python_version", "app_file", "short_description",
    "license", "suggested_hardware", "models", "datasets", "preload_from_hub", "tags", "startup_duration_timeout",
    "pinned", "thumbnail", "header", "fullWidth", "base_path", "disable_embedding", "custom_headers", "hf_oauth",
    "hf_oauth_scopes", "hf_oauth_expiration_minutes", "hf_oauth_authorized_org",
}  # fmt: skip
LISTS = ("models", "datasets", "preload_from_hub", "tags")
DESCRIPTION = 60  # characters
LARGEST = 10_000_000  # bytes
# Starts the app and ends where the page would be served. By then models are loaded and the page is built.
BUILD = """
import runpy, sys
import gradio

def launch(*arguments, **options):
    raise SystemExit

gradio.Blocks.launch = launch
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
raise SystemExit(sys.argv[0] + " ends before it serves a page.")
"""


def main() -> None:
    parser = Parser(prog="python -m scripts.space_check", description=__doc__)
    parser.add_argument("home", nargs="?", choices=HOMES, default="cpu", help="the kind of Space (default: cpu)")
    home = HOMES[parser.parse_args().home]
    console = console_of(highlight=False)
    failed = False
    for finding in findings(Path.cwd(), home):
        console.print(f"{SIGNS[finding.level]} {finding.topic}: {finding.sentence}", soft_wrap=True)
        failed |= finding.level == "bad"
    raise SystemExit(failed)


def findings(
    folder: Path, home: Home, resolve: Callable[[Path, Home, dict[str, Any]], Finding] | None = None
) -> Iterator[Finding]:
    """One finding for each check.

    ``resolve`` is the check that asks a registry of packages; default ``installable``.
    """
    try:
        front = metadata_load(folder / "README.md") or {}
    except (OSError, ValueError, YAMLError) as error:
        yield Finding("bad", "Front matter", f"README.md cannot be read: {' '.join(str(error).split())}")
        return
    problems = list(_front_matter(folder, front)) + list(_versions(folder, home, front))
    for topic, sentence in problems:
        yield Finding("bad", topic, sentence)
    if not problems:
        yield Finding("good", "Front matter", f"{len(front)} fields, all valid for Spaces.")
    yield _sizes(folder)
    if not (folder / home.requirements).is_file():
        return  # reported above
    yield (resolve or installable)(folder, home, front)
    if (folder / str(front.get("app_file"))).is_file():
        yield _builds(folder, front["app_file"])


def _front_matter(folder: Path, front: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Findings on fields that Spaces refuse or ignore."""
    for name in sorted(front.keys() - FIELDS):
        yield name, "Spaces have no such field; correct its name or remove it."
    for name in ("title", "emoji", "license"):
        if not front.get(name):
            yield name, "is missing from the front matter of README.md."
    for name in ("colorFrom", "colorTo"):
        if front.get(name) not in COLOURS:
            yield name, f"{front.get(name)!r} is not a colour of Spaces; use one of {', '.join(COLOURS)}."
    if front.get("sdk") != "gradio":
        yield "sdk", f"is {front.get('sdk')!r}; this page needs gradio."
    if not (folder / (front.get("app_file") or "missing")).is_file():
        yield "app_file", f"{front.get('app_file')!r} is not in this folder; the front matter must name app.py."
    if (length := len(front.get("short_description") or "")) > DESCRIPTION:
        yield "short_description", f"has {length} characters; Spaces take at most {DESCRIPTION}."
    if (hardware := front.get("suggested_hardware")) not in (None, *SpaceHardware):
        yield "suggested_hardware", f"{hardware!r} is not one of {', '.join(kind.value for kind in SpaceHardware)}."
    for name in LISTS:
        if not isinstance(front.get(name, []), list):
            yield name, "must be a list."


def _versions(folder: Path, home: Home, front: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Findings on versions that contradict each other or the kind of Space."""
    python = front.get("python_version")
    if not isinstance(python, str):
        yield "python_version", f'{python!r} is not text; write it in quotes: "{home.pythons[-1]}".'
    elif not any(f"{python}.".startswith(f"{allowed}.") for allowed in home.pythons):
        yield "python_version", f"{python} does not run there; use {' or '.join(home.pythons)}."
    try:
        pins = pins_of(folder / home.requirements)
    except OSError:
        yield home.requirements, "is not in this folder."
        return
    if (version := front.get("sdk_version")) != pins.get("gradio"):
        yield (
            "sdk_version",
            f"is {version!r}, but {home.requirements} pins gradio {pins.get('gradio')}; make them equal.",
        )
    if home.torches and pins.get("torch") not in home.torches:
        yield "torch", f"{home.requirements} pins {pins.get('torch')}; ZeroGPU has {', '.join(home.torches)}."
    if home.torches and "spaces" not in pins:
        yield "spaces", f"{home.requirements} does not pin it, and ZeroGPU lends its GPU through it."


def pins_of(path: Path) -> dict[str, str]:
    """The version of each package that a requirements file pins."""
    return {
        name: version
        for name, equal, version in (line.partition("==") for line in path.read_text(encoding="utf-8").splitlines())
        if equal
    }


def _sizes(folder: Path) -> Finding:
    """Findings on files that are too large for a plain git repository."""
    files = {path.relative_to(folder): path.stat().st_size for path in _files(folder)}
    megabytes = {path: f"{path.as_posix()} ({size / 1e6:.1f} MB)" for path, size in files.items()}
    if large := [megabytes[path] for path, size in files.items() if size > LARGEST]:
        sentence = (
            f"Above {LARGEST / 1e6:.0f} MB: {', '.join(large)}. Save weights in smaller shards, or remove the file."
        )
        return Finding("bad", "Files", sentence)
    largest = max(files, key=files.__getitem__)
    total = f"{len(files)} files, {sum(files.values()) / 1e6:.0f} MB"
    return Finding("good", "Files", f"{total}; the largest is {megabytes[largest]}.")


def _files(folder: Path) -> list[Path]:
    """The files of an upload: in a git checkout all that .gitignore does not name, elsewhere all."""
    command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (folder / ".git").exists():
        listed = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
        found = [folder / os.fsdecode(name) for name in listed]
    else:
        found = list(folder.rglob("*"))
    return [path for path in found if path.is_file()]


def installable(folder: Path, home: Home, front: dict[str, Any]) -> Finding:
    """Whether the pins resolve for the Space's Python, together with what Spaces add."""
    python, gradio = str(front.get("python_version")), f"gradio[oauth,mcp]=={front.get('sdk_version')}"
    with tempfile.TemporaryDirectory() as target:
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--retries", "1"]
        command += ["--python-version", python, "--only-binary", ":all:", "--target", target]
        ended = subprocess.run(
            [*command, "-r", str(folder / home.requirements), gradio], capture_output=True, text=True, check=False
        )
    what = f"{home.requirements} with {gradio} for Python {python}"
    if ended.returncode == 0:
        return Finding("good", "Packages", f"pip resolves {what}.")
    if "connection broken" in ended.stderr:
        return Finding("note", "Packages", f"Not checked: pip cannot reach its registry to resolve {what}.")
    errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR") or "depends on" in line]
    return Finding("bad", "Packages", f"pip cannot resolve {what}: {' '.join(errors) or ended.stderr.strip()}")


def _builds(folder: Path, app: str) -> Finding:
    """Whether the app, started as on a Space with the embedded pair, comes to the point of serving its page."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPECDEC_")}
    environment |= {"SPACE_ID": "user/specdec", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", BUILD, app]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or [f"it ended with {ended.returncode}"])[-1]
        return Finding("bad", "App", f"{app} stops before it serves its page: {last}")
    return Finding("good", "App", f"{app} loads the embedded pair and builds its page.")


if __name__ == "__main__":
    main()
