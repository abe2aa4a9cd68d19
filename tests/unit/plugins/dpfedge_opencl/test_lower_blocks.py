# SPDX-License-Identifier: Apache-2.0
"""Small products behind products with blocks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_opencl.lower_blocks import _of_matrix
from dpfedge_opencl.ops.api import OPS, Node
from made_nodes import Array, compare, graph_of, model, node, port

RANDOM = np.random.default_rng(8)
SCALES = (np.abs(RANDOM.standard_normal((24, 2))) / 50 + 0.01).astype(np.float32)


def _blocks(bits: int, scales: Array) -> onnx.ModelProto:
    codes = RANDOM.integers(0, 256, (24, 2, 16 * bits // 4)).astype(np.uint8)
    minimum = RANDOM.standard_normal((2, 24)).astype(np.float32)
    constants = {"w": codes, "s": scales, "m": minimum, "shape": np.array([-1, 2, 32]), "axis": np.array([2])}
    nodes = [
        node("ms:MatMulNBits", "x w s", "p", K=64, N=24, bits=bits, block_size=32),
        node("Reshape", "x shape", "b"), node("ReduceSum", "b axis", "sums", keepdims=0), node("Gemm", "sums m p", "y"),
    ]  # fmt: skip
    return model(nodes, [port("x", ["n", 64])], [port("y", ["n", 24])], constants)


def _sums(loud: dict[int, float]) -> Array:
    """[64, 2 + channels]: sums over blocks, in which some channels count more, and these channels by themselves."""
    matrix = np.zeros((64, 2 + len(loud)), np.float32)
    matrix[np.arange(64), np.arange(64) // 32] = 1
    for place, (channel, weight) in enumerate(loud.items()):
        matrix[channel, channel // 32] = weight
        matrix[channel, 2 + place] = weight - 1
    return matrix


@pytest.mark.parametrize("bits", [4, 8])
def test_fold_blocks__a_minimum_becomes_the_blocks_offsets(bits: int) -> None:
    """One kernel for four nodes, and the same numbers."""
    made = _blocks(bits, SCALES)
    assert [one.op for one in graph_of(made).nodes] == ["com.microsoft.MatMulNBits"]
    compare(made, 1e-3, x=RANDOM.standard_normal((3, 64)).astype(np.float32))


def test_fold_blocks__a_scale_of_0_cannot_hold_an_offset() -> None:
    """Then it stays a product of its own."""
    assert "Gemm" in [one.op for one in graph_of(_blocks(4, np.zeros((24, 2), np.float32))).nodes]


def test_fold_blocks__loud_channels() -> None:
    """Where the kernel takes them; the same numbers anyway."""
    codes = RANDOM.integers(0, 256, (24, 2, 16)).astype(np.uint8)
    constants = {"w": codes, "s": SCALES, "m": RANDOM.standard_normal((4, 24)).astype(np.float32),
                 "sums": _sums({5: 64.0, 40: 64.0})}  # fmt: skip
    nodes = [
        node("ms:MatMulNBits", "x w s", "p", K=64, N=24, bits=4, block_size=32), node("MatMul", "x sums", "a"),
        node("Gemm", "a m p", "y"),
    ]  # fmt: skip
    made = model(nodes, [port("x", ["n", 64])], [port("y", ["n", 24])], constants)
    taken = getattr(OPS["com.microsoft.MatMulNBits"], "loud", False)
    assert ("Gemm" in [one.op for one in graph_of(made).nodes]) is not taken
    for count in (1, 3):
        compare(made, 1e-3, x=RANDOM.standard_normal((count, 64)).astype(np.float32))


def test_of_matrix__another_matrix_is_none() -> None:
    """Most channels differ from plain sums."""
    any_node = Node("MatMul", "a", ("x", "s"), ("y",), {})
    assert _of_matrix(any_node, RANDOM.standard_normal((64, 4)).astype(np.float32), 2, 32) is None
    assert _of_matrix(any_node, np.zeros((60, 4), np.float32), 2, 32) is None
