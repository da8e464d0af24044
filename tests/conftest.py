"""Two processes share the tests, a core each: small models gain nothing from a second one."""

from __future__ import annotations

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
