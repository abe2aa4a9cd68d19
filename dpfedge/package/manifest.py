# SPDX-License-Identifier: Apache-2.0
"""What a package's manifest says, as frozen records: a decoded CBOR map in, a `Manifest` out.

Types, names and bounds of every field are checked here; what needs the file (offsets, digests, references) is checked
by `verify`. Nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeGuard

from dpfedge import limits
from dpfedge.package.expression import Expression, read_expression
from dpfedge.package.fields import Node
from dpfedge.package.golden import Golden, read_records
from dpfedge.package.prefix import BakedPrefix, read_prefix
from dpfedge.package.sidecar import SealRecord, read_seal
from dpfedge.records import dataclass
from dpfedge.tensors import DTYPE_CODES, TensorSpec

__all__ = ["KINDS", "Graph", "Licence", "Manifest", "Model", "Section", "Target", "TargetModel", "read_manifest"]

KINDS: Mapping[str, bool] = {
    "weights": True, "graph": True, "asset": True, "prefix": True, "sealed": True, "golden": False, "licence": False,
}  # fmt: skip
"""Section kinds of version 1 → whether a reader that does not know the kind must refuse the package."""


@dataclass(frozen=True, slots=True)
class Section:
    """A named range of the file; `offset` and `size` in bytes from its start."""

    name: str
    kind: str
    offset: int
    size: int
    xxh3: bytes
    sha256: bytes
    critical: bool

    @property
    def end(self) -> int:
        """The offset behind the last byte."""
        return self.offset + self.size

    def to_map(self) -> dict[str, Any]:
        """The form kept in a manifest."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Model:
    """One network: what it is, whose it is, its numbers and the assets (name → section) it needs."""

    family: str
    licence: str
    source: str
    config: Mapping[str, Any]
    assets: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Graph:
    """One lowered graph: the section with its bytes, its ports, the weight sections it addresses."""

    section: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[str, ...]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TargetModel:
    """One model as compiled for one target."""

    graphs: Mapping[str, Graph]
    prefix: BakedPrefix | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One compiled form of the package's models and the hardware that may run it."""

    id: str
    backend: str
    backend_abi: int
    whitelist: Expression
    memory_bytes: int
    decisions: tuple[tuple[str, str], ...]
    """(choice, rule that led to it)."""
    models: Mapping[str, TargetModel]


