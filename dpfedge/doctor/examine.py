# SPDX-License-Identifier: Apache-2.0
"""All checks in order: surroundings and a registry in, findings judged by which backends are wanted, out.

A fault of a backend that nobody wants is a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path

from dpfedge.backend.registry import Registry
from dpfedge.doctor.backends import Listed, check_devices, check_health, check_plugins, list_devices
from dpfedge.doctor.drivers import check_age, check_drivers, check_hidden, check_visible
from dpfedge.doctor.icd import check_icd
from dpfedge.doctor.libraries import check_lacking, check_providers
from dpfedge.doctor.nodes import check_nodes
from dpfedge.doctor.places import check_places
from dpfedge.doctor.surroundings import Finding, Surroundings
from dpfedge.doctor.wheels import check_doubles, check_kernels, check_metadata, wheels

__all__ = ["examine", "exit_code"]

_WITHOUT_PLUGIN = 5
_OPENCL = ("gpu.arm", "gpu.qualcomm")


def examine(surroundings: Surroundings, registry: Registry, backend: str | None = None) -> tuple[Finding, ...]:
    """Every finding, faults first. `backend` leaves out what concerns only others, and makes its own faults count."""
    wanted = {backend} if backend else {*registry.names(), *(one.backend for one in registry.broken() if one.backend)}
    found = [_judged(one, wanted) for one in _found(surroundings, registry, wanted)]
    if backend is not None:
        found = [one for one in found if not one.backends or backend in one.backends]
        if backend not in registry.names():
            remedy = f"pip install dpfedge-{backend}"
            found.append(Finding("plugins", "fault", f"backend {backend}", "no plugin brings it", remedy, (backend,)))
    order = ("fault", "warning", "note")
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order.index(one.level)))


def _found(surroundings: Surroundings, registry: Registry, wanted: Set[str]) -> Iterator[Finding]:
    yield from check_plugins(registry, surroundings.environ)
    listed = list_devices(registry, Path(surroundings.root.path), wanted)
    yield from check_devices(listed)
    if "cpu" in wanted and surroundings.packages and not wheels(surroundings):
        yield Finding("wheels", "fault", "onnxruntime", "it is not installed", "pip install onnxruntime", ("cpu",))
    yield from check_metadata(surroundings)
    yield from check_doubles(surroundings)
    yield from check_providers(surroundings)
    yield from check_lacking(surroundings, wanted)
    yield from check_kernels(surroundings)
    yield from check_drivers(surroundings)
    yield from check_age(surroundings)
    yield from check_nodes(surroundings)
    gpus = {gpu.kind for gpu in surroundings.machine.accelerators if gpu.kind in _OPENCL}
    if ("opencl" in wanted or gpus) and not _reached(surroundings, listed, gpus):
        yield from check_icd(surroundings)
    yield from check_visible(surroundings)
    yield from check_hidden(surroundings)
    if surroundings.root.live:
        yield from check_health(registry, listed)
        yield from check_places(surroundings.environ)


def _reached(surroundings: Surroundings, listed: Mapping[str, Listed], gpus: Collection[str]) -> bool:
    """Whether OpenCL works here whatever is registered where: wheels bring a loader and a driver of their own."""
    found = listed.get("opencl", Listed()) if surroundings.root.live else Listed()
    kinds = {device.kind for device in found.devices}
    return bool(kinds) and kinds.issuperset(gpus)


def _judged(one: Finding, wanted: Collection[str]) -> Finding:
    concerns = not one.backends or any(name in wanted for name in one.backends)
    return one if concerns or one.level != "fault" else replace(one, level="warning")


def exit_code(findings: Collection[Finding], registry: Registry, backend: str | None = None) -> int:
    """0 without a fault, 1 with one, 5 when the backend that was asked for has no plugin here."""
    if backend is not None and backend not in registry.names():
        return _WITHOUT_PLUGIN
    return int(any(one.level == "fault" for one in findings))
