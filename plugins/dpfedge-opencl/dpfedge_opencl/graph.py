# SPDX-License-Identifier: Apache-2.0
"""A lowered graph and its bytes in a package: nodes, constants, and the parts that the CPU plugin runs.

The bytes are CBOR (`GRAPH.md`). It works out no shape; `specialise` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cbor2

from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec
from dpfedge_opencl.ops.api import Node

__all__ = ["LAYOUTS", "SEGMENT", "VERSION", "Constant", "Graph", "Key", "Segment", "place", "prefix", "read", "write"]

VERSION = 1
"""Of the document's form."""
LAYOUTS = 2
"""Of how weights are packed and of what operators keep in their attributes: raised with every change of either."""
SEGMENT = "CpuSegment"
"""The operator of a node that the CPU plugin runs; its attribute `segment` is the place in `Graph.segments`."""

Key = tuple[tuple[tuple[str, tuple[int, ...]], ...], frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: its contents where they are small, its place in a weight section where a kernel reads it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None
    place: tuple[str, int, int] | None = None
    """Section, offset and size in bytes."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the graph as the CPU plugin lowered it."""

    code: bytes
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[str, ...]
    """Its nodes, as `operator name`."""
    reason: str
    """Why it does not run here."""
    weights: tuple[str, ...] = ()
    """Names of its weights, as `LoweredGraph.weights` has them without the segment's prefix."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of operators of this backend, in an order in which it can run."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Constant]
    host: frozenset[str] = frozenset()
    """Names of nodes whose results follow from shapes and constants: the host computes them."""
    late: frozenset[str] = frozenset()
    """Inputs of which only the sizes are read, and those by nothing that shapes or launches depend on."""
    segments: tuple[Segment, ...] = ()
    base: dict[str, object] = field(default_factory=dict, compare=False)
    """What `specialise` worked out once for all plans."""

    def key(self, shapes: Mapping[str, tuple[int, ...]], shared: frozenset[tuple[str, str]]) -> Key:
        """What a plan depends on: the shapes of all inputs that are not `late`, and the memory that is shared."""
        return tuple((spec.name, shapes[spec.name]) for spec in self.inputs if spec.name not in self.late), shared


def prefix(segment: int) -> str:
    """What the names of a segment's weights begin with in `LoweredGraph.weights`."""
    return f"cpu{segment}/"


def write(graph: Graph) -> bytes:
    """The graph's bytes; equal graphs have equal bytes."""
    document = {
        "version": VERSION,
        "layouts": LAYOUTS,
        "name": graph.name,
        "inputs": [spec.to_map() for spec in graph.inputs],
        "outputs": [spec.to_map() for spec in graph.outputs],
        "nodes": [[one.op, one.name, list(one.inputs), list(one.outputs), one.attrs] for one in graph.nodes],
        "constants": {name: _constant(one) for name, one in graph.constants.items()},
        "host": sorted(graph.host),
        "late": sorted(graph.late),
        "segments": [_segment(one) for one in graph.segments],
    }
    return cbor2.dumps(document, canonical=True)


def _constant(one: Constant) -> list[Any]:
    return [one.dtype, list(one.shape), one.data, None if one.place is None else list(one.place)]


def _segment(one: Segment) -> dict[str, Any]:
    return {
        "code": one.code,
        "inputs": [spec.to_map() for spec in one.inputs],
        "outputs": [spec.to_map() for spec in one.outputs],
        "nodes": list(one.nodes),
        "reason": one.reason,
        "weights": list(one.weights),
    }


def read(code: bytes | memoryview, where: str) -> Graph:
    """The graph of these bytes; BackendError when they are damaged, or of another version or other layouts."""
    try:
        document = cbor2.loads(bytes(code))
        _check(int(document["version"]), int(document.get("layouts", 0)), where)
        return _read(document)
    except (cbor2.CBORDecodeError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise BackendError("the graph's bytes are damaged", where=where, found=str(error)[:200]) from error


def _check(version: int, layouts: int, where: str) -> None:
    if version != VERSION:
        raise BackendError(
            "the graph is of another version of this plugin", where=where, found=version, allowed=VERSION,
            remedy="compile the package again, or install the plugin it was compiled with",
        )  # fmt: skip
    if layouts != LAYOUTS:
        raise BackendError(
            "the kernels read other layouts of weights than the package has", where=where,
            found=f"compiled by dpfedge-opencl layouts {layouts}", allowed=f"this one reads {LAYOUTS}",
            remedy="compile the package again",
        )  # fmt: skip


def _read(document: Mapping[str, Any]) -> Graph:
    return Graph(
        name=document["name"],
        inputs=_specs(document["inputs"]),
        outputs=_specs(document["outputs"]),
        nodes=tuple(Node(op, name, tuple(ins), tuple(outs), attrs) for op, name, ins, outs, attrs in document["nodes"]),
        constants={name: _read_constant(one) for name, one in document["constants"].items()},
        host=frozenset(document["host"]),
        late=frozenset(document["late"]),
        segments=tuple(_read_segment(one) for one in document["segments"]),
    )


def _specs(found: Sequence[Mapping[str, Any]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec.from_map(one) for one in found)


def _read_constant(one: Sequence[Any]) -> Constant:
    dtype, shape, data, at = one
    return Constant(str(dtype), tuple(shape), data, None if at is None else (str(at[0]), int(at[1]), int(at[2])))


def _read_segment(one: Mapping[str, Any]) -> Segment:
    return Segment(
        bytes(one["code"]), _specs(one["inputs"]), _specs(one["outputs"]), tuple(one["nodes"]), str(one["reason"]),
        tuple(one["weights"]),
    )  # fmt: skip


def place(graph: Graph, places: Mapping[str, tuple[str, int, int]], segments: Sequence[bytes]) -> Graph:
    """`graph` with the place of each weight and the final bytes of its segments; BackendError for one without."""
    found = {}
    for name, one in graph.constants.items():
        if one.place is None:
            found[name] = one
            continue
        if name not in places:
            raise BackendError("weight has no place", where=f"graph {graph.name}", found=name)
        found[name] = Constant(one.dtype, one.shape, one.data, places[name])
    placed = tuple(
        Segment(code, one.inputs, one.outputs, one.nodes, one.reason, one.weights)
        for one, code in zip(graph.segments, segments, strict=True)
    )
    return Graph(graph.name, graph.inputs, graph.outputs, graph.nodes, found, graph.host, graph.late, placed)
