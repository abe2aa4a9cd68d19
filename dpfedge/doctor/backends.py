# SPDX-License-Identifier: Apache-2.0
"""Plugins and what their backends see: a registry in; broken plugins, backends without a device, and why, out.

Backends enumerate from files; only their health is asked of drivers, within the bounds backends have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from dpfedge.backend.api import Device, Health
from dpfedge.backend.registry import Registry
from dpfedge.doctor.surroundings import Finding
from dpfedge.errors import BackendError
from dpfedge.plugin.border import Border
from dpfedge.records import dataclass

__all__ = ["Listed", "check_devices", "check_health", "check_plugins", "list_devices"]


def check_plugins(registry: Registry, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Plugins that could not be loaded, and a restriction that keeps others out."""
    for broken in registry.broken():
        what = f"{broken.hook}: {broken.reason}"
        yield Finding(
            "plugins", "fault", broken.plugin, what, broken.remedy, (broken.backend,) if broken.backend else ()
        )
    if "DPFEDGE_PLUGINS" in environ:
        names = environ["DPFEDGE_PLUGINS"] or "nothing"
        yield Finding("plugins", "note", "DPFEDGE_PLUGINS", f"only {names} is loaded")


@dataclass(frozen=True, slots=True)
class Listed:
    """What a backend says of this machine."""

    devices: tuple[Device, ...] = ()
    shown: str = ""
    """The devices in a line."""
    reason: str = ""
    """Why it cannot tell its devices."""


def list_devices(registry: Registry, root: Path, wanted: Set[str]) -> Mapping[str, Listed]:
    """The backends that are `wanted`, each asked once: a driver that hangs costs its bound at each question."""
    found: dict[str, Listed] = {}
    for name in registry.names():
        if name in wanted:
            with Border(lambda reason, name=name: found.__setitem__(name, Listed(reason=reason))):  # type: ignore[misc]
                devices = tuple(registry.get(name).devices(root))
                found[name] = Listed(devices, ", ".join(f"{one.id} ({one.arch})" for one in devices))
    return found


def check_devices(listed: Mapping[str, Listed]) -> Iterator[Finding]:
    """A backend that cannot tell its devices, or has none here."""
    for name, one in listed.items():
        reason = one.reason.removeprefix(f"backend {name}: ")
        what = f"devices {one.shown}" if one.devices else reason or "it finds no device here"
        yield Finding("devices", "note" if one.devices else "fault", f"backend {name}", what, "", (name,))


def check_health(registry: Registry, listed: Mapping[str, Listed]) -> Iterator[Finding]:
    """A device whose driver does not tell its health: routing takes it out, and loading will fail on it, too."""
    for name, one in listed.items():
        for device in one.devices:
            reasons: list[str] = []
            with Border(reasons.append):
                _judge(registry.get(name).health(device))
            for reason in reasons:
                yield Finding("health", "fault", f"device {device.id}", reason, "", (name,))


def _judge(health: Health) -> None:
    """BackendError for shares that are none: routing takes such a device out."""
    for name in ("utilisation", "free_memory"):
        if not 0 <= (found := getattr(health, name)) <= 1:
            raise BackendError(f"its {name} is no share", found=found, allowed="0 to 1")
