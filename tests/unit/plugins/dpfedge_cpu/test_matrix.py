# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits' arrays read as a matrix: values, columns and the parameters of our own product, for each form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dpfedge_cpu.matrix import Matrix

from dpfedge.backend.api import Array

RNG = np.random.default_rng(1)


def packed(numbers: Array, bits: int) -> Array:
    """u8 codes or zero points of [rows, n], the lower one in the lower bits."""
    if bits == 8:
        return numbers.astype(np.uint8)
    even = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2)))
    return (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)


def meaning(matrix: Matrix) -> Array:
    """f64[rows, columns] as the kernel computes it."""
    found = matrix.parameters()
    scales, ends = found["scales"].astype(np.float64), found.get("ends")
    codes = matrix.codes
    if matrix.bits == 8:
        numbers = codes.astype(np.float64) - 128
    else:
        numbers = np.stack([codes & 15, codes >> 4], axis=3).reshape(*codes.shape[:2], 32).astype(np.float64)
    numbers = (numbers - matrix.centre).reshape(*scales.shape, -1) * scales[..., None]
    return np.asarray(
        (numbers if ends is None else numbers + ends.astype(np.float64)[..., None]).reshape(len(codes), -1)
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [32, 64, 128])
@pytest.mark.parametrize("zeroed", [True, False])
@pytest.mark.parametrize("offset", [True, False])
def test_parameters__mean_what_the_arrays_meant(bits: int, block: int, zeroed: bool, offset: bool) -> None:
    """Scale·(code − zero) + offset, whatever the blocks' size."""
    rows, blocks = 5, 3
    numbers = RNG.integers(0, 1 << bits, (rows, blocks * block))
    zeros = RNG.integers(0, 1 << bits, (rows, blocks)) if zeroed else np.full((rows, blocks), 1 << (bits - 1))
    scales = RNG.normal(0, 1, (rows, blocks)).astype(np.float32)
    codes = packed(numbers, bits).reshape(rows, blocks, -1)
    matrix = Matrix.read(bits, block, codes, scales, packed(zeros, bits) if zeroed else None)
    assert matrix is not None
    wanted = np.repeat(scales, block, axis=1) * (numbers - np.repeat(zeros, block, axis=1))
    for column in (0, 33, blocks * block - 1):
        np.testing.assert_array_equal(matrix.column(column), wanted[:, column].astype(np.float32))
    if offset:
        offsets = RNG.normal(0, 1, (rows, blocks * block // 32)).astype(np.float32)
        matrix = Matrix(bits, matrix.codes, matrix.scales, matrix.zeros, offsets)
        wanted = wanted + np.repeat(offsets, 32, axis=1)
    assert matrix.columns == blocks * block
    np.testing.assert_allclose(meaning(matrix), wanted, rtol=0, atol=2e-5 * (1 << bits))


def made(scales: Any, offsets: Any = None, zero: int = 8) -> Matrix:
    shape = np.shape(scales)
    codes = RNG.integers(0, 256, (*shape, 16), np.uint8)
    given = None if offsets is None else np.asarray(offsets, np.float32)
    return Matrix(4, codes, np.asarray(scales, np.float32), np.full(shape, zero, np.float32), given)


def test_parameters__halves_only_where_nothing_is_rounded() -> None:
    """One number that 16 bits do not hold keeps all of them at 32."""
    assert {array.dtype for array in made([[0.5, 2.0]], [[1.0, 3.0]]).parameters().values()} == {np.dtype(np.float16)}
    assert {array.dtype for array in made([[0.5, 0.1]], [[1.0, 3.0]]).parameters().values()} == {np.dtype(np.float32)}
    assert {array.dtype for array in made([[0.5, 2.0]], [[1.0, 1e6]]).parameters().values()} == {np.dtype(np.float32)}


def test_parameters__a_minimum_of_the_file_is_itself_again() -> None:
    """Q4_1: the importer adds eight scales to each minimum, which are taken off exactly."""
    scales = RNG.normal(0, 0.01, (7, 9)).astype(np.float16).astype(np.float32)
    minima = RNG.normal(0, 0.05, (7, 9)).astype(np.float16).astype(np.float32)
    found = made(scales, 8 * scales + minima).parameters()
    np.testing.assert_array_equal(found["ends"], minima.astype(np.float16))
    assert found["ends"].dtype == np.float16


def test_centre__only_where_it_says_everything() -> None:
    """Otherwise the ends do."""
    assert made([[1.0, 1.0]]).centre == 8
    assert "ends" not in made([[1.0, 1.0]]).parameters()
    assert made([[1.0, 1.0]], [[1.0, 1.0]]).centre == 0
    assert made([[1.0, 1.0]], zero=0).parameters().keys() == {"scales"}


def test_read__blocks_of_16() -> None:
    """Of 8 bits around their middle, with a scale each; nothing else of that size."""
    numbers, scales = RNG.integers(0, 256, (3, 96)), RNG.normal(0, 1, (3, 6)).astype(np.float32)
    matrix = Matrix.read(8, 16, packed(numbers, 8).reshape(3, 6, 16), scales, None)
    assert matrix is not None
    assert matrix.codes.shape == (3, 3, 32)
    wanted = np.repeat(scales, 16, axis=1) * (numbers - 128)
    np.testing.assert_allclose(meaning(matrix), wanted, rtol=1e-6)
    np.testing.assert_array_equal(matrix.column(50), wanted[:, 50].astype(np.float32))
    assert matrix.parameters().keys() == {"scales"}

    assert Matrix.read(8, 16, packed(numbers, 8).reshape(3, 6, 16), scales, np.zeros((3, 6), np.uint8)) is None
    assert Matrix.read(8, 16, packed(numbers[:, :80], 8).reshape(3, 5, 16), scales[:, :5], None) is None
    assert Matrix.read(4, 16, np.zeros((3, 6, 8), np.uint8), scales, None) is None
