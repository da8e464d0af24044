"""The package that pip installs: its files, its command and its dependencies."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import venv
from importlib import import_module
from pathlib import Path

import house
import pytest
from packaging.requirements import Requirement
from setuptools import Distribution

ROOT = house.ROOT
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LEFT_OUT = {"__pycache__", ".DS_Store"}


def test_the_wheel_holds_every_file_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel holds weights, tokenizers, scripts, styles and prompts beside the code that reads them."""
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    base = ROOT / build.build_lib
    held = {(ROOT / path).relative_to(base) for path in build.get_outputs(include_bytecode=False)}
    files = (path for path in (ROOT / "specdec").rglob("*") if path.is_file() and not LEFT_OUT & set(path.parts))
    assert held == {path.relative_to(ROOT) for path in files}


def test_the_command_is_there() -> None:
    """The command ``specdec`` starts an existing function."""
    module, name = PROJECT["scripts"]["specdec"].split(":")
    assert callable(getattr(import_module(module), name))


def test_the_pinned_versions_are_allowed() -> None:
    """requirements.txt pins a version of all that library, command and page need, inside the range that is allowed."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = {name: version for name, version in (line.split("==") for line in lines)}
    extras = PROJECT["optional-dependencies"]
    texts = {*PROJECT["dependencies"], *extras["cli"], *extras["page"]}
    ranges = {(found := Requirement(text)).name: found.specifier for text in texts}
    assert len(texts) == len(ranges), "two extras name one range for a package"
    assert pins.keys() == ranges.keys()
    assert [name for name, version in pins.items() if version not in ranges[name]] == []


SCRIPT = """
import specdec

pair = specdec.load_pair()
for event in specdec.speculative(pair, "Once upon a time", gamma=5):
    if isinstance(event, specdec.Round):
        kinds: list[str] = [token.status for token in event.draft or ()]
result = specdec.collect(specdec.driven(specdec.generate(pair, "Once")), pair.tokenizer)
rate: float = result.metrics
"""


@pytest.mark.full  # it builds a wheel
def test_a_users_script_is_checked_against_the_types_of_the_wheel(tmp_path: Path) -> None:
    """mypy takes the types of the public names from the installed package, and finds the one fault of a script."""
    pytest.importorskip("mypy")
    venv.create(tmp_path / "venv", system_site_packages=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    shutil.copytree(ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(".*", "node_modules"))
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", site]
    subprocess.run([*install, tmp_path / "source"], check=True, capture_output=True)
    (tmp_path / "script.py").write_text(SCRIPT)
    check = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "script.py"]
    check += ["--python-executable", tmp_path / "venv/bin/python"]
    checked = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    (fault,) = (line for line in checked.stdout.splitlines() if "error:" in line)
    assert fault.startswith("script.py:9:") and '"Metrics | None", variable has type "float"' in fault
