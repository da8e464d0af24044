"""The check of a Space's folder, on the real folder and on damaged copies. Nothing here asks a package registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import house
import pytest
from space_check import HOMES, findings, installable, pins_of

from specdec.drafters.base import Finding

ROOT = house.ROOT
SERVES = "import gradio\ngradio.Blocks().launch()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that a Space reads before it starts, and the smallest app."""
    for name in ("README.md", "requirements.txt", "requirements-zerogpu.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "app.py").write_text(SERVES)
    return tmp_path


def found(folder: Path, home: str = "cpu") -> Iterator[Finding]:
    return findings(folder, HOMES[home], lambda *_: Finding("good", "Packages", "not asked here"))


def bad(folder: Path, home: str = "cpu") -> list[tuple[str, str]]:
    """The faults of the folder. The app is not tried, as it takes seconds to start."""
    quick = takewhile(lambda finding: finding.topic != "Packages", found(folder, home))
    return [(finding.topic, finding.sentence) for finding in quick if finding.level == "bad"]


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize("home", HOMES)
def test_this_folder_fits_every_kind_of_space(home: str) -> None:
    assert bad(ROOT, home) == []
    assert any(finding.topic == "Packages" for finding in found(ROOT, home)), "its packages are asked for"


@pytest.mark.full
def test_the_app_is_built_as_on_a_space() -> None:
    """The real app is built with the embedded pair. It ends before it serves the page."""
    assert [finding.level for finding in found(ROOT)] == ["good"] * 4


def test_zerogpu_has_the_same_pins_but_its_own_torch_and_spaces() -> None:
    pins, zero = pins_of(ROOT / "requirements.txt"), pins_of(ROOT / "requirements-zerogpu.txt")
    assert zero == pins | {"torch": zero["torch"], "spaces": zero["spaces"]}
    assert list(zero)[:-1] == list(pins), "in the same order, spaces last"


@pytest.mark.parametrize(
    ("old", "new", "topic", "says"),
    [
        ("sdk_version: 6.31.0", "sdk_version: 6.30.0", "sdk_version", "'6.30.0', but requirements.txt pins gradio 6."),
        ("colorTo: gray", "colorTo: grey", "colorTo", "'grey' is not a colour of Spaces; use one of red, yellow"),
        ("app_file: app.py", "app_file: main.py", "app_file", "'main.py' is not in this folder"),
        ("sdk: gradio", "sdk: streamlit", "sdk", "this page needs gradio"),
        ("python_version: 3.12.12", "python_version: 3.10", "python_version", 'in quotes: "3.12"'),
        ("python_version: 3.12.12", 'python_version: "3.1"', "python_version", "use 3.11 or 3.12"),
        ("short_description: ", f"short_description: {60 * 'a'}", "short_description", "Spaces take at most 60"),
        ("license: apache-2.0\n", "", "license", "is missing"),
        ("license: apache-2.0", "licence: apache-2.0", "licence", "have no such field"),
        ("t4-small", "t4-tiny", "suggested_hardware", "'t4-tiny' is not one of cpu-basic"),
        ("models: []", "models: gpt2", "models", "must be a list"),
    ],
)  # fmt: skip
def test_damaged_front_matter(folder: Path, old: str, new: str, topic: str, says: str) -> None:
    replace(folder / "README.md", old, new)
    assert any(where == topic and says in sentence for where, sentence in bad(folder))


def test_a_description_of_sixty_characters_is_the_longest(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    for length in (60, 61):
        line = f"short_description: {length * 'a'}"
        (folder / "README.md").write_text(re.sub("short_description: .*", line, text, count=1), encoding="utf-8")
        assert [topic for topic, _ in bad(folder)] == ["short_description"] * (length > 60)


def test_a_readme_that_cannot_be_read(folder: Path) -> None:
    replace(folder / "README.md", "sdk: gradio", "sdk: [gradio")
    assert [topic for topic, _ in bad(folder)] == ["Front matter"]
    (folder / "README.md").unlink()
    assert [topic for topic, _ in bad(folder)] == ["Front matter"]


def test_zerogpu_wants_its_own_versions(folder: Path) -> None:
    replace(folder / "README.md", "python_version: 3.12.12", 'python_version: "3.11"')
    replace(folder / "requirements-zerogpu.txt", "torch==2.11.0", "torch==2.13.0")
    replace(folder / "requirements-zerogpu.txt", "spaces==", "# spaces ")
    assert bad(folder) == []
    assert [topic for topic, _ in bad(folder, "zerogpu")] == ["python_version", "torch", "spaces"]


def test_a_missing_requirements_file(folder: Path) -> None:
    (folder / "requirements.txt").unlink()
    assert bad(folder) == [("requirements.txt", "is not in this folder.")]
    assert all(finding.topic != "Packages" for finding in found(folder)), "nor are the packages asked for"


def test_a_file_above_ten_megabytes(folder: Path) -> None:
    """A file above 10 MB is refused. In a git checkout ignored files are not uploaded, so they do not count."""
    with (folder / "weights.safetensors").open("wb") as file:
        file.truncate(10_000_000)
        (sizes,) = [finding for finding in found(folder) if finding.topic == "Files"]
        assert sizes.level == "good" and sizes.sentence.startswith("5 files, 10 MB; the largest is weights.safetensors")
        file.truncate(10_000_001)
    ((topic, sentence),) = bad(folder)
    assert topic == "Files" and "weights.safetensors (10.0 MB)" in sentence
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    assert [topic for topic, _ in bad(folder)] == ["Files"], "untracked files are uploaded too"
    (folder / ".gitignore").write_text("*.safetensors\n")
    assert bad(folder) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("app", "says"),
    [("raise ValueError('no model')", "ValueError: no model"), ("import gradio", "ends before it serves a page")],
)
def test_an_app_that_does_not_serve(folder: Path, app: str, says: str) -> None:
    (folder / "app.py").write_text(app)
    *_, last = found(folder)
    assert (last.level, last.topic) == ("bad", "App") and says in last.sentence


def test_pins_that_cannot_be_had_and_a_registry_that_does_not_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = {"python_version": "3.12.12", "sdk_version": "6.31.0"}
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")  # nothing listens there
    unreachable = installable(folder, HOMES["cpu"], front)
    assert unreachable.level == "note" and "Not checked: pip cannot reach its registry" in unreachable.sentence
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = installable(folder, HOMES["cpu"], front)
    assert missing.level == "bad" and "No matching distribution found" in missing.sentence


@pytest.mark.full
def test_the_command_prints_a_line_a_check_and_fails(folder: Path) -> None:
    (folder / "README.md").unlink()
    command = [sys.executable, "-m", "scripts.space_check", "zerogpu"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stdout.startswith("x Front matter: README.md cannot be read:")
