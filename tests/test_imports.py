"""Who may import what: the core runs without gradio, and what only reads events runs without torch."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import specdec

ROOT = Path(specdec.__file__).parent.parent
MODULES = sorted(p.relative_to(ROOT) for p in (ROOT / "specdec").rglob("*.py"))
WITHOUT_TORCH = ("events", "measure.metrics", "report.recording", "text")


def imported(path: Path) -> set[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def packages(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_only_the_page_imports_gradio(path: Path) -> None:
    """The engine is used in notebooks and servers where gradio and plotly are not installed."""
    if path.parts[:2] != ("specdec", "ui") and path != Path("specdec", "cli", "page.py"):
        names = imported(path)
        assert not packages(names) & {"gradio", "plotly", "gradio_client"}
        assert not [name for name in names if name.startswith("specdec.ui")]


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_readers_of_events_import_no_torch(name: str) -> None:
    """A recording is read, measured and shown without torch, also by way of the modules these import."""
    seen, todo = set(), {f"specdec.{name}"}
    while todo:
        module = todo.pop()
        seen.add(module)
        path = Path(*module.split(".")).with_suffix(".py")
        if not (ROOT / path).exists():
            continue
        names = imported(path)
        assert not packages(names) & {"torch", "gradio", "transformers", "numpy"}, module
        todo |= {n for n in names if n.startswith("specdec.")} - seen


@pytest.mark.parametrize("name", ["measure/metrics", "events"])
def test_counting_needs_no_clock(name: str) -> None:
    """Figures come from the events' own stamps."""
    assert not packages(imported(Path("specdec", f"{name}.py"))) & {"time", "datetime"}


def test_verify_knows_no_models() -> None:
    """The accept step is a pure function of its arguments and of what it draws."""
    names = imported(Path("specdec", "engine", "verify.py"))
    assert "transformers" not in packages(names)
    assert {name for name in names if name.startswith("specdec")} <= {"specdec.passes", "specdec.passes.chance"}


def test_public_names_are_sorted_and_exist() -> None:
    """What ``import specdec`` promises is there."""
    assert specdec.__all__ == sorted(specdec.__all__)
    for name in specdec.__all__:
        assert getattr(specdec, name) is not None
    expected = {
        "Pair", "SamplingParams", "SpecdecError", "assisted", "collect", "generate", "load_pair", "speculative",
    }  # fmt: skip
    assert expected <= set(specdec.__all__)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_modules_import_on_their_own(path: Path) -> None:
    """No module needs another to be imported first, and importing runs nothing. The page is tested with the page."""
    parts = path.with_suffix("").parts
    if "ui" in parts or parts[-1] == "train":
        pytest.skip("needs more than the engine")
    importlib.import_module(".".join(parts).removesuffix(".__init__"))
