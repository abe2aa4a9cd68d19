# SPDX-License-Identifier: Apache-2.0
"""One graph, one file: nodes in an order and generated tensors under names that depend on the graph alone.

onnxruntime's layout optimiser walks hash tables of addresses, so node order and generated names change from run to run.
It changes no node, and leaves graphs with branches as they are.
"""

from __future__ import annotations

import re

import onnx

__all__ = ["canonical"]

_GENERATED = re.compile(r"reorder|.*_token_\d+")


def canonical(model: onnx.ModelProto) -> None:
    """Sort `model`'s nodes from its outputs backwards and rename what the optimiser named."""
    graph = model.graph
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return
    nodes = [onnx.NodeProto.FromString(graph.node[index].SerializeToString()) for index in _order(graph)]
    names = _new_names(nodes, {value.name for value in (*graph.input, *graph.output)})
    for node in nodes:
        for ports in (node.input, node.output):
            for index, name in enumerate(ports):
                ports[index] = names.get(name, name)
        node.name = node.output[0]  # names of nodes are generated too, and outputs say as much
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    constants = sorted((tensor.name, tensor.SerializeToString()) for tensor in graph.initializer)
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(onnx.TensorProto.FromString(data) for _, data in constants)


def _order(graph: onnx.GraphProto) -> list[int]:
    """Indices so that each node follows its producers; depth first from the outputs, inputs in their order."""
    makers = {output: index for index, node in enumerate(graph.node) for output in node.output}
    order: list[int] = []
    seen: set[int] = set()
    stack = [(makers[value.name], False) for value in reversed(graph.output) if value.name in makers]
    while stack:
        index, ready = stack.pop()
        if ready:
            order.append(index)
        elif index not in seen:
            seen.add(index)
            stack.append((index, True))
            stack += [(makers[name], False) for name in reversed(graph.node[index].input) if name in makers]
    return order


def _new_names(nodes: list[onnx.NodeProto], ports: set[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    for index, node in enumerate(nodes):
        for place, name in enumerate(node.input):
            if name not in ports and name not in names and _GENERATED.match(name):
                names[name] = f"{node.op_type}.{index}.input{place}"
        for place, name in enumerate(node.output):
            if name not in ports and _GENERATED.match(name):
                names[name] = f"{node.op_type}.{index}.output{place}"
    return names
