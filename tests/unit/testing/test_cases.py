# SPDX-License-Identifier: Apache-2.0
"""Cases: the same values each time, weights apart from inputs, and models that onnx accepts."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_reference.evaluator import evaluate

from dpfedge.testing.cases import Case, Op, cases, typed, values

CONV = Op("Conv", {"x": (1, 2, 5), "w": (3, 2, 3), "_": ()}, "f32 f16", constant=["w"], title="small")


def test_case__names_operator_title_and_dtype() -> None:
    """As patterns of a suite match them."""
    assert Case(CONV, "f16").name == "Conv-small/f16"
    assert Case(Op("microsoft/Gelu", {"x": (2,)}), "f32").name == "Gelu/f32"


def test_case__is_the_same_each_time() -> None:
    """Values depend on the name only."""
    first, second = (Case(CONV, "f32").arrays for _ in range(2))

    assert all(np.array_equal(first[name], second[name]) for name in ("x", "w"))
    assert list(Case(CONV, "f32").feeds) == ["x"]


def test_model__with_types_is_valid() -> None:
    """Once answers are known, its outputs have dtype and shape, and the checker takes it."""
    case = Case(CONV, "f32")
    answers = evaluate(case.model(), case.feeds)
    model = case.model(answers)

    onnx.checker.check_model(model)
    assert [dim.dim_value for dim in model.graph.output[0].type.tensor_type.shape.dim] == list(answers[0].shape)
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]
    assert typed(model, answers) is model


@pytest.mark.parametrize(("dtype", "low"), [("f32", None), ("f16", 0.5), ("i64", None), ("u8", None), ("bool", None)])
def test_values__are_of_the_dtype(dtype: str, low: float | None) -> None:
    """And not below what the operator takes."""
    found = values(np.random.default_rng(1), (50,), dtype, low)

    assert found.shape == (50,)
    assert low is None or found.min() >= low
    assert found.dtype == {"f32": "f4", "f16": "f2", "i64": "i8", "u8": "u1", "bool": "?"}[dtype]


def test_cases__have_names_of_their_own() -> None:
    """A table line that repeats another would hide it."""
    names = [case.name for case in cases()]

    assert len(names) == len(set(names)) > 150
