# SPDX-License-Identifier: Apache-2.0
"""Fusion: neighbours that are elementwise become one `Chain`, and chains become epilogues of the kernels before them.

It never changes a result's shape; what it computes twice is lighter than a launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.tensors import TensorSpec, dtype_name
from dpfedge_opencl.fuse_epilogue import give_epilogues
from dpfedge_opencl.fuse_parts import read_parts
from dpfedge_opencl.lower_shapes import Shapes, sample_shapes
from dpfedge_opencl.ops.api import Node
from dpfedge_opencl.ops.chain import CONTRIBUTED, ELEMENTWISE, chain_attrs

__all__ = ["fuse", "is_elementwise"]

_OPERANDS = 10  # kernel arguments and registers are not endless
_STEPS = 48


@dataclass(slots=True, eq=False)
class _Group:
    """Elementwise nodes that become one chain, at the place of the last of them."""

    nodes: list[Node]
    at: int


def fuse(
    nodes: Sequence[Node], host: Set[str], inputs: Sequence[TensorSpec], outputs: Set[str],
    constants: dict[str, Array], dtypes: dict[str, str],
) -> list[Node]:  # fmt: skip
    """The nodes with chains and epilogues, in an order in which they can run."""
    shapes = sample_shapes(nodes, host, inputs, constants)
    nodes = [node if node.name in host else _plain(node, shapes, constants) for node in nodes]
    dtypes.update((name, dtype_name(array.dtype)) for name, array in constants.items() if name not in dtypes)
    groups = _groups(nodes, host, outputs, shapes, constants)
    made: list[Node] = []
    for index, node in enumerate(nodes):
        group = groups.get(node.name)
        if group is None:
            made.append(node)
        elif group.at == index:
            made.append(_chain(group, nodes, groups, outputs, shapes, constants, dtypes))
    return read_parts(give_epilogues(made, outputs, shapes, dtypes), outputs, shapes, constants)


_OF_ONE = frozenset({"ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"})
_NEUTRAL = {"Add": (0.0, (0, 1)), "Sub": (0.0, (1,)), "Mul": (1.0, (0, 1)), "Div": (1.0, (1,))}


def _plain(node: Node, shapes: Shapes, constants: dict[str, Array]) -> Node:
    """`Identity` for a sum with 0 or a product with 1 of the same shape, `Reshape` for a mean of single elements."""
    if node.op in _OF_ONE and (shape := _of_one(node, shapes)) is not None:
        constants[f"{node.name}.shape"] = np.array(shape, np.int64)
        return Node("Reshape", node.name, (node.inputs[0], f"{node.name}.shape"), node.outputs, {"allowzero": 1})
    value, places = _NEUTRAL.get(node.op, (0.0, ()))
    for place in places:
        array, other = constants.get(node.inputs[place]), node.inputs[1 - place]
        same = other in shapes and shapes.get(node.outputs[0]) == shapes[other]
        if array is not None and same and array.size and bool((array == value).all()):
            return Node("Identity", node.name, (other,), node.outputs, {})
    return node


def _of_one(node: Node, shapes: Shapes) -> tuple[int, ...] | None:
    """The shape of a reduction of single elements: its input's values, where all sizes are fixed."""
    before, after = shapes.get(node.inputs[0]), shapes.get(node.outputs[0])
    if before is None or after is None or before[0] != before[1] or math.prod(before[0]) != math.prod(after[0]):
        return None
    return after[0]


def is_elementwise(node: Node) -> bool:
    """Whether the node can be a step of a chain."""
    return node.op in ELEMENTWISE or node.op in CONTRIBUTED


def _groups(
    nodes: Sequence[Node], host: Set[str], outputs: Set[str], shapes: Shapes, constants: Mapping[str, Array]
) -> dict[str, _Group]:
    users: dict[str, list[int]] = {}
    makers: dict[str, Node] = {}
    for index, node in enumerate(nodes):
        for name in node.inputs:
            users.setdefault(name, []).append(index)
        makers.update((out, node) for out in node.outputs)
    groups: dict[str, _Group] = {}
    for index, node in enumerate(nodes):
        if node.name in host or not is_elementwise(node):
            continue
        mine = groups[node.name] = _Group([node], index)
        for name in dict.fromkeys(node.inputs):
            before = groups.get(makers[name].name) if name in makers else None
            if before is None or before is mine:
                continue
            if not _same_shape(name, node, shapes, constants) and not _cheap(before, name, users):
                continue
            if _can_move(before, mine, nodes, groups, users, index) and _fits(before, mine, constants):
                mine.nodes = [*before.nodes, *mine.nodes]
                groups.update((one.name, mine) for one in before.nodes)
    return groups


def _same_shape(name: str, node: Node, shapes: Shapes, constants: Mapping[str, Array]) -> bool:
    """Whether an input of an elementwise node has its result's shape."""
    result = node.outputs[0]
    if name in shapes and result in shapes:
        return shapes[name] == shapes[result]
    others = [one for one in node.inputs if one and one != name]
    return all(one in constants and constants[one].ndim == 0 for one in others)


_LIGHT = frozenset({"Add", "Sub", "Mul", "Neg", "Abs", "Max", "Min", "Relu", "Clip", "Sqrt", "Cast"})


