# SPDX-License-Identifier: Apache-2.0
"""Text behind a kernel's own result."""

from __future__ import annotations

from dpfedge_opencl.ops.epilogue import code, kinds

BIAS_RELU = {"steps": [["Add", [0, 1], {}, "f32"], ["Relu", [2], {}, "f32"]], "kinds": ["channel"]}


def test_code__computes_with_the_accumulator_and_the_operands() -> None:
    """Operand 0 is the accumulator."""
    helpers, text, result = code(BIAS_RELU, "acc", ["bias"], 4)
    assert helpers == ""
    assert text == "const float4 e0 = acc + bias;\nconst float4 e1 = fmax(e0, 0.0f);"
    assert result == "e1"


def test_code__twice_in_a_scope_has_names_of_its_own() -> None:
    """By their beginning."""
    assert code(BIAS_RELU, "a", ["b"], prefix="f")[2] == "f1"


def test_kinds__of_a_node_without_an_epilogue() -> None:
    """None."""
    assert kinds({}) == ()
    assert kinds({"epilogue": BIAS_RELU}) == ("channel",)
