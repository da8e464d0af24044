"""What the machine is, and the two rates and the costs of a launch that decide how fast a pass can be."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch.utils.benchmark import Timer

from benchmarks.gpu.campaign import Found, Setting
from specdec.engine.request import machine_facts, versions

PACKAGES = ("tokenizers", "huggingface_hub", "safetensors", "accelerate", "triton", "numpy", "pydantic")
COPIED = 2**30  # bytes
SIDE = 8192  # rows and columns of the matrices
LAUNCHES = 1000  # kernels of a captured graph


def median_seconds(call: Callable[[], Any], least: float = 0.2) -> float:
    """The median time of a call, the device's work included; ``least`` is how many seconds are measured."""
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=least).median


def facts(setting: Setting) -> Iterator[Found]:
    """The card, the versions, and the measured rates."""
    small, least = (1024, 0.01) if setting.rehearsal else (1, 0.2)
    device = setting.device
    found: Found = {"machine": machine_facts(device), "versions": versions() | _versions(), "card": _card(setting)}
    yield found
    source = torch.ones(COPIED // small // 4, device=device)
    target = torch.empty_like(source)
    found["copied_bytes_per_second"] = 2 * source.nbytes / median_seconds(partial(target.copy_, source), least)
    yield found
    del source, target
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        side = SIDE // (64 if setting.rehearsal else 1 if dtype is torch.bfloat16 else 2)
        matrix = torch.randn(side, side, device=device, dtype=dtype)
        found[f"{name}_operations_per_second"] = (
            2 * side**3 / median_seconds(partial(torch.matmul, matrix, matrix), least)
        )
        yield found
    one = torch.zeros(1, device=device)
    found["seconds_per_operator"] = median_seconds(partial(one.add_, 1), least)
    if not setting.rehearsal:
        found["seconds_per_operator_in_a_graph"] = _captured(one)
    rate, products = found["copied_bytes_per_second"], found["bfloat16_operations_per_second"]
    name = found["machine"].get("gpu", found["machine"]["cpu"])
    found["line"] = (
        f"{name}: copies {rate / 1e12:.2f} TB/s (read and written), bfloat16 products {products / 1e12:.1f} TFLOP/s, "
        f"{1e6 * found['seconds_per_operator']:.1f} us an operator"
    )
    yield found


def _card(setting: Setting) -> Found:
    """What the driver says of the card."""
    if setting.rehearsal:
        return {}
    free, total = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "capability": list(torch.cuda.get_device_capability()),
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "free_bytes": free,
        "total_bytes": total,
        "cuda": torch.version.cuda,
        "driver": _asked("driver_version"),
        "clocks": _asked("clocks.sm,clocks.max.sm,clocks.mem,power.limit"),
    }


def _asked(fields: str) -> str | None:
    """The answer of ``nvidia-smi``, which only reads here; None where there is none."""
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _captured(one: torch.Tensor) -> float:
    """Seconds of each kernel of a captured graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            one.add_(1)
    return median_seconds(graph.replay) / LAUNCHES
