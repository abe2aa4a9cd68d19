# SPDX-License-Identifier: Apache-2.0
"""The devices that the installed backends see on a machine: a registry and a root in, backends and their devices out.

It opens no device: backends enumerate from files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpfedge.backend.api import Backend, Device
from dpfedge.backend.registry import Registry
from dpfedge.errors import BackendError

__all__ = ["Found", "find_devices"]


@dataclass(frozen=True, slots=True)
class Found:
    """What can run something here."""

    devices: tuple[Device, ...]
    backends: Mapping[str, Backend]
    broken: Mapping[str, str] = field(default_factory=dict)
    """Plugin or backend → why it could not be used."""


def find_devices(registry: Registry, sysroot: str | Path = "/") -> Found:
    """Ask every backend for its devices; a backend that cannot tell is named in `broken`, the others count."""
    broken = {item.plugin: f"{item.hook}: {item.reason}" for item in registry.broken()}
    devices: list[Device] = []
    backends = {name: registry.get(name) for name in registry.names()}
    for name, backend in backends.items():
        try:
            devices += backend.devices(Path(sysroot))
        except BackendError as error:
            broken[name] = str(error)
    return Found(tuple(devices), backends, broken)
