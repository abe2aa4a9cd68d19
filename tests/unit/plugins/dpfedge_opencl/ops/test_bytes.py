# SPDX-License-Identifier: Apache-2.0
"""Products of 8-bit matrices."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.bytes import packed_bytes
from made_flavours import BOTH, agree, answers, floats, one
from made_nodes import Array, right

RANDOM = np.random.default_rng(3)


def _codes(*shape: int, kind: str = "u1") -> Array:
    return RANDOM.integers(0, 256, shape).astype("u1").view(kind)


@pytest.mark.parametrize("flavour", ["wide", "avx2", "mali"])
@pytest.mark.parametrize(("rows", "k"), [(1, 64), (3, 33), (21, 64)])
@pytest.mark.parametrize("kind", ["u1", "i1"])
def test_matmul_integer__is_exact(kind: str, rows: int, k: int, flavour: str) -> None:
    """Signed and unsigned, with zero points, and a depth that four does not divide."""
    feeds = {"a": _codes(rows, k, kind=kind)}
    constants = {"w": _codes(k, 45, kind=kind), "az": np.array(7, kind), "wz": _codes(45, kind=kind)}
    agree(one("MatMulInteger", feeds, constants), flavour, feeds, 0.0)


@pytest.mark.parametrize("kind", ["u1", "i1"])
def test_matmul_integer__by_the_dot_product_of_a_gpu(kind: str) -> None:
    """Signed bytes only; its steps in plain C here, as PoCL has neither of the two extensions."""
    feeds = {"a": _codes(5, 33, kind=kind)}
    constants = {"w": _codes(33, 45, kind=kind), "az": np.array(7, kind), "wz": _codes(45, kind=kind)}
    made = one("MatMulInteger", feeds, constants)
    assert np.array_equal(answers(made, "mali", feeds, int8_dot=True)["y0"], right(made, **feeds)["y0"])


@pytest.mark.parametrize("flavour", BOTH)
def test_matmul_integer_to_float__scales_and_adds(flavour: str) -> None:
    """One scale for each column; A's scale and zero are computed."""
    feeds = {"a": _codes(5, 32), "as": np.array(0.05, np.float32), "az": np.array(120, np.uint8)}
    constants = {"w": _codes(32, 45), "ws": np.abs(floats(45)), "wz": _codes(45), "b": floats(45, seed=2)}
    agree(one("ms:MatMulIntegerToFloat", feeds, constants, names="a w as ws az wz b"), flavour, feeds)


@pytest.mark.parametrize("flavour", BOTH)
def test_dynamic_quantize_matmul__rounds_first(flavour: str) -> None:
    """As DynamicQuantizeLinear does."""
    feeds = {"a": floats(3, 32, seed=1)}
    constants = {"w": _codes(32, 45), "ws": np.array(0.02, np.float32), "wz": np.array(64, np.uint8)}
    agree(one("ms:DynamicQuantizeMatMul", feeds, constants), flavour, feeds)


def test_packed_bytes__puts_four_rows_into_a_column() -> None:
    """Past the ends there are zeros."""
    found = packed_bytes(np.arange(10, dtype=np.int8).reshape(5, 2), 4)
    assert found.shape == (1, 2, 4, 4)
    assert found[0, 0, 1].tolist() == [1, 3, 5, 7]
    assert found[0, 1, 0].tolist() == [8, 0, 0, 0]
