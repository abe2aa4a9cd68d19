# SPDX-License-Identifier: Apache-2.0
"""Operators of the reference against their definitions, written out; the suite compares them with onnxruntime's."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_reference.contrib import CONTRIB, GatherElements, sigmoid, unpack
from dpfedge_reference.evaluator import evaluate
from onnx import TensorProto, helper, numpy_helper


def test_unpack__lowest_first() -> None:
    """Two elements of four bits in a byte, four of two, one of eight."""
    codes = np.array([[0xE4]], np.uint8)

    assert unpack(codes, 4).tolist() == [[4, 14]]
    assert unpack(codes, 2).tolist() == [[0, 1, 2, 3]]
    assert unpack(codes, 8).tolist() == [[0xE4]]


def test_sigmoid__of_extremes() -> None:
    """No overflow, and the dtype stays."""
    with np.errstate(all="raise"):
        found = sigmoid(np.array([-80, 0, 80], np.float32))

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [0, 0.5, 1], atol=1e-30)


def test_contrib__are_of_their_domain() -> None:
    """Each has a name and a domain of its own."""
    keys = [(one.op_domain, one.__name__) for one in CONTRIB]

    assert len(keys) == len(set(keys))
    assert {domain for domain, _ in keys} == {"", "com.microsoft"}


@pytest.mark.parametrize("bits", [4, 8])
def test_mat_mul_n_bits__is_a_product_of_numbers(bits: int) -> None:
    """(codes - middle)·scale, block by block."""
    from dpfedge_reference.contrib import MatMulNBits

    op = MatMulNBits.__new__(MatMulNBits)
    codes = np.random.default_rng(0).integers(0, 256, (3, 2, 32 * bits // 8)).astype(np.uint8)
    scales, a = np.full(6, 0.5, np.float32), np.eye(64, dtype=np.float32)

    (found,) = op._run(a, codes, scales, K=64, N=3, bits=bits, block_size=32)

    np.testing.assert_allclose(found, ((unpack(codes, bits).reshape(3, 64) - 2.0 ** (bits - 1)) * 0.5).T)


def test_batch_normalization__of_an_old_graph() -> None:
    """Version 9 says `momentum` in every graph, and means the given mean and variance all the same."""
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(np.array([value], np.float32), name) for name, value in
               (("scale", 2), ("bias", 1), ("mean", 3), ("var", 4))]  # fmt: skip
    node = helper.make_node(
        "BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["y"], momentum=0.9, epsilon=0.0
    )
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])

    (found,) = evaluate(model, {"x": np.array([[3], [7]], np.float32)})

    assert found.tolist() == [[1], [5]]


def test_gather_elements__of_fewer_rows() -> None:
    """The indices' shape is the answer's; data beyond it is not looked at."""
    op = GatherElements.__new__(GatherElements)

    (found,) = op._run(np.arange(12).reshape(3, 4), np.array([[2, -1]]), axis=0)

    assert found.tolist() == [[8, 9]]
