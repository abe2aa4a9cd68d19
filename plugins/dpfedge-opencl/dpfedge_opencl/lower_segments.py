# SPDX-License-Identifier: Apache-2.0
"""Parts of a graph that the CPU plugin runs: rows of nodes in, ONNX sub-models lowered by that plugin out.

It also puts the host's nodes where they are needed first. It decides nothing; `partition` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.api import Array, LoweredGraph, LowerRequest
from dpfedge_opencl.graph import SEGMENT, Segment
from dpfedge_opencl.hostvalues import SHAPES
from dpfedge_opencl.lower_onnx import DTYPES, Source
from dpfedge_opencl.ops.api import OPS, Node
from dpfedge_opencl.partition import Part, Where, contents

__all__ = ["Group", "arrange", "lower_segment"]

_NUMBERS = {name: number for number, name in DTYPES.items()}


@dataclass(slots=True)
class Group:
    """What one segment holds."""

    nodes: list[Node]
    """With the host's nodes that it needs inside."""
    inputs: list[str]
    outputs: list[str]


def arrange(
    source: Source, rows: Sequence[Part], places: Mapping[str, Where], outputs: Set[str]
) -> tuple[list[Node], list[Group]]:
    """(nodes in order, a `CpuSegment` for each part of the CPU, what those hold)."""
    host = {out: node for node in source.nodes if places[node.name] == "host" for out in node.outputs if out}
    order: list[Node] = []
    groups: list[Group] = []
    seen: set[str] = set()
    for row in rows:
        if row.where == "cpu":
            group = _group(row, host, source)
            _demand(group.inputs, host, seen, order)
            order.append(_segment_node(len(groups), group))
            groups.append(group)
            continue
        for node in row.nodes:
            _demand(node.inputs, host, seen, order)
            order.append(node)
    _demand(sorted(outputs), host, seen, order)
    used = {one for node in order for one in node.inputs if one} | outputs
    for node in order:
        if node.op == SEGMENT:
            group = groups[node.attrs["segment"]]
            group.outputs = [out for one in group.nodes for out in one.outputs if out in used and out not in seen]
            node.outputs = tuple(group.outputs)
            node.attrs["inner"] = _inner(group, source, places)
    return order, groups


def _demand(names: Sequence[str], host: Mapping[str, Node], seen: set[str], order: list[Node]) -> None:
    """Append the host's nodes that `names` follow from, each once."""
    for name in names:
        if name in host and name not in seen:
            node = host[name]
            seen.update(out for out in node.outputs if out)
            _demand(node.inputs, host, seen, order)
            order.append(node)


def _group(row: Part, host: Mapping[str, Node], source: Source) -> Group:
    made = {out for node in row.nodes for out in node.outputs if out}
    nodes: list[Node] = []
    taken: set[str] = set()

    def inside(name: str) -> bool:
        """Whether a value follows from this part's, by way of the host."""
        if name in made:
            return True
        return name in host and any(inside(one) for one in host[name].inputs if one)

    def pull(name: str) -> None:
        node = host.get(name)
        if node is None or node.name in taken or not inside(name):
            return
        taken.add(node.name)
        for one in node.inputs:
            pull(one)
        nodes.append(node)

    for node in row.nodes:
        for one in node.inputs:
            pull(one)
        nodes.append(node)
    made |= {out for node in nodes for out in node.outputs if out}
    stays = {*source.constants, *source.packed, *made, ""}
    inputs = dict.fromkeys(one for node in nodes for one in node.inputs if one not in stays)
    return Group(nodes, list(inputs), [])


def _segment_node(index: int, group: Group) -> Node:
    return Node(SEGMENT, f"cpu{index}", tuple(group.inputs), (), {"segment": index, "inner": None})


def _inner(group: Group, source: Source, places: Mapping[str, Where]) -> list[object] | None:
    """The nodes for working out shapes alone; None where only a run tells them."""
    found: list[object] = []
    known = {*source.constants, *(out for one in source.nodes if places[one.name] == "host" for out in one.outputs)}
    for node in group.nodes:
        host = places[node.name] == "host"
        data = {node.inputs[place] for place in contents(node.op) if place < len(node.inputs)} - {""}
        if not host and (
            not getattr(OPS.get(node.op), "alone", False) or not data <= known or "graph" in node.attrs.values()
        ):
            return None
        if host and not known.issuperset(one for one in node.inputs if one and node.op not in SHAPES):
            return None
        if host:
            known.update(node.outputs)
        found.append([node.op, node.name, list(node.inputs), list(node.outputs), node.attrs, host])
    return found


def lower_segment(
    request: LowerRequest,
    source: Source,
    group: Group,
    index: int,
    reasons: Mapping[str, str],
    places: Mapping[str, Where],
) -> tuple[Segment, Mapping[str, Array]]:
    """The segment and its weights, lowered by the CPU plugin for `options["cpu"]` (`arch`, `features`)."""
    from dpfedge_cpu import CpuBackend

    model = _model(request, source, group, index)
    cpu = request.options.get("cpu", {})
    options = {key: value for key, value in request.options.items() if key != "cpu"}
    lowered: LoweredGraph = CpuBackend().lower(
        LowerRequest(
            f"{request.name}.cpu{index}", model.SerializeToString(deterministic=True), cpu.get("arch", "any"),
            frozenset(cpu.get("features", ())), options,
        )
    )  # fmt: skip
    names = tuple(f"{node.op} {node.name}" for node in group.nodes if places[node.name] != "host")
    segment = Segment(
        lowered.code, lowered.inputs, lowered.outputs, names, _reason(group, reasons), tuple(lowered.weights)
    )
    return segment, lowered.weights


def _reason(group: Group, reasons: Mapping[str, str]) -> str:
    counted = Counter(reasons[node.name] for node in group.nodes if node.name in reasons)
    return "; ".join(f"{reason} ×{count}" if count > 1 else reason for reason, count in counted.most_common())


def _model(request: LowerRequest, source: Source, group: Group, index: int) -> onnx.ModelProto:
    used = {one for node in group.nodes for one in node.inputs}
    initializers: list[TensorProto] = [tensor for name, tensor in source.packed.items() if name in used]
    originals = {tensor.name: tensor for tensor in source.model.graph.initializer}
    for name in source.constants:
        if name in used and name not in source.packed:
            found = originals.get(name)
            initializers.append(numpy_helper.from_array(source.constants[name], name) if found is None else found)
    inputs = [_port(name, source) for name in group.inputs]
    outputs = [_port(name, source) for name in group.outputs]
    nodes = [source.protos[node.name] for node in group.nodes]
    graph = helper.make_graph(nodes, f"{request.name}.cpu{index}", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=source.model.opset_import, ir_version=source.model.ir_version)
    model.functions.extend(source.model.functions)
    return model


def _port(name: str, source: Source) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _NUMBERS[source.dtypes[name]], None)
