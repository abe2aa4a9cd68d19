# SPDX-License-Identifier: Apache-2.0
"""What plugins and their backends say of themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dpfedge.backend.api import ABI, Health
from dpfedge.backend.registry import Registry
from dpfedge.doctor.backends import check_devices, check_health, check_plugins, list_devices
from dpfedge.errors import Unavailable


def backend(name: str, devices: Sequence[Any] | Exception) -> Any:
    """A backend with these devices, or with a reason for none."""

    def listed(root: Path) -> Sequence[Any]:
        if isinstance(devices, Exception):
            raise devices
        return devices

    def health(device: Any) -> Health:
        if device.id == "c:0":
            raise Unavailable("NVML does not answer within 2 s", where="backend c")
        return Health(0.5, math.nan if device.id == "d:0" else 0.9)

    return SimpleNamespace(name=name, abi=ABI, devices=listed, health=health)


def test_check_plugins__broken_and_kept_out() -> None:
    """Plugin, hook, reason, remedy; and a variable that keeps others out."""
    registry = Registry()
    registry.report("dpfedge-odd 1.0", "import", "ImportError: libgone.so")

    broken, restricted = check_plugins(registry, {"DPFEDGE_PLUGINS": "cpu"})

    assert str(broken) == (
        "fault: dpfedge-odd 1.0: import: ImportError: libgone.so; pip install --force-reinstall dpfedge-odd"
    )
    assert restricted.what == "only cpu is loaded"


def test_check_devices__each_says_its_own() -> None:
    """Some, none, a reason of ours, and one of theirs."""
    registry = Registry()
    registry.add(backend("a", [SimpleNamespace(id="a:0", arch="sm_90")]))
    registry.add(backend("b", []))
    registry.add(backend("c", Unavailable("no driver", where="backend c")))
    registry.add(backend("d", OSError("libgone.so")))
    registry.add(backend("e", [{"id": "e:0"}]))

    found = {
        one.backends[0]: (one.level, one.what)
        for one in check_devices(list_devices(registry, Path("/"), set(registry.names())))
    }

    assert found == {
        "a": ("note", "devices a:0 (sm_90)"),
        "b": ("fault", "it finds no device here"),
        "c": ("fault", "no driver"),
        "d": ("fault", "OSError: libgone.so"),
        "e": ("fault", "AttributeError: 'dict' object has no attribute 'id'"),
    }


def test_check_health__of_each_device() -> None:
    """A driver that does not answer; a backend without devices has told its reason elsewhere."""
    registry = Registry()
    registry.add(backend("a", [SimpleNamespace(id="a:0", arch="sm_90")]))
    registry.add(backend("b", Unavailable("no driver", where="backend b")))
    registry.add(backend("c", [SimpleNamespace(id="c:0", arch="sm_90"), SimpleNamespace(id="c:1", arch="sm_90")]))

    registry.add(backend("d", [SimpleNamespace(id="d:0", arch="sm_90")]))

    found, share = check_health(registry, list_devices(registry, Path("/"), set("abcd")))

    assert (found.level, found.where, found.backends) == ("fault", "device c:0", ("c",))
    assert "NVML does not answer" in found.what
    assert (share.where, share.what) == ("device d:0", "its free_memory is no share; found nan; allowed 0 to 1")
