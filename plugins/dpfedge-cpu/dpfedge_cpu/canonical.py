# SPDX-License-Identifier: Apache-2.0
"""One graph, one file: nodes in an order and generated tensors under names that depend on the graph alone.

onnxruntime's layout optimiser walks hash tables of addresses, so node order and generated names change from run to run.
It changes no node. Names inside branches must be their own (`dpfedge_cpu.branches.separate`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import onnx

from dpfedge_cpu.branches import branches

__all__ = ["canonical"]

_GENERATED = re.compile(r"reorder|.*_token_\d+")


def canonical(model: onnx.ModelProto) -> None:
    """Sort the nodes of `model`, and of each branch, from its outputs backwards; rename what the optimiser named."""
    _sort(model.graph)
    ports = {value.name for value in (*model.graph.input, *model.graph.output)}
    _Names(ports).rename(model.graph, ())


def _sort(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for branch in branches(node):
            _sort(branch)
    nodes = [onnx.NodeProto.FromString(graph.node[index].SerializeToString()) for index in _order(graph)]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)


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
            read = list(_reads(graph.node[index]))
            stack += [(makers[name], False) for name in reversed(read) if name in makers]
    return order


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node and its branches read, in their order."""
    yield from node.input
    for branch in branches(node):
        for inner in branch.node:
            yield from _reads(inner)
        yield from (value.name for value in branch.output)


class _Names:
    """Gives generated tensors new names, numbered along the sorted nodes of the graph and its branches."""

    def __init__(self, ports: set[str]) -> None:
        self._ports, self._count = ports, itertools.count()

    def rename(self, graph: onnx.GraphProto, outer: tuple[dict[str, str], ...]) -> None:
        """`outer`: for each graph around, the names of its values → what they are called now."""
        own = {name: name for name in _values(graph)}
        scopes = (own, *outer)
        for node in graph.node:
            index = next(self._count)
            for place, name in enumerate(node.input):
                self._choose(scopes, name, f"{node.op_type}.{index}.input{place}")
                node.input[place] = _now(scopes, name)
            for branch in branches(node):
                self.rename(branch, scopes)
            for place, name in enumerate(node.output):
                self._choose(scopes, name, f"{node.op_type}.{index}.output{place}")
                node.output[place] = _now(scopes, name)
            node.name = node.output[0]  # names of nodes are generated too, and outputs say as much
        for value in graph.output:
            value.name = _now(scopes, value.name)
        for tensor in graph.initializer:
            tensor.name = _now(scopes, tensor.name)
        constants = sorted((tensor.name, tensor.SerializeToString()) for tensor in graph.initializer)
        del graph.initializer[:]
        graph.initializer.extend(onnx.TensorProto.FromString(data) for _, data in constants)

    def _choose(self, scopes: tuple[dict[str, str], ...], name: str, new: str) -> None:
        """Take `new` for a generated name that still has its own, where it was made."""
        for scope in scopes:
            if name in scope:
                if scope[name] == name and name not in self._ports and _GENERATED.match(name):
                    scope[name] = new
                return


def _values(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from (name for name in node.output if name)


def _now(scopes: tuple[dict[str, str], ...], name: str) -> str:
    return next((scope[name] for scope in scopes if name in scope), name)
