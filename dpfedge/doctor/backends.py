# SPDX-License-Identifier: Apache-2.0
"""Plugins and what their backends see: a registry in; broken plugins, backends without a device, and why, out.

Backends enumerate from files; only their health is asked of drivers, within the bounds backends have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from dpfedge.backend.api import Device, Health
from dpfedge.backend.registry import Registry
from dpfedge.doctor.surroundings import Finding
from dpfedge.errors import BackendError
from dpfedge.plugin.border import Border

__all__ = ["check_devices", "check_health", "check_plugins"]


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


def check_devices(registry: Registry, root: Path) -> Iterator[Finding]:
    """A backend that cannot tell its devices, or has none here."""
    for name in registry.names():
        reasons: list[str] = []
        devices: list[str] = []
        with Border(reasons.append):
            devices = [f"{one.id} ({one.arch})" for one in registry.get(name).devices(root)]
        where = f"backend {name}"
        for reason in reasons:
            yield Finding("devices", "fault", where, reason, "", (name,))
        if not reasons and not devices:
            yield Finding("devices", "fault", where, "it finds no device here", "", (name,))
        if devices:
            yield Finding("devices", "note", where, f"devices {', '.join(devices)}", "", (name,))


def check_health(registry: Registry, root: Path) -> Iterator[Finding]:
    """A device whose driver does not tell its health: routing takes it out, and loading will fail on it, too."""
    for name in registry.names():
        devices: list[Device] = []
        with Border(lambda reason: None):  # `check_devices` tells it
            devices = list(registry.get(name).devices(root))
        for device in devices:
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
