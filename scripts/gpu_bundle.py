"""Prepares a measurement on a GPU machine without a network: ``python -m scripts.gpu_bundle LIST``.

LIST is a file with what ``pip list`` prints on that machine. The wheels that are missing there are downloaded into
``wheels/``, in the versions that are installed here. Then one command is printed. In a copy of this checkout on that
machine it installs the wheels and runs ``benchmarks.gpu``. torch must be there already, and the page (gradio and what
only the page needs) is not part of a measurement.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
THERE = "torch"  # its wheels are too large to carry
NEVER = re.compile("torch|triton|nvidia|cuda|gradio")
LARGEST = 60_000_000  # bytes of the wheels and the checkout
LONGEST = 2_000  # characters of the command
GLIBC = range(39, 16, -1)  # minor versions of the glibc that a wheel may ask for


class NotBundled(Exception):
    """The bundle cannot be made; says why and what to do."""


def installed(text: str) -> dict[str, str]:
    """Versions by package, from what ``pip list`` prints."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"\s*([A-Za-z0-9][\w.-]*)(?:==|\s+)([0-9]\S*).*", line):
            found[canonicalize_name(match[1])] = match[2]
    if not found:
        raise NotBundled("The list names no package with a version. Give the output of: pip list")
    return found


def ranges() -> Iterator[Requirement]:
    """What the library and the command need, with the versions that they work with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["cli"]])


def missing(there: Mapping[str, str], python: str) -> dict[str, str]:
    """The packages to bring, with their versions: what the package needs and the machine lacks, and what these need."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    environment |= {"platform_system": "Linux", "sys_platform": "linux", "platform_machine": "x86_64"}
    todo, found = list(ranges()), dict[str, str]()
    while todo:
        need = todo.pop()
        name = canonicalize_name(need.name)
        if need.marker and not need.marker.evaluate(environment):
            continue
        if name in there and need.specifier.contains(there[name], prereleases=True):
            continue
        if name == THERE:
            raise NotBundled(f"The machine has torch {there.get(name, 'not at all')}; {need} is needed there.")
        if NEVER.match(name):
            raise NotBundled(f"{name} is needed and is no package to bring. Install it on the machine.")
        if name not in found:
            found[name] = version(name)
            todo += [each for text in requires(name) or () for each in (Requirement(text),) if not _extra(each)]
    return dict(sorted(found.items()))


def _extra(need: Requirement) -> bool:
    return need.marker is not None and "extra" in str(need.marker)


def download(packages: Mapping[str, str], folder: Path, python: str) -> None:
    """Put the wheels of ``packages`` into ``folder``; others there are deleted."""
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in GLIBC] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--dest", str(folder)),
            *("--python-version", python, "--implementation", "cp"),
            *(part for platform in platforms for part in ("--platform", platform)),
            *(f"{name}=={number}" for name, number in packages.items()),
        ],
        check=True,
    )


def sizes(folder: Path) -> tuple[int, int]:
    """Bytes of the wheels, and of the checkout without ignored files."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    tree = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return sum(path.stat().st_size for path in folder.glob("*.whl")), sum(p.stat().st_size for p in tree if p.is_file())


def command(folder: Path, out: str, minutes: float) -> str:
    """The one command for the machine."""
    install = "python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade --target /tmp/site"
    text = f"{install} {folder.name}/*.whl && export PYTHONPATH=/tmp/site PYTHONUNBUFFERED=1 && "
    text += f"python3 -m benchmarks.gpu --out {out} --minutes {minutes:g}"
    if len(text) > LONGEST:
        raise NotBundled(f"The command has {len(text)} characters; {LONGEST} at most. Shorten --out.")
    return text


def require_small(wheels: int, tree: int) -> None:
    if wheels + tree > LARGEST:
        raise NotBundled(
            f"The wheels take {wheels / 1e6:.1f} MB and the checkout {tree / 1e6:.1f} MB; together at most "
            f"{LARGEST / 1e6:.0f} MB can be carried. Remove large files that git does not ignore."
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts.gpu_bundle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("list", type=Path, help="a file with the output of pip list on the GPU machine")
    parser.add_argument("--python", default="3.12", help="the Python of that machine (default 3.12)")
    parser.add_argument("--out", default="gpu-results", help="the folder there for the results, as the shell reads it")
    parser.add_argument("--minutes", type=float, default=7.5, help="when the measurement ends (default 7.5)")
    arguments = parser.parse_args()
    folder = ROOT / "wheels"
    try:
        packages = missing(installed(arguments.list.read_text(encoding="utf-8")), arguments.python)
        download(packages, folder, arguments.python)
        wheels, tree = sizes(folder)
        require_small(wheels, tree)
        line = command(folder, arguments.out, arguments.minutes)
    except (NotBundled, OSError) as error:
        raise SystemExit(f"gpu_bundle: {error}") from error
    print(f"Wheels: {', '.join(f'{name} {number}' for name, number in packages.items())}", file=sys.stderr)
    print(f"{wheels / 1e6:.1f} MB of wheels and {tree / 1e6:.1f} MB of checkout; carry {folder.name}/", file=sys.stderr)
    print(line)


if __name__ == "__main__":
    main()
