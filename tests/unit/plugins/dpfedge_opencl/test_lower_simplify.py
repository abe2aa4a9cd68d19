# SPDX-License-Identifier: Apache-2.0
"""What is left of a graph before anything is decided."""

from __future__ import annotations

import numpy as np
import onnx
from dpfedge_opencl.lower_onnx import open_source
from dpfedge_opencl.lower_simplify import simplify
from made_nodes import compare, model, node, port


def _simple(made: onnx.ModelProto) -> list[str]:
    source = open_source(made.SerializeToString(), "made")
    simplify(source, {one.name for one in made.graph.output})
    return [one.op for one in source.nodes]


def test_simplify__what_does_the_same_is_one() -> None:
    """Also where others read it by another name."""
    nodes = [node("Exp", "x", "a"), node("Exp", "x", "b"), node("Add", "a b", "y")]
    made = model(nodes, [port("x", ["n"])], [port("y", ["n"])])
    assert _simple(made) == ["Exp", "Add"]
    compare(made, x=np.ones(3, np.float32))


def test_simplify__random_numbers_are_not_the_same() -> None:
    """Each draws its own."""
    nodes = [node("RandomNormalLike", "x", "a"), node("RandomNormalLike", "x", "b"), node("Sub", "a b", "y")]
    assert _simple(model(nodes, [port("x", [3])], [port("y", [3])])).count("RandomNormalLike") == 2


def test_simplify__a_port_keeps_its_name() -> None:
    """Two ports with one value stay two nodes."""
    nodes = [node("Exp", "x", "y"), node("Exp", "x", "z")]
    assert _simple(model(nodes, [port("x", [3])], [port("y", [3]), port("z", [3])])) == ["Exp", "Exp"]
