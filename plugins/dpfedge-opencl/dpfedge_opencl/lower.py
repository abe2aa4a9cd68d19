# SPDX-License-Identifier: Apache-2.0
"""Lowering at compile time: an ONNX graph in; nodes of this backend, packed weights and parts for the CPU plugin out.

The steps: onnxruntime's basic optimiser (`lower_onnx`), who runs what (`partition`), sub-models of what runs on the CPU
(`lower_segments`), fusion (`fuse`), and each operator's own packing.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpfedge.backend.api import Array, LoweredGraph, LowerRequest
from dpfedge.backend.onnx_graph import WEIGHT_MIN_BYTES, graph_ports
from dpfedge.tensors import dtype_name
from dpfedge_opencl.fuse import fuse
from dpfedge_opencl.graph import SEGMENT, Constant, Graph, Segment, place, prefix, read, write
from dpfedge_opencl.lower_blocks import fold_blocks
from dpfedge_opencl.lower_onnx import Source, open_source
from dpfedge_opencl.lower_segments import arrange, lower_segment
from dpfedge_opencl.lower_simplify import simplify
from dpfedge_opencl.ops.api import OPS, Node
from dpfedge_opencl.ops.nbits import BLOCKED
from dpfedge_opencl.partition import contents, late_inputs, parts, sort_out

__all__ = ["finish", "lower"]


class _Lowering:
    """What an operator may do when its graph is lowered (`ops.api.Lowering`)."""

    def __init__(self, request: LowerRequest, constants: dict[str, Array], dtypes: dict[str, str]) -> None:
        self.arch, self.features = request.arch, request.features
        self._constants, self._dtypes = constants, dtypes

    def weight(self, name: str) -> Array | None:
        """The constant's contents; None when `name` is computed."""
        return self._constants.get(name)

    def add(self, node: Node, role: str, array: Array) -> str:
        """A new constant in the package; its name."""
        name = f"{node.name}/{role}"
        assert name not in self._constants, name
        self._constants[name] = np.ascontiguousarray(array).reshape(array.shape)
        self._dtypes[name] = dtype_name(array.dtype)
        return name


def lower(request: LowerRequest) -> LoweredGraph:
    """Kernels for what this backend has, the CPU plugin for the rest; the same request gives the same bytes."""
    source = open_source(request.onnx, request.name)
    inputs, outputs = graph_ports(source.model, f"graph {request.name}")
    names = {spec.name for spec in outputs}
    simplify(source, names)
    lowering = _Lowering(request, source.constants, source.dtypes)
    places, reasons = sort_out(source.nodes, source.dtypes, source.constants, lowering)
    fold_blocks(source, places, names)
    asked = sum(_may_round(node) for node in source.nodes)
    rows = parts(source.nodes, places)
    late = late_inputs(source.nodes, places, [spec.name for spec in inputs], names)
    order, groups = arrange(source, rows, places, names)
    weights: dict[str, Array] = {}
    segments: list[Segment] = []
    for index, group in enumerate(groups):
        segment, arrays = lower_segment(request, source, group, index, reasons, places)
        segments.append(segment)
        weights.update((f"{prefix(index)}{name}", array) for name, array in arrays.items())
    host = frozenset(node.name for node in order if places.get(node.name) == "host")
    for node in order:  # before fusion, which asks for shapes: some operators know theirs only then
        if node.op != SEGMENT and node.name not in host:
            OPS[node.op].lower(node, lowering)
    nodes = fuse(order, host, inputs, names, source.constants, source.dtypes)
    constants, mine = _constants(nodes, host, names, source)
    graph = Graph(request.name, inputs, outputs, tuple(nodes), constants, host, frozenset(late), tuple(segments))
    finer = 0 < asked == sum(_may_round(node) for node in nodes)
    return LoweredGraph(
        write(graph), {**mine, **weights}, inputs, outputs, _decisions(graph, source), "block16" if finer else "graph"
    )


def _may_round(node: Node) -> bool:
    """Whether it is a product with blocks that may round activations to 8 bits; kernels round them to 16."""
    return node.op == BLOCKED and node.attrs.get("accuracy_level") == 4


def _constants(
    nodes: list[Node], host: frozenset[str], outputs: set[str], source: Source
) -> tuple[dict[str, Constant], dict[str, Array]]:
    """(constants that are left, those that kernels read from the package)."""
    read: dict[str, None] = dict.fromkeys(name for name in source.constants if name in outputs)
    used: dict[str, None] = {**read}
    known: set[str] = set()
    for node in nodes:
        mine = [name for name in node.inputs if name in source.constants]
        skip = {node.inputs[place] for place in contents(node.op) if place < len(node.inputs)}
        used.update(dict.fromkeys(mine))
        known.update(mine if node.name in host else skip)
        if node.name not in host:
            fresh = [name for place, name in enumerate(node.inputs) if place not in contents(node.op)]
            read.update(dict.fromkeys(name for name in fresh if name in source.constants))
        for op, _, inputs, _, _, on_host in node.attrs.get("inner") or ():
            used.update(dict.fromkeys(name for name in inputs if name in source.constants))
            places = range(len(inputs)) if on_host else contents(op)
            known.update(inputs[place] for place in places if place < len(inputs))
    found, weights = {}, {}
    for name in used:
        array = source.constants[name]
        weight = name in read and array.size > 1
        inline = name in known or array.size == 1 or (name in read and array.nbytes < WEIGHT_MIN_BYTES)
        data = array.tobytes() if inline else None
        found[name] = Constant(source.dtypes[name], array.shape, data, ("", 0, 0) if weight else None)
        if weight:
            weights[name] = array
    return found, weights


def _decisions(graph: Graph, source: Source) -> tuple[tuple[str, str], ...]:
    kernels = sum(node.op != SEGMENT and node.name not in graph.host for node in graph.nodes)
    found = [(f"kernels={kernels}", f"{len(source.nodes)} operators, fused where one kernel can compute several")]
    for index, one in enumerate(graph.segments):
        values = f"{len(one.inputs)} values in, {len(one.outputs)} out"
        cost = f"costs a wait for the device before it, {values}, over the same memory"
        found.append((f"cpu segment {index}: {len(one.nodes)} operators", f"{one.reason}; {cost}"))
    if graph.late:
        found.append((f"late={','.join(sorted(graph.late))}", "only values on the device follow from these sizes"))
    return tuple(found)


def finish(lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
    """The graph's bytes with the place of each weight, those of the CPU's parts among them."""
    from dpfedge_cpu import CpuBackend

    graph = read(lowered.code, "a lowered graph")
    codes = []
    for index, one in enumerate(graph.segments):
        begin = prefix(index)
        theirs = {name: lowered.weights[begin + name] for name in one.weights}
        known = {name: places[begin + name] for name in one.weights if begin + name in places}
        codes.append(CpuBackend().finish(LoweredGraph(one.code, theirs, one.inputs, one.outputs), known))
    return write(place(graph, places, codes))
