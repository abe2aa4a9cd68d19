# SPDX-License-Identifier: Apache-2.0
"""Who runs what."""

from __future__ import annotations

from typing import Any

import numpy as np
from dpfedge_opencl import ops
from dpfedge_opencl.ops.api import Node
from dpfedge_opencl.partition import Where, contents, late_inputs, parts, sort_out


class _Lowering:
    arch = "any"
    features: frozenset[str] = frozenset()

    def __init__(self, constants: dict[str, Any]) -> None:
        self._constants = constants

    def weight(self, name: str) -> Any:
        """The constant."""
        return self._constants.get(name)

    def add(self, node: Node, role: str, array: Any) -> str:
        """Never."""
        raise AssertionError(node, role, array)


def _node(op: str, inputs: str, output: str) -> Node:
    return Node(op, output, tuple(inputs.split()), (output,), {})


def _sort(nodes: list[Node], **constants: Any) -> tuple[dict[str, Where], dict[str, str]]:
    assert ops.__all__
    dtypes = {out: "f32" for node in nodes for out in (*node.outputs, *node.inputs)}
    return sort_out(nodes, dtypes, constants, _Lowering(constants))


def test_sort_out__shape_arithmetic_is_the_hosts() -> None:
    """Sizes never become kernels."""
    nodes = [_node("Shape", "x", "s"), _node("Gather", "s zero", "n"), _node("Relu", "x", "y")]
    places, reasons = _sort(nodes, zero=np.array(0))
    assert places == {"s": "host", "n": "host", "y": "kernel"}
    assert reasons == {}


def test_sort_out__what_depends_on_data_is_the_cpus() -> None:
    """With the reason."""
    places, reasons = _sort([_node("Relu", "x", "n"), _node("NonZero", "n", "y"), _node("Unheard", "y", "z")])
    assert places == {"n": "kernel", "y": "cpu", "z": "cpu"}
    assert reasons["z"] == "Unheard: no kernel"


def test_parts__are_as_few_as_an_order_allows() -> None:
    """Independent nodes of the CPU go together."""
    nodes = [_node("A", "x", "a"), _node("B", "x", "b"), _node("C", "a", "c"), _node("MatMul", "b", "d")]
    places: dict[str, Where] = {"a": "cpu", "b": "kernel", "c": "cpu", "d": "kernel"}
    found = parts(nodes, places)
    assert [(one.where, [node.name for node in one.nodes]) for one in found] == [
        ("kernel", ["b", "d"]), ("cpu", ["a", "c"]),
    ]  # fmt: skip


def test_parts__light_kernels_between_two_parts_of_the_cpu_join_them() -> None:
    """Two changes of place cost more than they do; a product stays."""
    nodes = [_node("A", "x", "a"), _node("Relu", "a", "b"), _node("C", "b", "c")]
    places: dict[str, Where] = {"a": "cpu", "b": "kernel", "c": "cpu"}
    assert [one.where for one in parts(nodes, places)] == ["cpu"]
    nodes[1].op = "MatMul"
    places["b"] = "kernel"
    assert [one.where for one in parts(nodes, places)] == ["cpu", "kernel", "cpu"]


def test_late_inputs__are_read_by_size_alone() -> None:
    """And by nothing that decides a shape."""
    nodes = [_node("Shape", "mask", "s"), _node("Mul", "x s", "y")]
    places: dict[str, Where] = {"s": "host", "y": "kernel"}
    assert late_inputs(nodes, places, ["mask", "x"], set()) == {"mask"}
    nodes.append(_node("Reshape", "x s", "z"))
    places["z"] = "kernel"
    assert late_inputs(nodes, places, ["mask", "x"], set()) == set()


def test_contents__of_operators_that_read_values_as_sizes() -> None:
    """Reshape its second input, and so on."""
    assert contents("Reshape") == (1,)
    assert contents("Relu") == ()
