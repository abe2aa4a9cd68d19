# SPDX-License-Identifier: Apache-2.0
"""Rows of quantised tables in ONNX's own operators give what the operator gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_reference.evaluator import evaluate
from dpfedge_rocm.tables import spell_out
from onnx import TensorProto, helper, numpy_helper

ROWS, BLOCKS, BLOCK = 24, 3, 32


def model(bits: int, *, zeros: bool = False, fed: bool = False, **changed: Any) -> onnx.ModelProto:
    """A table of `ROWS` rows of three blocks, of which two rows are asked."""
    draw = np.random.default_rng(7)
    codes = draw.integers(0, 256, (ROWS, BLOCKS * BLOCK * bits // 8), np.uint8)
    scales = draw.standard_normal((ROWS, BLOCKS)).astype(np.float32)
    constants = {"w": codes, "s": scales, **({"z": np.zeros((ROWS, 2), np.uint8)} if zeros else {})}
    values = {"bits": bits, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1, **changed}
    node = helper.make_node("GatherBlockQuantized", ["w", "at", "s", *(["z"] if zeros else [])], ["y"],
                            domain="com.microsoft", **values)  # fmt: skip
    inputs = [helper.make_tensor_value_info("at", TensorProto.INT64, [1, 2])]
    if fed:
        inputs.append(helper.make_tensor_value_info("w", TensorProto.UINT8, codes.shape))
        constants.pop("w")
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, BLOCKS * BLOCK])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("at", [[[5, 23]], [5], [[[0], [1]]]])
def test_spell_out__is_the_same_function(bits: int, at: list[object]) -> None:
    """To the last bit: one subtraction and one product of the same numbers, whatever form the indices have."""
    feeds = {"at": np.array(at, np.int64)}
    before, after = model(bits), model(bits)
    for one in (before, after):
        for port, shape in ((one.graph.input[0], feeds["at"].shape), (one.graph.output[0], (*feeds["at"].shape, 96))):
            port.type.tensor_type.ClearField("shape")
            for size in shape:
                port.type.tensor_type.shape.dim.add(dim_value=size)

    assert spell_out(after) == 1
    assert {node.op_type for node in after.graph.node} == {"Gather", "Cast", "Sub", "Reshape", "Mul", "Shape"}
    assert np.array_equal(evaluate(after, feeds)[0], evaluate(before, feeds)[0])
    assert "w" not in {tensor.name for tensor in after.graph.initializer} or bits == 8
    onnx.checker.check_model(after)


@pytest.mark.parametrize(
    "other", [model(4, zeros=True), model(8, fed=True), model(8, gather_axis=1), model(8, block_size=64)]
)
def test_spell_out__leaves_what_it_does_not_know(other: onnx.ModelProto) -> None:
    """Lowering refuses it by name then."""
    before = other.SerializeToString()

    assert spell_out(other) == 0
    assert other.SerializeToString() == before
