# SPDX-License-Identifier: Apache-2.0
"""The devices that the installed backends see on a machine: a registry and a root in, backends and their devices out.

It opens no device: backends enumerate from files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from dpfedge.backend.api import Backend, Device
from dpfedge.backend.registry import Broken, Registry
from dpfedge.errors import BackendError
from dpfedge.plugin.border import Border
from dpfedge.records import dataclass

__all__ = ["Found", "find_devices"]


@dataclass(frozen=True, slots=True)
class Found:
    """What can run something here."""

    devices: tuple[Device, ...]
    backends: Mapping[str, Backend]
    broken: Mapping[str, str] = field(default_factory=dict)
    """Plugin or backend → why it could not be used."""
    misfits: Mapping[str, Broken] = field(default_factory=dict)
    """Backend → the installed plugin that brings it for another version of the contract."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Backend → the distribution that brought it."""

    def distribution(self, backend: str) -> str:
        """The distribution that brings `backend`: the installed one, else the name such distributions have."""
        return self.distributions.get(backend, f"dpfedge-{backend}")


def find_devices(registry: Registry, sysroot: str | Path = "/", wanted: Collection[str] | None = None) -> Found:
    """Ask every backend, or the `wanted` ones, for its devices; one that cannot tell is named in `broken`, the others
    count. Asking a backend may take it a tenth of a second.
    """
    broken = {item.plugin: f"{item.hook}: {item.reason}" for item in registry.broken()}
    misfits = {item.backend: item for item in registry.broken() if item.backend is not None}
    devices: list[Device] = []
    backends = {name: registry.get(name) for name in registry.names()}
    for name, backend in backends.items():
        if wanted is not None and name not in wanted:
            continue
        with Border(lambda reason, name=name: broken.__setitem__(name, reason)):  # type: ignore[misc]
            devices += _whole([*backend.devices(Path(sysroot))])
    distributions = {name: registry.provider(name).partition(" ")[0] for name in backends}
    return Found(tuple(devices), backends, broken, misfits, distributions)


def _whole(devices: Sequence[Device]) -> Sequence[Device]:
    """The devices a backend told of; BackendError for what is none."""
    if odd := [one for one in devices if not isinstance(one, Device)]:
        raise BackendError("what it lists must be a Device", found=type(odd[0]).__name__)
    return devices
