# SPDX-License-Identifier: Apache-2.0
"""Lowering as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.lower import finish, lower
from made_nodes import compare, graph_of, lowered, model, node, port

from dpfedge.backend.api import LowerRequest
from dpfedge.errors import BackendError, Unsupported


def test_lower__decides_in_words() -> None:
    """How many kernels, and why something runs on the CPU."""
    nodes = [node("Relu", "x", "r"), node("NonZero", "r", "y")]
    found = lowered(model(nodes, [port("x", ["n"])], [port("y", [1, "m"], "i8")]))
    assert dict(found.decisions)["cpu segment 0: 1 operators"].startswith(
        "NonZero: no kernel; costs a wait for the device"
    )
    assert dict(found.decisions)["kernels=1"]


@pytest.mark.parametrize("level", [0, 4])
def test_lower__says_where_products_are_finer_than_asked(level: int) -> None:
    """Activations that a graph lets round to 8 bits are rounded to 16; others stay floats."""
    constants = {"w": np.zeros((24, 2, 16), np.uint8), "s": np.ones((24, 2), np.float32)}
    product = node("ms:MatMulNBits", "x w s", "y", K=64, N=24, bits=4, block_size=32, accuracy_level=level)
    made = model([product], [port("x", (1, 64))], [port("y", (1, 24))], constants)
    request = LowerRequest("made", made.SerializeToString(), "x86-64-v4", frozenset({"vnni"}))
    assert lower(request).arithmetic == ("block16" if level else "graph")


def test_lower__keeps_large_constants_out_of_the_code() -> None:
    """And small ones that a kernel reads are weights, too."""
    weights = {"w": np.ones(1000, np.float32), "b": np.ones(1000, np.float32)[:2]}
    nodes = [node("Add", "x w", "y"), node("Add", "z b", "v")]
    made = model(nodes, [port("x", [1000]), port("z", [2])], [port("y", [1000]), port("v", [2])], weights)
    found = lowered(made)
    assert {name: array.shape for name, array in found.weights.items()} == {"w": (1000,), "b": (2,)}
    assert len(found.code) < 3000


def test_finish__every_weight_of_a_segment_needs_a_place() -> None:
    """As every other one does."""
    weight = np.eye(64, dtype=np.float64)
    found = lowered(
        model([node("MatMul", "x w", "y")], [port("x", [64], "f8")], [port("y", [64], "f8")], {"w": weight})
    )
    assert list(found.weights) == ["cpu0/w"]
    with pytest.raises(BackendError, match="no place"):
        finish(found, {})


def test_lower__a_graph_of_doubles_runs_on_the_cpu() -> None:
    """No OpenCL 1.2 device has to have them."""
    made = model([node("Add", "x x", "d"), node("Exp", "d", "y")], [port("x", [3], "f8")], [port("y", [3], "f8")])
    assert [one.op for one in graph_of(made).nodes] == ["CpuSegment"]
    compare(made, x=np.array([1.0, 2.0, 3.0]))


def test_lower__what_onnxruntime_lacks_is_unsupported() -> None:
    """With its words."""
    made = model([node("NoSuchOperator", "x", "y")], [port("x", [3])], [port("y", [3])])
    with pytest.raises((Unsupported, BackendError), match="NoSuchOperator"):
        lower(LowerRequest("made", made.SerializeToString(), "any", frozenset()))
