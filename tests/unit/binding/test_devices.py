# SPDX-License-Identifier: Apache-2.0
"""Devices of the installed backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpfedge.backend.registry import Registry
from dpfedge.binding import find_devices
from dpfedge.errors import Unavailable


def test_find__asks_every_backend(parts: Any, tmp_path: Path) -> None:
    """Devices come in the order of the backends' names."""
    registry = Registry()
    registry.add(parts.Recorder("cuda", devices=[parts.GPU]))
    registry.add(parts.Recorder("cpu", devices=[parts.CPU]))

    seen = find_devices(registry, tmp_path)
    assert seen.devices == (parts.CPU, parts.GPU)
    assert list(seen.backends) == ["cpu", "cuda"]
    assert seen.broken == {}


def test_find__asks_only_the_wanted(parts: Any, tmp_path: Path) -> None:
    """Backends that no target needs are there and are not asked: enumerating may load a driver."""
    registry = Registry()
    registry.add(parts.Recorder("cuda", devices=[parts.GPU]))
    registry.add(parts.Recorder("cpu", devices=[parts.CPU]))

    seen = find_devices(registry, tmp_path, {"cpu"})
    assert seen.devices == (parts.CPU,)
    assert list(seen.backends) == ["cpu", "cuda"]


def test_find__backend_without_its_driver(parts: Any, tmp_path: Path) -> None:
    """A backend that cannot tell is named with its reason; plugins that broke at load time are too."""

    class Driverless(parts.Recorder):  # type: ignore[misc,name-defined]
        def devices(self, sysroot: Path) -> Any:
            raise Unavailable("no driver", where="backend cuda")

    registry = Registry()
    registry.add(Driverless("cuda"))
    registry.add(parts.Recorder("cpu", devices=[parts.CPU]))
    registry.report("dpfedge-rocm 1.0", "import", "ImportError: libhsa")

    seen = find_devices(registry, tmp_path)
    assert seen.devices == (parts.CPU,)
    assert seen.broken == {"cuda": "backend cuda: no driver", "dpfedge-rocm 1.0": "import: ImportError: libhsa"}


def test_find__backend_with_a_bug(parts: Any, tmp_path: Path) -> None:
    """Foreign code that fails in a way nobody foresaw keeps only its own devices away."""

    class Buggy(parts.Recorder):  # type: ignore[misc,name-defined]
        def devices(self, sysroot: Path) -> Any:
            raise IndexError("list index out of range")

    class Odd(parts.Recorder):  # type: ignore[misc,name-defined]
        def devices(self, sysroot: Path) -> Any:
            return [{"id": "odd:0"}]

    registry = Registry()
    registry.add(Buggy("cuda"))
    registry.add(Odd("odd"))
    with registry.provided_by("dpfedge-cpu 0.1.0"):
        registry.add(parts.Recorder("cpu", devices=[parts.CPU]))

    seen = find_devices(registry, tmp_path)
    assert (seen.devices, seen.broken) == ((parts.CPU,), {
        "cuda": "IndexError: list index out of range", "odd": "what it lists must be a Device; found dict",
    })  # fmt: skip
    assert (seen.distribution("cpu"), seen.distribution("rocm")) == ("dpfedge-cpu", "dpfedge-rocm")


def test_find__plugin_of_another_contract(parts: Any, tmp_path: Path) -> None:
    """A backend that speaks another contract is known by name, so that binding can say what to install."""
    registry = Registry()
    with registry.provided_by("dpfedge-cuda 0.2.0"):
        registry.add(parts.Recorder("cuda", abi=7))

    seen = find_devices(registry, tmp_path)
    assert (seen.devices, dict(seen.backends)) == ((), {})
    assert (seen.misfits["cuda"].plugin, seen.misfits["cuda"].abi) == ("dpfedge-cuda 0.2.0", 7)
