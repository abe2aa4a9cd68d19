# SPDX-License-Identifier: Apache-2.0
"""Products of matrices of floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dpfedge_opencl.ops.gemm import Product, matmul_shape, packed, tiles
from dpfedge_opencl.ops.source import registers
from made_flavours import BOTH, FLAVOURS, agree, answers, floats, one

SHAPES = {
    "vector": ((1, 33), (33, 70)),
    "few rows": ((3, 17), (17, 5)),
    "many rows": ((2, 13, 40), (40, 96)),
    "batched": ((2, 3, 9, 12), (2, 3, 12, 40)),
    "narrow": ((2, 3, 9, 12), (2, 3, 12, 5)),
    "broadcast": ((4, 1, 9, 12), (3, 12, 33)),
    "row by matrix": ((12,), (2, 12, 33)),
    "matrix by column": ((5, 12), (12,)),
}


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=list(SHAPES))
def test_matmul__of_computed_matrices(shapes: Any, flavour: str) -> None:
    """Both operands are fed: read as they lie, or brought into panels."""
    feeds = {"a": floats(*shapes[0], seed=1), "b": floats(*shapes[1], seed=2)}
    agree(one("MatMul", feeds), flavour, feeds)


@pytest.mark.parametrize("flavour", ["wide", "avx2", "mali"])
@pytest.mark.parametrize("rows", [1, 3, 21])
def test_matmul__by_a_constant(rows: int, flavour: str) -> None:
    """Panels with an end that is not full."""
    feeds = {"a": floats(rows, 30, seed=1)}
    agree(one("MatMul", feeds, {"w": floats(30, 75, seed=2)}), flavour, feeds)


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_fused_matmul__transposes_and_multiplies(transposed: tuple[int, int], flavour: str) -> None:
    """Both, either, none."""
    a, b = (floats(3, 9, 12, seed=1), floats(3, 12, 40, seed=2))
    feeds = {"a": a.swapaxes(1, 2).copy() if transposed[0] else a, "b": b.swapaxes(1, 2).copy() if transposed[1] else b}
    made = one("ms:FusedMatMul", feeds, alpha=0.5, transA=transposed[0], transB=transposed[1])
    agree(made, flavour, feeds)


@pytest.mark.parametrize("c", [(40,), (5, 1), (5, 40), (1,)], ids=str)
def test_gemm__adds_what_broadcasts(c: tuple[int, ...]) -> None:
    """One for each column, for each row, for each element, for all; by beta."""
    feeds = {"a": floats(5, 8, seed=1)}
    constants = {"w": floats(40, 8, seed=2), "c": floats(*c, seed=3)}
    agree(one("Gemm", feeds, constants, transB=1, alpha=0.5, beta=2.0), "wide", feeds)


def test_matmul__gives_the_same_bits_whatever_the_tile() -> None:
    """Sums run along k in one accumulator: rows and lanes of a tile change nothing."""
    feeds = {"a": floats(21, 50, seed=1)}
    made = one("MatMul", feeds, {"w": floats(50, 75, seed=2)})
    found = [answers(made, "wide", feeds, vector_width=width)["y0"] for width in (16, 8, 4)]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_tiles__fit_the_registers() -> None:
    """Accumulators, a vector of B for each and one of A; few sizes for all numbers of rows."""
    wide, old = FLAVOURS["wide"][0], FLAVOURS["avx2"][0]
    masks = replace(wide, vector_width=8, target="avx512vl")
    for facts, vectors in ((wide, 2), (masks, 4), (old, 4), (old, 2)):
        found = [tiles(facts, m, vectors) for m in range(1, 200)]
        assert all((rows + 1) * wide < registers(facts) for each in found for rows, wide, *_ in each)
        assert all(vectors % wide == 0 for each in found for _, wide, *_ in each)
        assert len({each[0] for each in found}) <= 4
    assert tiles(masks, 20, 4)[0][:2] == (4, 4)
    assert tiles(FLAVOURS["mali"][0], 20, 2)[0] == (4, 2, 4, 16)


def test_packed__puts_columns_into_panels() -> None:
    """Past the last column there are zeros."""
    found = packed(np.arange(6, dtype=np.float32).reshape(2, 3), 2)
    assert found.tolist() == [[[0, 1], [3, 4]], [[2, 0], [5, 0]]]


def test_matmul_shape__is_that_of_numpy() -> None:
    """Vectors lose their axis."""
    assert matmul_shape((4, 1, 2, 3), (5, 3, 7)) == (4, 5, 2, 7)
    assert matmul_shape((3,), (3, 7)) == (7,)
    assert matmul_shape((2, 3), (3,)) == (2,)


def test_levels__merges_what_walks_alike() -> None:
    """Two batch dimensions that lie behind one another are one."""
    assert Product(2, 2, 2, 2, batch=((3, 8, 8), (2, 4, 4))).levels == ((1, 0, 0), (6, 4, 4))
    assert Product(2, 2, 2, 2, batch=((3, 4, 0), (2, 0, 4))).levels == ((3, 4, 0), (2, 0, 4))
