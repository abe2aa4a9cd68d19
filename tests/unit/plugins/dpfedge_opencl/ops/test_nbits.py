# SPDX-License-Identifier: Apache-2.0
"""Matrices of 4 and 8 bit codes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_opencl.graph import read
from dpfedge_opencl.lower import lower
from dpfedge_opencl.ops.nbits import blocks_of, codes_of
from made_flavours import BOTH, agree, answers, floats, one
from made_nodes import Array, model, port
from onnx import helper, numpy_helper

from dpfedge.backend.api import LowerRequest


def _weights(n: int, k: int, bits: int, block: int, zeros: bool) -> dict[str, Array]:
    random = np.random.default_rng(4)
    blocks = k // block
    found: dict[str, Array] = {
        "w": random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "s": np.abs(floats(n, blocks, seed=5, scale=0.05)),
    }
    if zeros:
        found["z"] = random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    return found


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize(("bits", "block", "zeros"), [(4, 32, False), (4, 16, True), (8, 32, True), (4, 128, False)])
def test_matmul_nbits__of_floats(bits: int, block: int, zeros: bool, rows: int, flavour: str) -> None:
    """With and without zero points; 37 columns do not fill a panel."""
    feeds = {"a": floats(rows, 256, seed=1)}
    made = one("ms:MatMulNBits", feeds, _weights(37, 256, bits, block, zeros), K=256, N=37, bits=bits, block_size=block)
    agree(made, flavour, feeds)


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_nbits__rounds_where_it_may(bits: int, rows: int) -> None:
    """accuracy_level 4 and a device that multiplies bytes: activations of 16 bits per block."""
    feeds = {"a": floats(rows, 256, seed=1)}
    made = one(
        "ms:MatMulNBits", feeds, _weights(64, 256, bits, 32, True), K=256, N=64, bits=bits, block_size=32,
        accuracy_level=4,
    )  # fmt: skip
    agree(made, "wide", feeds, 1e-4)
    agree(made, "mali", feeds, 1e-5)  # no feature: products of floats
    found = answers(made, "mali", feeds, frozenset({"int8_dot"}), int8_dot=True)["y0"]
    np.testing.assert_allclose(found, answers(made, "wide", feeds)["y0"], rtol=1e-5, atol=1e-5)


def _away(made: onnx.ModelProto, found: Array, a: Array) -> float:
    """The largest distance from sums in float64, as a share of what products with each block's largest would sum to."""
    attrs = {one.name: helper.get_attribute_value(one) for one in made.graph.node[0].attribute}
    weights = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    codes = codes_of(weights["w"], attrs["bits"]).reshape(attrs["N"], -1, attrs["block_size"])
    whole = (codes.astype(np.float64) - (1 << attrs["bits"] - 1)) * weights["s"][:, :, None]
    blocks = a.astype(np.float64).reshape(len(a), -1, attrs["block_size"])
    wanted = np.einsum("mbk,nbk->mn", blocks, whole)
    return float((np.abs(found - wanted) / (np.abs(blocks).max(2) @ np.abs(whole).sum(2).T)).max())


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize(("bits", "block"), [(4, 32), (4, 256), (8, 32), (8, 256)])
@pytest.mark.parametrize("kind", ["normal", "small", "one large", "alike"])
def test_matmul_nbits__three_digits_are_as_near_as_floats(kind: str, bits: int, block: int, rows: int) -> None:
    """Without accuracy_level, on devices that multiply bytes: half a step of a float32 at each block's largest."""
    a = floats(rows, 1024, seed=1)
    if kind == "one large":
        a[:, ::block] *= 1e4
    a = {"small": a * np.float32(1e-30), "alike": np.ones_like(a) * a[:, :1]}.get(kind, a)
    weights = {name: array[:24] for name, array in _weights(24, 1024, bits, block, False).items()}
    made = one("ms:MatMulNBits", {"a": a}, weights, K=1024, N=24, bits=bits, block_size=block)
    digits = {
        "wide": answers(made, "wide", {"a": a})["y0"],
        "mali": answers(made, "mali", {"a": a}, frozenset({"int8_dot"}), int8_dot=True)["y0"],
    }
    of_floats = _away(made, answers(made, "avx2", {"a": a})["y0"], a)
    for name, found in digits.items():
        assert _away(made, found, a) <= max(of_floats, 6e-8), name


