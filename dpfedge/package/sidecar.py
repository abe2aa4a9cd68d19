# SPDX-License-Identifier: Apache-2.0
"""The record that makes a container a sidecar: field `seal` of its manifest in, what it was sealed for out; and back.

It compares nothing: whether a seal fits a package and a device is judged by `dpfedge.binding.seal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedge import limits
from dpfedge.package.fields import Node

__all__ = ["SUFFIX", "SealRecord", "read_seal", "sidecar_of"]

SUFFIX = ".dpfseal"


@dataclass(frozen=True, slots=True)
class SealRecord:
    """The package, target and machine a sidecar was built for; any difference makes it stale."""

    package: bytes
    """`manifest_sha256` of the package."""
    target: str
    backend: str
    device: Mapping[str, str]
    """Facts of the device by name: kind, arch, features, …"""
    driver: str
    """Name and version of the device's driver; empty where there is none."""
    libraries: Mapping[str, str]
    """Library → version."""

    def to_map(self) -> dict[str, Any]:
        """The form kept in a manifest."""
        values = {name: getattr(self, name) for name in ("package", "target", "backend", "driver")}
        return {**values, "device": dict(self.device), "libraries": dict(self.libraries)}


def read_seal(node: Node) -> SealRecord | None:
    """The record of field `seal`; None when it is absent. FormatError names the field."""
    if node.absent():
        return None
    return SealRecord(
        package=node.find("package").digest(32),
        target=node.find("target").name(),
        backend=node.find("backend").name(),
        device=_texts(node.find("device")),
        driver=node.find("driver").text(limits.PREFIX_KEY_MAX_BYTES),
        libraries=_texts(node.find("libraries")),
    )


def sidecar_of(package: Path) -> Path:
    """Where the sidecar of a package file lies: beside it, with `.dpfseal` behind its whole name."""
    return package.with_name(package.name + SUFFIX)


def _texts(node: Node) -> dict[str, str]:
    return {name: value.text(limits.PREFIX_KEY_MAX_BYTES) for name, value in node.entries()}
