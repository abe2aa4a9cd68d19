# SPDX-License-Identifier: Apache-2.0
"""Graphs inside graphs (If, Loop, Scan): names made one's own, and large weights moved to where they can be mapped.

A branch sees every value of the graphs around it. It changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set

import onnx

__all__ = ["branches", "drop_unused", "free_name", "graphs", "hoist", "names", "reads", "rewrite", "separate"]


def branches(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside one node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """`graph` and every graph inside its nodes, outermost first."""
    yield graph
    for node in graph.node:
        for branch in branches(node):
            yield from graphs(branch)


def separate(model: onnx.ModelProto) -> None:
    """Rename results of nodes in branches that are called as something outside.

    onnxruntime's layout optimiser numbers its tensors in each graph anew, and then refuses the file it wrote.
    """
    _separate(model.graph, frozenset())


def hoist(model: onnx.ModelProto, wanted: Callable[[onnx.TensorProto], bool]) -> None:
    """Move the `wanted` initialisers of branches to the outermost graph, where branches still see them.

    onnxruntime reads those of the outermost graph where the package maps them, and looks for others in files.
    """
    inner = list(graphs(model.graph))[1:]
    taken = names(model.graph) if inner else set()
    for graph in inner:
        results = {value.name for value in graph.output}
        for tensor in [tensor for tensor in graph.initializer if tensor.name not in results and wanted(tensor)]:
            old, new = tensor.name, free_name(f"{graph.name}/{tensor.name}", taken)
            taken.add(new)
            moved = model.graph.initializer.add()
            moved.CopyFrom(tensor)
            moved.name = new
            graph.initializer.remove(tensor)
            for node in graph.node:
                _read_instead(node, old, new)


def names(graph: onnx.GraphProto) -> set[str]:
    """What values are called in `graph` and in every graph inside."""
    return {name for one in graphs(graph) for name in _names(one)}


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output)


def free_name(name: str, taken: Set[str]) -> str:
    """`name`, or a longer one that is not in `taken`."""
    while name in taken:
        name += "_"
    return name


def _separate(graph: onnx.GraphProto, outer: Set[str]) -> None:
    everything = {*outer, *_names(graph)}
    renamed: dict[str, str] = {}
    for node in graph.node:
        for old, new in renamed.items():  # before its own result exists, a name means the outer one
            _read_instead(node, old, new)
        for index, name in enumerate(node.output):
            if name and name in outer:
                renamed[name] = free_name(f"{graph.name}/{name}", everything)
                everything.add(renamed[name])
                node.output[index] = renamed[name]
    for value in graph.output:
        value.name = renamed.get(value.name, value.name)
    for node in graph.node:
        for branch in branches(node):
            _separate(branch, everything)


def _read_instead(node: onnx.NodeProto, old: str, new: str) -> None:
    """Rename a value where `node` and its branches read it; a branch with a value of that name means its own."""
    for index, name in enumerate(node.input):
        if name == old:
            node.input[index] = new
    for branch in branches(node):
        if any(value.name == old for value in (*branch.input, *branch.initializer)):
            continue
        for inner in branch.node:
            _read_instead(inner, old, new)
            if old in inner.output:
                break


def rewrite(
    graph: onnx.GraphProto,
    instead: Callable[[onnx.NodeProto], Iterable[onnx.NodeProto]],
    made: Mapping[str, onnx.TensorProto],
) -> int:
    """Put what `instead` gives, where it gives any, in the place of each node of the outermost graph; how many.

    The constants that `instead` has left in `made` by the end are added, and what nobody reads any more is removed.
    """
    nodes: list[onnx.NodeProto] = []
    count = 0
    for node in graph.node:
        new = list(instead(node))
        count += bool(new)
        nodes += [onnx.NodeProto.FromString(one.SerializeToString()) for one in new or [node]]
    if count:
        del graph.node[:]
        graph.node.extend(nodes)
        graph.initializer.extend(made.values())
        drop_unused(graph)
    return count


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove the nodes of the outermost graph whose results nobody reads any more, and constants."""
    results = {value.name for value in graph.output}
    wanted = {name for node in graph.node for name in reads(node)} | results
    kept = [node for node in graph.node if any(name in wanted for name in node.output)]
    wanted = {name for node in kept for name in reads(node)} | results | {value.name for value in graph.input}
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    constants = [one for one in graph.initializer if one.name in wanted]
    constants = [onnx.TensorProto.FromString(one.SerializeToString()) for one in constants]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """What a node, and the graphs inside it, read and hand out."""
    yield from node.input
    for branch in branches(node):
        for inner in graphs(branch):
            yield from (name for one in inner.node for name in one.input)
            yield from (value.name for value in inner.output)
