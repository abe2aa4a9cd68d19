# SPDX-License-Identifier: Apache-2.0
"""The record that makes a container a sidecar: field `seal` of its manifest in, what it was sealed for out; and back.

It compares nothing: whether a seal fits a package and a device is judged by `dpfedge.binding.seal`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from dpfedge import limits
from dpfedge.package.fields import Node
from dpfedge.package.prefix import BakedPrefix, check_memory, read_prefix
from dpfedge.records import dataclass

__all__ = ["SUFFIX", "Built", "SealRecord", "check_seal", "read_seal", "references", "sidecar_of"]

SUFFIX = ".dpfseal"


@dataclass(frozen=True, slots=True)
class Built:
    """Something a backend built for one graph; `name` is the backend's."""

    model: str
    graph: str
    name: str
    section: str

    def to_map(self) -> dict[str, str]:
        """The form kept in a manifest."""
        return {"model": self.model, "graph": self.graph, "name": self.name, "section": self.section}


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
    built: tuple[Built, ...] = ()
    prefixes: Mapping[str, BakedPrefix] = field(default_factory=dict)
    """Model → its baked prefix."""

    def to_map(self) -> dict[str, Any]:
        """The form kept in a manifest."""
        values = {name: getattr(self, name) for name in ("package", "target", "backend", "driver")}
        prefixes = {model: prefix.to_map() for model, prefix in self.prefixes.items()}
        built = [item.to_map() for item in self.built]
        more = {"device": dict(self.device), "libraries": dict(self.libraries), "built": built, "prefixes": prefixes}
        return {**values, **more}


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
        built=tuple(_built(item) for item in node.find("built").items(limits.SECTIONS_MAX)),
        prefixes={model: _prefix(item) for model, item in node.find("prefixes").entries()},
    )


def check_seal(seal: SealRecord, sizes: Mapping[str, int], where: str) -> None:
    """Refuse a prefix whose places leave their sections; `sizes` are those of the container's sections, in bytes."""
    for model, prefix in seal.prefixes.items():
        check_memory(prefix, sizes[prefix.section], f"{where}.prefixes.{model}")


def references(seal: SealRecord) -> Iterable[tuple[str, str, str]]:
    """Path, section and kind of everything the record names."""
    for index, item in enumerate(seal.built):
        yield f"seal.built[{index}].section", item.section, "sealed"
    for model, prefix in seal.prefixes.items():
        yield f"seal.prefixes.{model}.section", prefix.section, "prefix"


def sidecar_of(package: Path) -> Path:
    """Where the sidecar of a package file lies: beside it, with `.dpfseal` behind its whole name."""
    return package.with_name(package.name + SUFFIX)


def _built(node: Node) -> Built:
    return Built(*(node.find(name).name() for name in ("model", "graph", "name", "section")))


def _prefix(node: Node) -> BakedPrefix:
    prefix = read_prefix(node)
    if prefix is None:
        raise node.error("wrong type or missing", found="nothing", allowed="map")
    return prefix


def _texts(node: Node) -> dict[str, str]:
    return {name: value.text(limits.PREFIX_KEY_MAX_BYTES) for name, value in node.entries()}
