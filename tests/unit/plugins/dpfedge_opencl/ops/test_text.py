# SPDX-License-Identifier: Apache-2.0
"""OpenCL C of elementwise steps."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.text import compute, known_step, literal, statements


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5, 1e-20, 3.0, 0.1, 1e30, -7.25e-6])
def test_literal__is_the_float_to_the_last_bit(value: float) -> None:
    """As a compiler would read it."""
    assert np.float32(literal(value).strip("()f")) == np.float32(value)


def test_literal__of_no_number() -> None:
    """C has names for these."""
    assert literal(float("inf")) == "INFINITY"
    assert literal(float("-inf")) == "(-INFINITY)"
    assert literal(float("nan")) == "NAN"


def test_statements__refer_to_operands_and_steps_before() -> None:
    """Numbers count on from the operands."""
    steps = [["Add", [0, 1], {}, "f32"], ["Relu", [2], {}, "f32"]]
    lines, names = statements(steps, ["a", "b"], ["f32", "f32"], 4)
    assert lines == ["const float4 t0 = a + b;", "const float4 t1 = fmax(t0, 0.0f);"]
    assert names == ["t0", "t1"]


def test_statements__masks_are_ints_in_vectors_and_0_or_1_alone() -> None:
    """OpenCL's comparisons differ in that."""
    steps = [["Less", [0, 1], {}, "bool"], ["Where", [2, 0, 1], {}, "f32"]]
    vector, _ = statements(steps, ["a", "b"], ["f32", "f32"], 8)
    alone, _ = statements(steps, ["a", "b"], ["f32", "f32"], 1)
    assert vector == ["const int8 t0 = (a < b);", "const float8 t1 = select(b, a, t0);"]
    assert alone == ["const uchar t0 = (a < b);", "const float t1 = (t0 ? a : b);"]


def test_power__simple_exponents_need_no_pow() -> None:
    """pow is the slowest function there is."""
    lines, _ = statements([["Pow", [0], {"exponent": 2.0}, "f32"]], ["a"], ["f32"], 1)
    assert lines == ["const float t0 = a * a;"]


def test_known_step__is_by_dtype() -> None:
    """Doubles are on few devices, logic is for bools."""
    assert known_step("Add", ["f32", "f32"])
    assert known_step("Add", ["i64", "i64"])
    assert not known_step("Add", ["f64", "f64"])
    assert not known_step("Exp", ["i32"])
    assert not known_step("And", ["i32", "i32"])


def test_compute__only_what_the_text_calls() -> None:
    """Compilers take seconds."""
    assert compute(8, "a + b") == ""
    assert "float8" in compute(8, "dpf_erf(x)")
