# SPDX-License-Identifier: Apache-2.0
"""A small package with chosen targets, and backends that record what they are asked."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import ABI, Budget, Device, GraphView
from dpfedge.backend.registry import Broken
from dpfedge.binding import Found
from dpfedge.hardware.board import Board, load_board
from dpfedge.package import Package, PackageWriter, WeightPool, open_package

CPU = Device("cpu:0", "cpu", "cpu.x86_64", "a CPU", "x86-64-v3", frozenset({"avx2"}), 8 << 30)
ARM = Device("cpu:0", "cpu", "cpu.aarch64", "a CPU", "armv8.2-a", frozenset({"dotprod", "fp16"}), 8 << 30)
GPU = Device(
    "cuda:0", "cuda", "gpu.nvidia", "a GPU", "sm_90", frozenset({"fp16"}), 80 << 30, drivers={"nvidia": "550.54.14"}
)

Build = Callable[..., Package]


class Recorder:
    """A backend that loads nothing and keeps what it was given."""

    def __init__(self, name: str, abi: int = ABI, devices: Sequence[Device] = ()) -> None:
        self.name, self.version, self.abi = name, "0.1.0", abi
        self.loaded: list[tuple[GraphView, Device, Budget]] = []
        self._devices = devices

    def devices(self, sysroot: Path) -> Sequence[Device]:
        return self._devices

    def load(self, graph: GraphView, device: Device, budget: Budget) -> object:
        self.loaded.append((graph, device, budget))
        return "executable"


def found(
    *devices: Device,
    broken: Mapping[str, str] | None = None,
    misfit: tuple[str, str, int] | None = None,
    **backends: Any,
) -> Found:
    """Devices with a working backend each; `name=None` takes a backend away, `name=Recorder(…)` replaces it.

    `misfit` is a backend, its plugin and the contract it speaks.
    """
    present: dict[str, Any] = {device.backend: Recorder(device.backend) for device in devices}
    present = {name: backend for name, backend in {**present, **backends}.items() if backend is not None}
    misfits = {} if misfit is None else {misfit[0]: Broken(misfit[1], "register", "contract", misfit[0], misfit[2])}
    seen = tuple(device for device in devices if device.backend in present)
    return Found(seen, present, broken or {}, misfits)


def target(id: str, backend: str, whitelist: list[Any], **more: Any) -> dict[str, Any]:
    """One target of the small package."""
    graph = {"section": "graph", "inputs": [], "outputs": [], "weights": ["weights"], "options": {"a": 1}}
    models = {"llm": {"graphs": {"step": graph}}, "vad": {"graphs": {"step": graph}}}
    record = {"id": id, "backend": backend, "backend_abi": ABI, "whitelist": whitelist, "memory_bytes": 1}
    return {**record, "decisions": [["keep", "a rule"]], "models": models, **more}


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """A function that writes a package with these targets and opens it."""

    def _build(*targets: dict[str, Any], prefix: bytes = b"") -> Package:
        path = tmp_path / "small.dpfbin"
        model = {"family": "llama", "licence": "MIT", "source": "test", "config": {"n": 1}}
        with PackageWriter(path, name="small", version="1.2") as writer:
            with WeightPool(writer, "weights") as pool:
                pool.add(np.arange(9, dtype=np.uint8))
            writer.add("graph", "graph", b"graph bytes")
            writer.add("tokens", "asset", b"tokens")
            if prefix:
                writer.add("prefix", "prefix", prefix)
            models = {"llm": {**model, "assets": {"tokenizer": "tokens"}}, "vad": {**model, "assets": {}}}
            writer.finish({"models": models, "targets": list(targets), "licences": [{"name": "x", "spdx": "MIT"}]})
        return open_package(path)

    return _build


@pytest.fixture
def host() -> Board:
    """The board `host`."""
    return load_board("host")


@pytest.fixture
def parts() -> ModuleType:
    """The devices and makers of this file, for tests in its folder."""
    return sys.modules[__name__]
