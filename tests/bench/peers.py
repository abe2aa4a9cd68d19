# SPDX-License-Identifier: Apache-2.0
"""What the peer benches share: the bound demo package, recordings, and a table of interleaved rounds."""

from __future__ import annotations

import os
import wave
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.bench.measure import machine, median_ratio
from dpfedge.binding import Bound, bind_here
from dpfedge.models import pull
from dpfedge.package import open_package

Samples = np.ndarray[Any, np.dtype[np.float32]]
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def bound(path: str) -> Bound:
    """The demo package on this machine."""
    return bind_here(open_package(Path(path), check="fast"), "auto")


def recording(name: str, seconds: float) -> Samples:
    """The first `seconds` of a recording from the catalogue, f32 at 16 kHz."""
    with wave.open(str(pull("moonshine-speech-samples").path(f"{name}.wav")), "rb") as wav:
        rate = wav.getframerate()
        data = np.frombuffer(wav.readframes(int(seconds * rate)), "<i2").astype(np.float32) / 32768
    if rate != 16000:
        import soxr

        data = soxr.resample(data, rate, 16000)
    return data


def rounds(count: int, engines: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Every engine once per round, in turn, after one round that does not count; seconds."""
    for run in engines.values():
        run()
    found: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(count):
        for name, run in engines.items():
            found[name].append(run())
    return found


def show(title: str, found: Mapping[str, list[float]], ours: str, unit: str = "ms", scale: float = 1e3) -> None:
    """Median of each engine, and the median of the ratios ours / theirs of each round."""
    print(f"\n{title}")
    for name, values in found.items():
        ratio = "" if name == ours else f"   ours / this: {median_ratio(found[ours], values):.2f}"
        print(f"  {name:34s} {np.median(values) * scale:9.1f} {unit}{ratio}")


def header() -> None:
    """What the numbers were measured on."""
    on = machine()
    load = " ".join(on["load_average"])
    print(f"{on['cpu']}, {on['cores']} cores, kernel {on['kernel']}, load {load}, {on['libraries']}")
