# SPDX-License-Identifier: Apache-2.0
"""Golden records of a manifest: decoded maps in, records whose every range lies in its section out.

A record says what one graph answers to known inputs, and how far an answer may be off. It runs nothing and reads no
section; `dpfedge.binding.golden` does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpfedge import limits
from dpfedge.errors import FormatError
from dpfedge.package.fields import Node
from dpfedge.records import dataclass
from dpfedge.tensors import DTYPE_BYTES, TensorSpec

if TYPE_CHECKING:
    from dpfedge.package.manifest import Graph, Manifest

__all__ = ["Golden", "GoldenTensor", "check_golden", "read_golden", "read_records"]

_NOT_HELD = ("bytes", "bf16")  # no array of NumPy has them


@dataclass(frozen=True, slots=True)
class GoldenTensor:
    """Values in a golden section: `size` bytes at `offset` of it, C order, of `dtype` and `dims`.

    For an output they are the box that begins at index `at` of the whole output, whose sizes are `whole`, and the
    error may be at most `max_abs` per element and `rel_l2` of the box's norm; without either, values must be equal.
    """

    dtype: str
    dims: tuple[int, ...]
    offset: int
    size: int
    at: tuple[int, ...]
    whole: tuple[int, ...]
    max_abs: float | None = None
    rel_l2: float | None = None


@dataclass(frozen=True, slots=True)
class Golden:
    """One call of one graph. Without `target` it holds for every target that has the graph."""

    model: str
    graph: str
    target: str | None
    section: str
    inputs: Mapping[str, GoldenTensor]
    """Inputs that are missing are zero."""
    outputs: Mapping[str, GoldenTensor]
    in_place: tuple[tuple[str, str], ...]
    """(beginning of output names, beginning of input names): such an output is written into that input's memory."""
    index: int
    """Its place among the manifest's records, notes included."""

    def in_place_of(self, output: str) -> str | None:
        """The input whose memory takes `output`, or None."""
        for written, read in self.in_place:
            if output.startswith(written):
                return read + output[len(written) :]
        return None


def read_records(node: Node) -> tuple[Golden, ...]:
    """The records of field `golden`, without notes; FormatError names what is wrong."""
    found = tuple(
        record for index, item in enumerate(node.items(limits.GOLDEN_MAX)) if (record := read_golden(item, index))
    )
    tensors = sum(len(record.inputs) + len(record.outputs) for record in found)
    if tensors > limits.GOLDEN_TENSORS_MAX:
        raise node.error("too many tensors in all records", found=tensors, allowed=limits.GOLDEN_TENSORS_MAX)
    return found


def read_golden(node: Node, index: int = 0) -> Golden | None:
    """A record with its types checked; None for a note, which names no graph."""
    if node.find("graph").absent():
        return None
    target = node.find("target")
    return Golden(
        node.find("model").name(),
        node.find("graph").name(),
        None if target.absent() else target.name(),
        node.find("section").name(),
        _tensors(node.find("inputs")),
        _tensors(node.find("outputs")),
        tuple(_pair(item) for item in node.find("in_place").items(limits.PORTS_MAX)),
        index,
    )


def _pair(node: Node) -> tuple[str, str]:
    parts = node.items(2)
    if len(parts) != 2:
        raise node.error("wrong length", found=len(parts), allowed="[output, input]")
    return parts[0].text(limits.NAME_MAX_BYTES), parts[1].text(limits.NAME_MAX_BYTES)


def _tensors(node: Node) -> dict[str, GoldenTensor]:
    return {name: _tensor(item) for name, item in node.ports()}


def _tensor(node: Node) -> GoldenTensor:
    dtype, dims = node.find("dtype").text(limits.NAME_MAX_BYTES), _sizes(node.find("dims"))
    if dtype not in DTYPE_BYTES or dtype in _NOT_HELD:
        allowed = ", ".join(name for name in DTYPE_BYTES if name not in _NOT_HELD)
        raise node.find("dtype").error("unknown dtype", found=repr(dtype[:40]), allowed=allowed)
    at, whole = node.find("at"), node.find("whole")
    tensor = GoldenTensor(
        dtype,
        dims,
        node.find("offset").integer(0, limits.PACKAGE_MAX_BYTES),
        node.find("size").integer(0, limits.GOLDEN_TENSOR_MAX_BYTES),
        (0,) * len(dims) if at.absent() else _sizes(at),
        dims if whole.absent() else _sizes(whole),
        _tolerance(node.find("max_abs")),
        _tolerance(node.find("rel_l2")),
    )
    _check_tensor(node, tensor)
    return tensor


