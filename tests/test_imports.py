"""Imports between folders go down only, and each folder loads without the packages that it must not need.

Tests that load modules start a separate interpreter in which some packages cannot be imported.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict

import house
import pytest

import specdec

PAGE = ("gradio", "gradio_client", "plotly")
TORCH = ("torch", "transformers", "accelerate", "numpy")
MODULES = tuple(name for name in house.modules() if not name.endswith("__main__"))


def beginning(*prefixes: str) -> tuple[str, ...]:
    """The modules that are in ``prefixes`` or below one of them."""
    return tuple(m for m in MODULES if any(m == prefix or m.startswith(f"{prefix}.") for prefix in prefixes))


MEASURE = ("gain", "metrics", "plan", "prompts", "result", "results.format", "summary", "sweep")
WITHOUT_TORCH = {
    "specdec": ("specdec",),
    "base": beginning(*(f"specdec.{name}" for name in house.BASE.split(", "))),
    "report": beginning("specdec.report"),
    "measure": tuple(f"specdec.measure.{name}" for name in MEASURE),
    "cli": ("specdec.cli", *beginning("specdec.cli.parsers"), "specdec.models.settings", "specdec.drafters.forms"),
}
CORE = tuple(m for m in MODULES if house.folder_of(m) not in ("app.py", "ui") and m != "specdec.cli.page")

# Imports each module in its own process, forked from one in which other packages are loaded and ours are
# not: to load torch anew for each module would take minutes.
PROGRAM = """
import contextlib, importlib, os, sys
blocked, modules = (words.split(",") for words in sys.argv[1:])
for name in blocked:
    sys.modules[name] = None
for name in modules:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
for name in [name for name in sys.modules if name.split(".")[0] == "specdec"]:
    del sys.modules[name]
failed = 0
for name in modules:
    child = os.fork()
    if not child:
        status = 1
        try:
            importlib.import_module(name)
            status = 0
        except ImportError as error:
            print(f"{name}: {error}", flush=True)
        finally:
            os._exit(status)
    failed |= os.waitpid(child, 0)[1]
