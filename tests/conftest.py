"""Two processes share the tests, with one core each: small models do not run faster on two."""

from __future__ import annotations

import gc
import os

import torch

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)
    # Gradio takes the first free port from here on; two processes that take the same one wait seconds for it.
    os.environ["GRADIO_SERVER_PORT"] = str(7860 + 100 * int(worker.removeprefix("gw")))


def pytest_collection_finish() -> None:
    """Leave what is loaded so far out of later collections of garbage, which tests ask for hundreds of times."""
    gc.collect()
    gc.freeze()
