# SPDX-License-Identifier: Apache-2.0
"""Operators of halves."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_opencl.ops import halves
from dpfedge_opencl.ops.halves import only_floats, stored
from dpfedge_opencl.runtime import open_runtime
from made_flavours import BOTH, agree, answers, floats, one
from made_nodes import Array, device, right


@pytest.mark.parametrize("flavour", BOTH)
def test_halves__are_computed_as_floats(flavour: str) -> None:
    """Inputs, weights and outputs of halves."""
    feeds = {"a": floats(3, 40, seed=1).astype(np.float16)}
    agree(one("MatMul", feeds, {"w": floats(40, 50, seed=2).astype(np.float16)}), flavour, feeds, 2e-3)


def _products() -> dict[str, tuple[onnx.ModelProto, dict[str, Array]]]:
    a, x = {"a": floats(9, 50, seed=1)}, {"x": floats(1, 20, 30, seed=1)}
    weights = {"w": floats(24, 20, 3, seed=2), "b": floats(24, seed=3)}
    few = {"x": floats(1, 20, 3, seed=1)}
    return {
        "gemm": (one("MatMul", a, {"w": floats(50, 70, seed=2)}), a),
        "conv": (one("Conv", x, weights, pads=[1, 1]), x),
        "few": (one("Conv", few, weights), few),
        "deconv": (one("ConvTranspose", x, {"w": floats(20, 5, 4, seed=2)}, strides=[2]), x),
    }


def _answers(name: str, **facts: Any) -> tuple[Array, Array]:
    """(what a target with the feature fp16 gives, what is right)."""
    made, feeds = _products()[name]
    return answers(made, "mali", feeds, frozenset({"fp16"}), **facts)["y0"], right(made, **feeds)["y0"]


@pytest.mark.parametrize("name", ["gemm", "conv", "few", "deconv"])
def test_stored__makes_weights_halves_for_a_target_with_fp16(name: str) -> None:
    """A device without that arithmetic reads them all the same."""
    found, wanted = _answers(name, fp16=False)
    assert 1e-6 < np.abs(found - wanted).max() / np.abs(wanted).max() < 1e-2


@pytest.mark.parametrize("name", ["gemm", "conv", "few", "deconv"])
def test_arithmetic__of_short_sums(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of the kernels for halves, with floats as a stand-in for the type: PoCL has no cl_khr_fp16."""
    monkeypatch.setattr(halves, "ARITHMETIC", 2)
    found, wanted = _answers(name, fp16=True)
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < 1e-2


@pytest.mark.parametrize("name", ["gemm", "conv", "few", "deconv"])
def test_arithmetic__of_halves_themselves(name: str) -> None:
    """Where the device has them."""
    if not open_runtime(device()[1]).facts.fp16:
        pytest.skip("this machine's OpenCL device has no cl_khr_fp16")
    found, wanted = _answers(name, fp16=True)
    assert np.abs(found - wanted).max() / np.abs(wanted).max() < 1e-2


def test_stored__leaves_what_is_too_large_for_a_half() -> None:
    """Infinity is no weight."""
    large = np.array([1e5], np.float32)
    assert stored(large, frozenset({"fp16"})).dtype == np.float32
    assert stored(large, frozenset()).dtype == np.float32


def test_only_floats__says_what_is_no_float() -> None:
    """Of all inputs, or of some."""
    assert only_floats(("f32", "f16", "")) is None
    assert "f64" in str(only_floats(("f32", "f64")))
    assert only_floats(("f32", "i64"), 0) is None
