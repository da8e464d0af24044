"""Programs that some tests need. Without them those tests are skipped; in CI they fail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def missing_node() -> str | None:
    """What is missing for the tests of the page's scripts, with the line that installs it; None if nothing is."""
    if shutil.which("node") is None:
        return "Node is not installed; apt-get install nodejs npm, then npm ci"
    if not (Path(__file__).parents[1] / "node_modules" / "jsdom").is_dir():
        return "the packages of package.json are not installed; npm ci"
    return None


def missing_chromium() -> str | None:
    """The same for the tests in a browser."""
    if not (shutil.which("chromium") or shutil.which("chromium-browser")):
        return "Chromium is not installed; apt-get install chromium"
    return None


def require(missing: str | None) -> None:
    """Skip a test for want of a program; fail it where all of them must be there."""
    if missing:
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
