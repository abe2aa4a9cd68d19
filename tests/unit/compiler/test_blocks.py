# SPDX-License-Identifier: Apache-2.0
"""The operators' block form: what it means, choosing rows, stacking."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.compiler.blocks import Blocks
from dpfedge.errors import ModelError


def made(bits: int = 4, block: int = 32, *, offsets: bool = False, zeros: bool = False, rows: int = 3) -> Blocks:
    """Random blocks for 96 columns."""
    random, count = np.random.default_rng(bits + block + rows), 96 // block
    codes = random.integers(0, 256, (rows, count, block * bits // 8), np.uint8)
    scales = random.uniform(0.5, 1.5, (rows, count)).astype(np.float32)
    least = random.uniform(-1, 1, (rows, count)).astype(np.float32) if offsets else None
    points = random.integers(0, 256, (rows, -(-count * bits // 8)), np.uint8) if zeros else None
    return Blocks(bits, codes, scales, least, points, block)


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_values__by_hand(bits: int, block: int, zeros: bool) -> None:
    """scale·(q − zero) + offset, element by element."""
    matrix = made(bits, block, offsets=True, zeros=zeros)
    assert matrix.offsets is not None
    each = 8 // bits

    def code(row: int, column: int) -> int:
        place, inside = divmod(column % block, each)
        return int(matrix.codes[row, column // block, place]) >> inside * bits & (1 << bits) - 1

    def zero(row: int, index: int) -> int:
        if matrix.zeros is None:
            return 1 << bits - 1
        return int(matrix.zeros[row, index // each]) >> index % each * bits & (1 << bits) - 1

    wanted = [
        [matrix.scales[row, column // block] * np.float32(code(row, column) - zero(row, column // block))
         + matrix.offsets[row, column // block] for column in range(96)]
        for row in range(3)
    ]  # fmt: skip
    np.testing.assert_array_equal(matrix.values(), np.array(wanted, np.float32))


def test_rows__choose_and_reorder() -> None:
    """Codes, scales, offsets and zero points follow."""
    matrix = made(offsets=True, zeros=True)

    np.testing.assert_array_equal(matrix.rows(np.array([2, 0])).values(), matrix.values()[[2, 0]])
    np.testing.assert_array_equal(matrix.rows(slice(1, 3)).values(), matrix.values()[1:])


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_column__is_one_of_the_values(bits: int, block: int, zeros: bool) -> None:
    """A column alone is what the whole matrix has there, offsets apart."""
    matrix = made(bits, block, zeros=zeros)

    for index in (0, 17, 47, 95):
        assert (matrix.column(index) == matrix.values()[:, index]).all()


def test_stack__all_rows() -> None:
    """Rows of symmetric blocks get offsets of zero; the values stay."""
    parts = [made(), made(offsets=True, rows=4)]
    fused = Blocks.stack(parts)

    assert fused.shape == (7, 96)
    assert fused.offsets is not None
    assert not fused.offsets[:3].any()
    np.testing.assert_array_equal(fused.values(), np.concatenate([part.values() for part in parts]))
    np.testing.assert_array_equal(Blocks.stack([made(zeros=True)] * 2).values()[:3], made(zeros=True).values())


@pytest.mark.parametrize("other", [made(8), made(4, 16), made(zeros=True)])
def test_stack__other_form(other: Blocks) -> None:
    """Other bits, block sizes or zero points are refused."""
    with pytest.raises(ModelError, match="must have one block format"):
        Blocks.stack([made(), other])
