# SPDX-License-Identifier: Apache-2.0
"""Numbers over repeated measurements: samples in, percentiles and spread out; it measures nothing itself."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.records import dataclass

__all__ = ["Series", "machine", "median_ratio"]


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one quantity in one unit."""

    name: str
    unit: str
    samples: tuple[float, ...]

    def summary(self) -> dict[str, Any]:
        """`p50`, `p90`, `p99`, `sigma`, `min`, `max`, `n`; percentiles are interpolated between samples."""
        values = np.asarray(self.samples, np.float64)
        if not values.size:
            return {"name": self.name, "unit": self.unit, "n": 0}
        p50, p90, p99 = (float(value) for value in np.percentile(values, (50, 90, 99)))
        return {
            "name": self.name, "unit": self.unit, "n": int(values.size), "p50": p50, "p90": p90, "p99": p99,
            "sigma": float(values.std()), "min": float(values.min()), "max": float(values.max()),
            "samples": [round(float(value), 4) for value in values],
        }  # fmt: skip


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios of neighbouring rounds: noise that lasts longer than a round divides out."""
    return float(np.median([a / b for a, b in zip(ours, theirs, strict=True)]))


def machine() -> dict[str, Any]:
    """What the numbers were measured on: CPU, cores, system and library versions; no host name."""
    info = Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith(("model name", "Model"))]
    return {
        "cpu": names[0] if names else platform.machine(),
        "arch": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in ("dpfedge", "onnxruntime", "numpy")},
        "load_average": Path("/proc/loadavg").read_text().split()[:3],
    }