def _check_tensor(node: Node, tensor: GoldenTensor) -> None:
    wanted = math.prod(tensor.dims) * DTYPE_BYTES[tensor.dtype]
    if tensor.size != wanted:
        raise node.find("size").error("size differs from dtype and dims", found=tensor.size, allowed=wanted)
    if tensor.offset % DTYPE_BYTES[tensor.dtype]:
        raise node.find("offset").error(
            "values are not aligned", found=tensor.offset, allowed=DTYPE_BYTES[tensor.dtype]
        )
    if math.prod(tensor.whole) * DTYPE_BYTES[tensor.dtype] > limits.GOLDEN_TENSOR_MAX_BYTES:
        raise node.find("whole").error(
            "tensor is too large", found=tensor.whole, allowed=limits.GOLDEN_TENSOR_MAX_BYTES
        )
    fits = len(tensor.at) == len(tensor.dims) == len(tensor.whole) and all(
        start + size <= whole for start, size, whole in zip(tensor.at, tensor.dims, tensor.whole, strict=True)
    )
    if not fits:
        raise node.find("at").error("values lie outside the tensor", found=f"{tensor.at} + {tensor.dims}",
                                    allowed=tensor.whole)  # fmt: skip


def _sizes(node: Node) -> tuple[int, ...]:
    values = node.value
    if type(values) is list and len(values) <= limits.TENSOR_MAX_RANK and all(map(_is_size, values)):
        return tuple(values)
    return tuple(item.integer(0, limits.TENSOR_MAX_DIM) for item in node.items(limits.TENSOR_MAX_RANK))


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= limits.TENSOR_MAX_DIM


def _tolerance(node: Node) -> float | None:
    return None if node.absent() else node.number(0.0)


def check_golden(manifest: Manifest, where: str) -> None:
    """Each record's ranges lie in its section, and each name finds a graph and a port of the same type."""
    sizes = {section.name: section.size for section in manifest.sections}
    ports: dict[int, _Ports] = {}  # of each graph once: a manifest can name one graph in many records
    for record in manifest.golden:
        here = f"{where}: manifest.golden[{record.index}]"
        for kind, tensors in (("inputs", record.inputs), ("outputs", record.outputs)):
            for port, tensor in tensors.items():
                if tensor.offset + tensor.size > sizes[record.section]:
                    raise FormatError(
                        "values end behind their section", where=f"{here}.{kind}.{port}",
                        found=tensor.offset + tensor.size, allowed=sizes[record.section],
                    )  # fmt: skip
        for graph in _graphs(manifest, record, here):
            known = ports.get(id(graph)) or ports.setdefault(id(graph), _Ports(graph))
            _check_ports(record.inputs, known.inputs, f"{here}.inputs", sizes_bind=True)
            # what a model says of its outputs' sizes is a hope; the golden run compares them with `whole`
            _check_ports(record.outputs, known.outputs, f"{here}.outputs", sizes_bind=False)
            _check_rest(record, known, f"{here}.inputs")


class _Ports:
    """A graph's ports by name, and the inputs that cannot read as zero."""

    def __init__(self, graph: Graph) -> None:
        self.inputs = {port.name: port for port in graph.inputs}
        self.outputs = {port.name: port for port in graph.outputs}
        sizes = [(port, _bytes(port)) for port in graph.inputs]
        self.needed = [port for port, size in sizes if size is None or size > limits.GOLDEN_TENSOR_MAX_BYTES]


def _bytes(port: TensorSpec) -> int | None:
    """What an input takes when it is zero; None when a dimension is dynamic."""
    sizes = [dim for dim in port.dims if type(dim) is int]
    return math.prod(sizes) * DTYPE_BYTES[port.dtype] if len(sizes) == len(port.dims) else None


def _graphs(manifest: Manifest, record: Golden, here: str) -> Iterator[Graph]:
    """The graphs a record is about; FormatError when there is none."""
    targets = [target for target in manifest.targets if record.target in (None, target.id)]
    found = [
        target.models[record.model].graphs.get(record.graph) for target in targets if record.model in target.models
    ]
    graphs = [graph for graph in found if graph is not None]
    if not graphs:
        name = f"{record.target or 'any target'}: {record.model}.{record.graph}"
        raise FormatError("no such graph", where=f"{here}.graph", found=repr(name), allowed="a graph of the package")
    yield from graphs


def _check_ports(
    tensors: Mapping[str, GoldenTensor], known: Mapping[str, TensorSpec], where: str, *, sizes_bind: bool
) -> None:
    for name, tensor in tensors.items():
        port = known.get(name)
        if port is None:
            raise FormatError("no such port", where=where, found=repr(name), allowed=", ".join(known))
        same = len(port.dims) == len(tensor.whole) and all(
            type(dim) is str or dim == size for dim, size in zip(port.dims, tensor.whole, strict=True)
        )
        if port.dtype != tensor.dtype or (sizes_bind and not same):
            raise FormatError(
                "does not fit its port", where=f"{where}.{name}", found=f"{tensor.dtype}{list(tensor.whole)}",
                allowed=f"{port.dtype}{list(port.dims)}",
            )  # fmt: skip


def _check_rest(record: Golden, known: _Ports, where: str) -> None:
    """Inputs that read as zero have sizes, and not absurd ones."""
    for port in known.needed:
        if port.name in record.inputs:
            continue
        if _bytes(port) is None:
            raise FormatError("input without values has no sizes", where=where, found=repr(port.name))
        raise FormatError(
            "tensor is too large", where=where, found=f"{port.name!r}: {port.dims}",
            allowed=limits.GOLDEN_TENSOR_MAX_BYTES,
        )  # fmt: skip