@pytest.mark.parametrize(("bits", "block"), [(4, 16), (4, 256), (8, 16), (8, 256)])
@pytest.mark.parametrize(("level", "top"), [(0, 127 << 16), (4, 127 << 8)])
def test_matmul_nbits__digits_are_exact(level: int, top: int, bits: int, block: int) -> None:
    """Whole numbers as far as 24 or 16 bits go, either sign, and lower digits of -128 and 127: no bit is lost."""
    a = np.random.default_rng(1).integers(-top, top + 1, (3, block)).astype(np.float32)
    a[:, :8] = [-top, -128, -129, 127, 128, -0.0, 128 - top, top - 129]
    middle = 1 << bits - 1
    codes = np.full((block, 1, block), middle, np.uint8) + np.eye(block, dtype=np.uint8)[:, None]
    packed = codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4
    weights: dict[str, Array] = {"w": packed, "s": np.ones((block, 1), np.float32)}
    made = one("ms:MatMulNBits", {"a": a}, weights, K=block, N=block, bits=bits, block_size=block, accuracy_level=level)
    for found in (
        answers(made, "wide", {"a": a})["y0"],
        answers(made, "mali", {"a": a}, frozenset({"int8_dot"}), int8_dot=True)["y0"],
    ):
        np.testing.assert_array_equal(found, a)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_matmul_nbits__what_is_no_number_stays_none(bad: float, level: int) -> None:
    """In its own row; rows of zeros give zeros."""
    a = floats(4, 64, seed=1)
    a[1, 40], a[2] = bad, 0
    weights = _weights(32, 64, 4, 32, False)
    weights["w"] |= 0x99  # no code stands for 0
    made = one("ms:MatMulNBits", {"a": a}, weights, K=64, N=32, bits=4, block_size=32, accuracy_level=level)
    found = answers(made, "wide", {"a": a})["y0"]
    assert not np.isfinite(found[1]).any()
    assert not found[2].any()
    clean = np.where(np.isfinite(a), a, 0)
    np.testing.assert_array_equal(found[[0, 3]], answers(made, "wide", {"a": clean})["y0"][[0, 3]])


@pytest.mark.parametrize("arch", ["x86-64-v4", "armv8.2-a", "mali-g610"])
@pytest.mark.parametrize("features", [frozenset(), frozenset({"vnni"}), frozenset({"int8_dot"})])
def test_matmul_nbits__floats_where_no_kernel_multiplies_bytes(features: frozenset[str], arch: str) -> None:
    """Three digits are for instructions that the kernels name: a CPU's `vnni`, a GPU's dot product."""
    feeds = {"a": floats(1, 64)}
    made = one("ms:MatMulNBits", feeds, _weights(32, 64, 4, 32, False), K=64, N=32, bits=4, block_size=32)
    graph = read(lower(LowerRequest("made", made.SerializeToString(), arch, features)).code, "graph made")
    named = "vnni" in features or ("int8_dot" in features and arch.startswith("mali"))
    assert [one.attrs["digits"] for one in graph.nodes if "digits" in one.attrs] == [3 if named else 0]


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("level", [0, 4])
def test_matmul_nbits__with_loud_channels(level: int, rows: int, flavour: str) -> None:
    """What an importer writes as a second product, of sums of blocks and of single channels, is one with the first."""
    weights = _weights(40, 128, 4, 32, False)
    sums = np.zeros((128, 7), np.float32)
    sums[np.arange(128), np.arange(128) // 32] = 1
    sums[[3, 77, 120], [4, 5, 6]] = 1
    constants = {**weights, "sums": sums, "more": floats(7, 40, seed=7)}
    nodes = [
        helper.make_node(
            "MatMulNBits", ["a", "w", "s"], ["p"], "p", domain="com.microsoft", K=128, N=40, bits=4, block_size=32,
            accuracy_level=level,
        ),
        helper.make_node("MatMul", ["a", "sums"], ["t"], "t"),
        helper.make_node("Gemm", ["t", "more", "p"], ["y0"], "y"),
    ]  # fmt: skip
    made = model(nodes, [port("a", (rows, 128))], [port("y0", (rows, 40))], constants)
    agree(made, flavour, {"a": floats(rows, 128, seed=1)}, 1e-4 if level and flavour == "wide" else 1e-5)


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("bits", [4, 8])
def test_gather_block_quantized__gives_rows(bits: int, flavour: str) -> None:
    """An index below zero counts from the end."""
    weights = _weights(24, 64, bits, 32, True)
    feeds = {"at": np.array([[3, 0, -1]], np.int64)}
    constants = {"w": weights["w"].reshape(24, -1), "s": weights["s"], "z": weights["z"]}
    made = one(
        "ms:GatherBlockQuantized", feeds, constants, names="w at s z", bits=bits, block_size=32, gather_axis=0,
        quantize_axis=1,
    )  # fmt: skip
    agree(made, flavour, feeds)


def test_blocks_of__keeps_every_code() -> None:
    """Byte j of vector v holds elements 4 v + j of both halves."""
    codes = np.random.default_rng(1).integers(0, 16, (16, 2, 32)).astype(np.uint8)
    found = blocks_of(codes, 4)
    assert found.shape == (1, 2, 4, 16, 4)
    assert found[0, 1, 2, 5, 3] & 15 == codes[5, 1, 11]
    assert found[0, 1, 2, 5, 3] >> 4 == codes[5, 1, 27]


def test_codes_of__begins_with_the_low_bits() -> None:
    """As ONNX packs them."""
    assert codes_of(np.array([[0x21, 0x43]], np.uint8), 4).tolist() == [[1, 2, 3, 4]]