def _cheap(before: _Group, name: str, users: Mapping[str, list[int]]) -> bool:
    """Whether a small operand may be computed where it is spread, for each row or element anew: a launch costs more."""
    alone = len(users[name]) == 1 and len(before.nodes) <= 2 and before.nodes[-1].outputs[0] == name
    inner = all(len(users.get(node.outputs[0], ())) == 1 for node in before.nodes)
    return alone and inner and all(node.op in _LIGHT for node in before.nodes)


def _can_move(
    before: _Group, mine: _Group, nodes: Sequence[Node], groups: Mapping[str, _Group],
    users: Mapping[str, list[int]], index: int,
) -> bool:  # fmt: skip
    """Whether nothing outside needs `before` earlier than at `index`."""
    for node in before.nodes:
        for out in node.outputs:
            for user in users.get(out, ()):
                group = groups.get(nodes[user].name)
                if group is before or group is mine:
                    continue
                if (user if group is None else group.at) <= index:
                    return False
    return True


def _fits(before: _Group, mine: _Group, constants: Mapping[str, Array]) -> bool:
    nodes = [*before.nodes, *mine.nodes]
    made = {out for node in nodes for out in node.outputs}
    read = {one for node in nodes for one in node.inputs if one and one not in made}
    return len(nodes) <= _STEPS and sum(one not in constants or constants[one].size > 1 for one in read) <= _OPERANDS


def _chain(
    group: _Group, nodes: Sequence[Node], groups: Mapping[str, _Group], outputs: Set[str], shapes: Shapes,
    constants: Mapping[str, Array], dtypes: Mapping[str, str],
) -> Node:  # fmt: skip
    """The node that computes a group."""
    made = {out for node in group.nodes for out in node.outputs}
    read = [one for node in group.nodes for one in node.inputs if one and one not in made]
    inlined = _inlined(group, read, shapes, constants)
    wanted = [one for node in group.nodes for one in _operands(node, inlined) if one not in made]
    operands = [one for one in dict.fromkeys(wanted) if one not in inlined]
    places = {name: index for index, name in enumerate(operands)}
    steps: list[list[Any]] = []
    for node in group.nodes:
        for name in dict.fromkeys(_operands(node, inlined)):
            if name in inlined and name not in places:
                places[name] = len(operands) + len(steps)
                steps.append(["Constant", [], {"value": constants[name].reshape(-1)[0].item()}, dtypes[name]])
        steps += _steps(node, places, len(operands) + len(steps), constants, inlined, dtypes)
        places[node.outputs[0]] = len(operands) + len(steps) - 1
    inside = {id(node) for node in group.nodes}
    outside = {one for node in nodes if id(node) not in inside for one in node.inputs}
    results = [node.outputs[0] for node in group.nodes if node.outputs[0] in outside or node.outputs[0] in outputs]
    results = results or [group.nodes[-1].outputs[0]]
    attrs = chain_attrs(steps, [dtypes[one] for one in operands], [places[one] for one in results])
    return Node("Chain", group.nodes[-1].name, tuple(operands), tuple(results), attrs)


def _inlined(group: _Group, read: Sequence[str], shapes: Shapes, constants: Mapping[str, Array]) -> set[str]:
    """Constants of one element that become part of the text; one may stay, where it alone gives the result its rank."""
    single = {one for one in read if one in constants and constants[one].size == 1}
    rank = len(shapes[group.nodes[-1].outputs[0]][0]) if group.nodes[-1].outputs[0] in shapes else None
    others = [one for one in read if one not in single]
    if not others:
        return {one for one in single if one != read[0]}
    if rank is None or any(one not in shapes for one in others):
        return {one for one in single if constants[one].ndim == 0}
    most = max(len(shapes[one][0]) for one in others)
    return {one for one in single if constants[one].ndim <= most}


def _operands(node: Node, inlined: Set[str]) -> list[str]:
    """A node's inputs without those that become attributes: limits of Clip, a known exponent."""
    if node.op == "Clip" or (node.op == "Pow" and node.inputs[1] in inlined and node.inputs[0] != node.inputs[1]):
        return [node.inputs[0]]
    return [one for one in node.inputs if one]


def _steps(
    node: Node, places: Mapping[str, int], at: int, constants: Mapping[str, Array], inlined: Set[str],
    dtypes: Mapping[str, str],
) -> list[list[Any]]:  # fmt: skip
    """The steps of one node, the first of which is step or operand number `at`."""
    op = CONTRIBUTED.get(node.op, node.op)
    attrs = {key: value for key, value in node.attrs.items() if isinstance(value, (int, float, str))}
    given = _operands(node, inlined)
    if op == "Clip":
        limits = zip(("min", "max"), node.inputs[1:], strict=False)
        attrs |= {key: float(constants[one].reshape(-1)[0]) for key, one in limits if one}
    if op == "Pow" and len(given) == 1:
        attrs["exponent"] = float(constants[node.inputs[1]].reshape(-1)[0])
    result = dtypes[node.outputs[0]]
    if op == "BiasGelu":
        return [["Add", [places[one] for one in given], {}, result], ["Gelu", [at], {}, result]]
    return [[op, [places[one] for one in given], attrs, result]]
