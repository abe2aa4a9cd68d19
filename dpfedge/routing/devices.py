# SPDX-License-Identifier: Apache-2.0
"""The devices of this machine as instances: backends in, one source of samples for each device out.

It starts no thread and routes nothing: `Sampler` takes the sources, `dpfedge route explain` looks once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.backend.api import Backend, Device
from dpfedge.backend.registry import Registry
from dpfedge.errors import DpfError
from dpfedge.hardware.source.pci import upstream
from dpfedge.hardware.source.root import Root, label
from dpfedge.plugin.border import Border
from dpfedge.routing.health import Health, Rule
from dpfedge.routing.instances import Instance
from dpfedge.routing.sampling import Source, of_device

__all__ = ["device_sources", "look", "pci_addresses", "told_facts"]

_TOLD = {"vbios": "firmware", "uuid": "serial", "serial": "serial"}  # a later one counts
_PCI = "pci"  # of a device's facts: the address of its function, where it has one


def device_sources(registry: Registry, root: Path = Path("/")) -> dict[str, Source]:
    """Device id, such as `cuda:0`, → what looks at it; every device of every backend that is installed."""
    sources: dict[str, Source] = {}
    for name in registry.names():
        backend = registry.get(name)
        for device in _devices(backend, root):
            place = Root(root)
            sources[device.id] = of_device(backend, device, place, pci_addresses(device, place))
    return sources


def _devices(backend: Backend, root: Path) -> Sequence[Device]:
    # one without its driver, or with a broken one, has no instances; `dpfedge backends` tells why
    with Border(lambda reason: None):
        return backend.devices(root)
    return ()


def told_facts(registry: Registry, root: Path = Path("/")) -> dict[str, dict[str, Any]]:
    """PCI address → what drivers tell of a device beyond the kernel's files: `serial`, `firmware`, `memory_bytes`.

    A card that is split tells of the whole: its memory is that of its parts together.
    """
    told: dict[str, dict[str, Any]] = {}
    for name in registry.names():
        found: dict[str, dict[str, Any]] = {}
        for device in _devices(registry.get(name), root):
            if address := str(device.facts.get(_PCI) or ""):
                row = found.setdefault(address, {"memory_bytes": 0})
                row["memory_bytes"] += device.memory_bytes
                row |= {field: label(str(device.facts[key])) for key, field in _TOLD.items() if device.facts.get(key)}
        told = found | told
    return told


def pci_addresses(device: Device, root: Root) -> list[str]:
    """Where the kernel counts the PCIe errors of a device's link: its own function and the bridge above."""
    own = str(device.facts.get(_PCI) or "")
    return [address for address in (own, upstream(root, own)) if address] if own else []


def look(sources: Mapping[str, Source]) -> tuple[list[Instance], dict[str, float]]:
    """One look at each: instances of weight 1, and their health 0 to 1; one that does not answer is not healthy."""
    rule, instances, scores = Rule(), [], {}
    for name, source in sources.items():
        health = Health(rule, 0)
        try:
            health.take(source(), 0)
        except (DpfError, OSError):
            health.score = 0
        scores[name] = health.score / 10000
        instances.append(Instance(name, 1, healthy=health.score >= rule.down))
    return instances, scores