sys.exit(bool(failed))
"""


def load(modules: tuple[str, ...], blocked: tuple[str, ...]) -> str:
    """Load each module by itself without the ``blocked`` packages. Returns the errors, one line a module."""
    command = [sys.executable, "-c", PROGRAM, ",".join(blocked), ",".join(modules)]
    done = subprocess.run(command, cwd=house.ROOT, capture_output=True, text=True)
    assert done.returncode == 0 or done.stdout, done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", WITHOUT_TORCH)
def test_reports_load_without_torch(folder: str) -> None:
    """Recordings are read, measured and reported without torch."""
    assert WITHOUT_TORCH[folder]
    assert load(WITHOUT_TORCH[folder], (*TORCH, *PAGE)) == ""


@pytest.mark.full
def test_the_core_loads_without_the_page() -> None:
    """The engine, and all commands but ``page``, load without gradio and plotly.

    No module needs another to be loaded first, and loading one runs nothing.
    """
    assert load(CORE, PAGE) == ""


@pytest.mark.full
def test_the_library_needs_no_extra() -> None:
    """The public names load without the packages of the command and of the page."""
    homes = tuple(f"specdec.{module}" for module in specdec._MODULES)
    assert len(homes) > 10 and load(homes, ("rich", *PAGE, "jinja2", "starlette")) == ""


def test_a_blocked_package_is_noticed() -> None:
    """The two tests above can fail, as the page needs gradio and the engine needs torch."""
    assert "gradio" in load(("specdec.ui.page",), PAGE)
    assert "torch" in load(("specdec.engine.verify",), TORCH)


def test_only_the_page_imports_gradio() -> None:
    """Only ``ui`` imports gradio, inside functions too. ``app.py`` and ``specdec page`` use it through ``ui``."""
    importing = {
        path.relative_to(house.ROOT).parts[1]
        for path in house.modules().values()
        if {name.split(".")[0] for _, name in house.imports_of(path, {})} & set(PAGE)
    }
    assert importing == {"ui"}


def test_imports_go_down() -> None:
    """Folders have an order and import only lower ones, so there are no cycles."""
    found = house.arrows()
    assert set(house.ORDER) >= {folder for arrow in found for folder in arrow}
    assert ("engine", "runtime") in found and ("cli", "ui") in found
    assert house.upward(found) == []


def test_rooms_of_the_page_import_lower_ones_and_no_modules_import_each_other() -> None:
    """The folders of ``ui`` have an order too, and no two modules need each other."""
    assert house.upward_in_the_page() == []
    assert house.circle() == []


def test_a_public_name_is_defined_once() -> None:
    """No two modules of the package define a public class or function of one name. Each command has its ``main``."""
    kinds, homes = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef), defaultdict(list)
    for module, path in house.modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, kinds) and not node.name.startswith("_") and node.name != "main":
                homes[node.name].append(module)
    assert len(homes) > 400 and {name: found for name, found in homes.items() if len(found) > 1} == {}


SCRIPTS = ("static", "", "share", "explain", "race", "lib")  # from high to low; "" are the scripts beside the folders


def test_scripts_import_from_their_own_folder_and_lower_ones() -> None:
    """The folders of the page's scripts have an order too: what draws a race knows nothing of links or explanations."""
    assets, wrong, found = house.ROOT / "specdec/ui/assets", [], set()
    for path in assets.rglob("*.js"):
        here = path.parent.relative_to(assets).as_posix().removeprefix(".")
        for name in re.findall(r"""(?:from |import\()["'](\.[^"']+)""", path.read_text(encoding="utf-8")):
            there = (path.parent / name).resolve().parent.relative_to(assets).as_posix().removeprefix(".")
            found.add((here, there))
            if SCRIPTS.index(here) > SCRIPTS.index(there):
                wrong.append(f"{path.name} imports {name}")
    assert wrong == [] and ("share", "race") in found


def test_an_import_that_goes_up_is_noticed() -> None:
    """The test above can fail: it names an import upwards, one in a cycle, and one of an unknown folder."""
    down, up = {("engine", "runtime"): ["a"]}, {("runtime", "engine"): ["b"]}
    assert house.upward(down | up) == ["b"]
    assert house.upward({("engine", "elsewhere"): ["c"]}) == ["c"]


def test_the_drawing_is_up_to_date() -> None:
    """The graph in docs/architecture.md is that of the code; ``python scripts/house.py`` draws it."""
    document = house.DOCUMENT.read_text(encoding="utf-8")
    assert house.with_drawing(document, house.drawing(house.arrows())) == document


@pytest.mark.parametrize("name", ["measure/metrics", "events"])
def test_counting_needs_no_clock(name: str) -> None:
    """Figures are computed from the events' time stamps."""
    names = house.imports_of(house.ROOT / "specdec" / f"{name}.py", {})
    assert not {name for _, name in names} & {"time", "datetime"}


def test_verify_knows_no_models() -> None:
    """The accept step is a pure function of its arguments and its random draws."""
    names = {name for _, name in house.imports_of(house.ROOT / "specdec/engine/verify.py", house.modules())}
    assert not {name for name in names if name.startswith("transformers")}
    assert {name for name in names if name.startswith("specdec")} <= {"specdec.runtime.draws"}


def test_public_names_are_sorted_and_exist() -> None:
    """The public names of ``specdec`` are sorted and exist."""
    assert specdec.__all__ == sorted(specdec.__all__)
    for name in specdec.__all__:
        assert getattr(specdec, name) is not None
    expected = {
        "Pair", "SamplingParams", "SpecdecError", "assisted", "collect", "generate", "load_pair", "speculative",
    }  # fmt: skip
    assert expected <= set(specdec.__all__)
