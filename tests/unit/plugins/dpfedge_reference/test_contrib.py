# SPDX-License-Identifier: Apache-2.0
"""Operators of the reference against their definitions, written out; the suite compares them with onnxruntime's."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_reference.contrib import CONTRIB, sigmoid, unpack


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
