"""The documents' snippets run, their links exist, and their generated parts equal the code."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from pairwise import few

import specdec
from specdec import cli
from specdec.events import DraftToken, Finished, Round, Started
from specdec.measure.results.format import CALLS_OF_LINK
from specdec.report.schema import VERSION
from specdec.ui.jobs.limits import PUBLIC

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "specdec/embedded/MODEL_CARD.md"]
sys.path.insert(0, str(ROOT / "scripts"))
import documents  # noqa: E402

named = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M)


@pytest.mark.parametrize("name", few(["README.md", "docs/guide.md", "docs/architecture.md"], 1))
def test_python_snippets_run(name: str) -> None:
    """All Python blocks of a document run in order in one namespace, and their assertions hold."""
    found = blocks(ROOT / name, "python")
    assert found
    namespace: dict = {}
    for block in found:
        exec(block, namespace)


@named
def test_links_lead_to_files_and_headings(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match("[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        assert file.exists(), f"{path.name} links to {target}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
            assert heading in [anchor(title) for title in titles], f"{path.name} links to {target}"


def anchor(title: str) -> str:
    """The anchor of a heading in links, as GitHub and the Hub make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@named
def test_commands_exist_with_their_options(path: Path) -> None:
    """Each command in a document has an existing module or file, and its help names every used option."""
    for line in re.sub(r"\\\n\s*", " ", "\n".join(blocks(path, "bash"))).splitlines():
        words = shlex.split(line, comments=True)
        if words[:3] == ["python", "-m", "specdec"]:
            options = {word for word in words[3:] if word.startswith("--")}
            command = words[3] if len(words) > 3 and words[3] in cli.COMMANDS else "run"
            assert options <= options_of(command), line
        elif words[:1] == ["python"] and words[1].endswith(".py"):
            assert (ROOT / words[1]).exists(), line
            if words[1] == "app.py":
                assert {word for word in words if word.startswith("--")} <= options_of("page"), line
        elif words[:2] == ["python", "-m"] and words[2].startswith(
            ("benchmarks.", "examples.", "scripts.", "training.")
        ):
            module = ROOT / words[2].replace(".", "/")
            assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), line


@functools.cache
def options_of(command: str) -> set[str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        cli.main([command, "--help"])
    return set(re.findall(r"--[a-z][a-z-]*", out.getvalue()))


def test_documents_made_from_the_code_are_up_to_date() -> None:
    """``python -m scripts.documents`` writes them."""
    for name, text in documents.texts().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, (
            f"run python -m scripts.documents: {name} is out of date"
        )


def test_the_api_has_every_public_name() -> None:
    assert sorted(name for names in documents.SECTIONS.values() for name in names) == sorted(specdec.__all__)


def test_the_readme_stays_a_front_door() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 180


def test_each_promise_of_security_has_tests_that_exist() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    promised, _, tested = text.partition("## How this is tested")
    topics = [row for row in re.findall(r"^\| ([^|]+?) \|", promised, re.M) if row not in ("Topic", "---")]
    rows = dict(re.findall(r"^\| ([^|]+?) \| (.+) \|$", tested, re.M))
    assert len(topics) > 10 and set(topics) <= rows.keys()
    for promise, named in rows.items():
        if promise in ("Promise", "---"):
            continue
        tests = re.findall("`([^`]+)`", named)
        assert tests, promise
        for file, _, test in (name.partition("::") for name in tests):
            assert (ROOT / file).exists(), f"{promise}: {file}"
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8") or not test, f"{promise}: {file}::{test}"


def test_the_promised_limits_are_those_of_a_public_page() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    size = (
        f"At most {PUBLIC.new_tokens} new tokens, {PUBLIC.prompt_tokens} prompt tokens, {PUBLIC.seconds} seconds, "
        f"{PUBLIC.runs} runs, {PUBLIC.prompts} prompts, {PUBLIC.stop_strings} stop strings of "
        f"{PUBLIC.stop_characters} characters; for the losslessness test {PUBLIC.draws:,} draws of each sample and "
        f"{2 * PUBLIC.seconds} seconds"
    )
    assert size in text
    assert f"at most {PUBLIC.waiting} wait." in text and f"at most {PUBLIC.waiting_short} wait." in text
    assert f"A session may hold {PUBLIC.places} places, a network address {PUBLIC.places_of_address}." in text
    longest = re.search(r"LONGEST = (\d+)", (ROOT / "specdec/ui/assets/lib/address.js").read_text(encoding="utf-8"))[1]
    assert f"A link has at most {int(longest):,} characters and {CALLS_OF_LINK} calls." in text


def test_the_trace_format_names_every_field() -> None:
    """docs/trace.md has each field that a line must have, and the version of today."""
    text = (ROOT / "docs" / "trace.md").read_text(encoding="utf-8")
    for kind in (Started, Round, Finished, DraftToken):
        needed = [field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]
        assert [name for name in needed if f"`{name}`" not in text] == []
    assert f"`version`; it is {VERSION}." in text
