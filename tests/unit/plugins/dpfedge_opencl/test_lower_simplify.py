# SPDX-License-Identifier: Apache-2.0
"""What is left of a graph before anything is decided."""

from __future__ import annotations

import numpy as np
import onnx
from dpfedge_opencl.lower_onnx import open_source
from dpfedge_opencl.lower_simplify import simplify
from made_graphs import Array, compare, graph_of, model, node, port

RANDOM = np.random.default_rng(8)


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


def _blocks(bits: int, scales: Array) -> onnx.ModelProto:
    codes = RANDOM.integers(0, 256, (24, 2, 16 * bits // 4)).astype(np.uint8)
    minimum = RANDOM.standard_normal((2, 24)).astype(np.float32)
    constants = {"w": codes, "s": scales, "m": minimum, "shape": np.array([-1, 2, 32]), "axis": np.array([2])}
    nodes = [
        node("ms:MatMulNBits", "x w s", "p", K=64, N=24, bits=bits, block_size=32),
        node("Reshape", "x shape", "b"), node("ReduceSum", "b axis", "sums", keepdims=0), node("Gemm", "sums m p", "y"),
    ]  # fmt: skip
    return model(nodes, [port("x", ["n", 64])], [port("y", ["n", 24])], constants)


def test_simplify__a_format_s_minimum_becomes_the_blocks_offsets() -> None:
    """One kernel for four nodes, and the same numbers."""
    for bits in (4, 8):
        made = _blocks(bits, (np.abs(RANDOM.standard_normal((24, 2))) / 50 + 0.01).astype(np.float32))
        assert [one.op for one in graph_of(made).nodes] == ["com.microsoft.MatMulNBits"]
        compare(made, 1e-3, x=RANDOM.standard_normal((3, 64)).astype(np.float32))


def test_simplify__a_scale_of_0_cannot_hold_an_offset() -> None:
    """Then it stays a product of its own."""
    assert "Gemm" in _simple(_blocks(4, np.zeros((24, 2), np.float32)))