@dataclass(frozen=True, slots=True)
class Licence:
    """One licence that applies to content of the package; `section` holds its text."""

    name: str
    spdx: str
    section: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a reader knows of a package without touching its sections."""

    format: tuple[int, int]
    name: str
    version: str
    compiler: Mapping[str, Any]
    created: int | None
    """Seconds since 1970 from SOURCE_DATE_EPOCH, or None."""
    sections: tuple[Section, ...]
    models: Mapping[str, Model]
    targets: tuple[Target, ...]
    pipeline: Mapping[str, Any]
    licences: tuple[Licence, ...]
    golden: tuple[Golden, ...] = field(default=())
    seal: SealRecord | None = None
    """What a sidecar was built for; None in a package."""

    def target(self, id: str) -> Target:
        """The target with this id; KeyError when there is none."""
        for target in self.targets:
            if target.id == id:
                return target
        raise KeyError(id)


def read_manifest(value: Any, where: str) -> Manifest:
    """Build the records from a decoded manifest; FormatError names the field, what was found and what is allowed."""
    root = Node(value, where)
    form = root.find("format").items(2)
    if len(form) != 2:
        raise root.find("format").error("wrong length", found=len(form), allowed=2)
    created = root.find("created")
    return Manifest(
        format=(form[0].integer(1, 0xFFFF), form[1].integer(0, 0xFFFF)),
        name=root.find("name").name(),
        version=root.find("version").name(),
        compiler=root.find("compiler").free(),
        created=None if created.absent() else created.integer(0, 1 << 40),
        sections=tuple(_section(node) for node in root.find("sections").items(limits.SECTIONS_MAX)),
        models={name: _model(node) for name, node in root.find("models").entries(limits.MODELS_MAX)},
        targets=tuple(_target(node) for node in root.find("targets").items(limits.TARGETS_MAX)),
        pipeline=root.find("pipeline").free(),
        licences=tuple(_licence(node) for node in root.find("licences").items()),
        golden=read_records(root.find("golden")),
        seal=read_seal(root.find("seal")),
    )


def _section(node: Node) -> Section:
    kind, critical = node.find("kind"), node.find("critical").boolean()
    if critical and kind.name() not in KINDS:
        raise kind.error("unknown kind of a critical section", found=kind.value, allowed=", ".join(KINDS))
    return Section(
        name=node.find("name").name(),
        kind=kind.name(),
        offset=node.find("offset").integer(0, limits.PACKAGE_MAX_BYTES),
        size=node.find("size").integer(0, limits.PACKAGE_MAX_BYTES),
        xxh3=node.find("xxh3").digest(16),
        sha256=node.find("sha256").digest(32),
        critical=critical,
    )


def _model(node: Node) -> Model:
    return Model(
        family=node.find("family").name(),
        licence=node.find("licence").text(),
        source=node.find("source").text(),
        config=node.find("config").free(),
        assets={name: asset.name() for name, asset in node.find("assets").entries()},
    )


def _target(node: Node) -> Target:
    return Target(
        id=node.find("id").name(),
        backend=node.find("backend").name(),
        backend_abi=node.find("backend_abi").integer(1, 0xFFFF),
        whitelist=read_expression(node.find("whitelist")),
        memory_bytes=node.find("memory_bytes").integer(0, limits.MEMORY_MAX_BYTES),
        decisions=tuple(_decision(item) for item in node.find("decisions").items()),
        models={name: _target_model(model) for name, model in node.find("models").entries()},
    )


def _decision(node: Node) -> tuple[str, str]:
    parts = node.items(2)
    if len(parts) != 2:
        raise node.error("wrong length", found=len(parts), allowed="[choice, rule]")
    return parts[0].text(), parts[1].text()


def _target_model(node: Node) -> TargetModel:
    graphs = {name: _graph(graph) for name, graph in node.find("graphs").entries(limits.GRAPHS_MAX)}
    return TargetModel(graphs, read_prefix(node.find("prefix")))


def _graph(node: Node) -> Graph:
    return Graph(
        section=node.find("section").name(),
        inputs=_ports(node.find("inputs")),
        outputs=_ports(node.find("outputs")),
        weights=tuple(item.name() for item in node.find("weights").items(limits.SECTIONS_MAX)),
        options=node.find("options").free(),
    )


def _ports(node: Node) -> tuple[TensorSpec, ...]:
    ports = tuple(_port(item) for item in node.items(limits.PORTS_MAX))
    if len({port.name for port in ports}) != len(ports):
        raise node.error("two ports have one name")
    return ports


def _port(node: Node) -> TensorSpec:
    value = node.value
    if type(value) is dict:
        # A package has hundreds of ports: the usual ones are accepted without a node for each of their fields.
        name, dims = value.get("name"), value.get("dims")
        known = type(value.get("dtype")) is str and value["dtype"] in DTYPE_CODES
        if known and _is_plain_name(name) and _are_plain_dims(dims):
            return TensorSpec(name, value["dtype"], tuple(dims))
    dtype = node.find("dtype")
    if not isinstance(dtype.value, str) or dtype.value not in DTYPE_CODES:
        raise dtype.error("unknown dtype", found=repr(dtype.text()[:40]), allowed=", ".join(DTYPE_CODES))
    return TensorSpec(node.find("name").text(limits.NAME_MAX_BYTES), dtype.value, _dims(node.find("dims")))


def _dims(node: Node) -> tuple[int | str, ...]:
    return tuple(_dim(item) for item in node.items(limits.TENSOR_MAX_RANK))


def _are_plain_dims(values: Any) -> TypeGuard[list[int | str]]:
    if type(values) is not list or len(values) > limits.TENSOR_MAX_RANK:
        return False
    return all(0 <= value <= limits.TENSOR_MAX_DIM if type(value) is int else _is_plain_name(value) for value in values)


def _is_plain_name(value: Any) -> TypeGuard[str]:
    return type(value) is str and len(value) <= limits.NAME_MAX_BYTES and value.isascii() and value.isprintable()


def _dim(node: Node) -> int | str:
    if isinstance(node.value, str):
        return node.text(limits.NAME_MAX_BYTES)
    return node.integer(0, limits.TENSOR_MAX_DIM)


def _licence(node: Node) -> Licence:
    section = node.find("section")
    return Licence(
        node.find("name").text(limits.NAME_MAX_BYTES),
        node.find("spdx").text(limits.NAME_MAX_BYTES),
        None if section.absent() else section.name(),
    )
