# SPDX-License-Identifier: Apache-2.0
"""A float32 matrix in, blocks of 32 with 8 or 4 bits out; rounding to nearest with a scale searched by squared error.

It decides nothing: which matrices get which form is `dpfedge.compiler.formats`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpfedge.compiler.blocks import BLOCK, Blocks, Bytes, Floats
from dpfedge.errors import ModelError

__all__ = ["int4", "int8"]

_ROWS_BYTES = 1 << 19
"""Float32 bytes of the rows that are searched at a time: with what the search needs they fit a second-level cache."""
_SYMMETRIC = np.linspace(5.5, 8.5, 9, dtype=np.float32)
"""Codes the largest value may stand at: below 8 the block's other values are finer, above they are cut less."""
_SPREAD = np.linspace(0.65, 1.05, 9, dtype=np.float32)
"""Shares of a block's range that 16 codes may cover."""


def int8(matrix: Floats) -> Blocks:
    """Symmetric 8-bit blocks: scale = largest value / 127."""
    codes, scales = _in_parts(matrix, _largest_at_127)
    return Blocks(8, codes, scales, None)


def int4(matrix: Floats, *, symmetric: bool = True) -> Blocks:
    """4-bit blocks, symmetric (−8…7) or with a zero point of their own; scales then fitted to the codes."""
    codes, scales, zeros = _in_parts(matrix, _symmetric if symmetric else _asymmetric)
    return Blocks(4, _pack(codes), scales, None, None if symmetric else _pack(_even(zeros)))


def _in_parts(matrix: Floats, make: Callable[[Floats], tuple[Any, ...]]) -> list[Any]:
    """What `make` gives for the matrix's blocks, a few rows at a time."""
    rows, columns = matrix.shape
    if columns % BLOCK:
        raise ModelError("the matrix has no whole blocks", found=f"{columns} columns", allowed=f"a multiple of {BLOCK}")
    step = max(1, _ROWS_BYTES // (4 * columns))
    parts = [make(_blocks(matrix[start : start + step])) for start in range(0, rows, step)]
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _blocks(matrix: Floats) -> Floats:
    if not np.isfinite(matrix).all():
        raise ModelError("the matrix has values that are no numbers", remedy="fetch the model again")
    return np.ascontiguousarray(matrix, np.float32).reshape(len(matrix), -1, BLOCK)


def _largest_at_127(blocks: Floats) -> tuple[Bytes, Floats]:
    scales = np.abs(blocks).max(-1) / np.float32(127)
    codes = np.rint(blocks / np.where(scales == 0, 1, scales)[..., None]) + 128
    return codes.astype(np.uint8), scales.astype(np.float32)


def _symmetric(blocks: Floats) -> tuple[Bytes, Floats, Bytes]:
    """(codes, scales, zeros): the value of largest size stands at the code −8 or near it, whatever its sign."""
    place = np.abs(blocks).argmax(-1)[..., None]
    largest = np.take_along_axis(blocks, place, -1)[..., 0]
    zeros = np.full(largest.shape, 8, np.float32)
    return _best(blocks, _SYMMETRIC, lambda code: (largest / -code, zeros))


def _asymmetric(blocks: Floats) -> tuple[Bytes, Floats, Bytes]:
    low, high = np.minimum(blocks.min(-1), 0), np.maximum(blocks.max(-1), 0)

    def grid(share: np.float32) -> tuple[Floats, Floats]:
        scales = (high - low) * share / 15
        return scales, np.clip(np.rint(-low * share / np.where(scales == 0, 1, scales)), 0, 15)

    return _best(blocks, _SPREAD, grid)


def _best(
    blocks: Floats, candidates: Floats, grid: Callable[[np.float32], tuple[Floats, Floats]]
) -> tuple[Bytes, Floats, Bytes]:
    """The candidate of least squared error in each block, its scale fitted to its codes by least squares."""
    least = np.full(blocks.shape[:2], np.inf, np.float32)
    scales, zeros = np.zeros_like(least), np.zeros_like(least)
    for candidate in candidates:
        scale, zero = grid(candidate)
        codes = _codes(blocks, scale, zero)
        error = np.square(codes * scale[..., None] - blocks).sum(-1)
        better = error < least
        for kept, new in ((least, error), (scales, scale), (zeros, zero)):
            np.copyto(kept, new, where=better)
    codes = _codes(blocks, scales, zeros)
    squares = np.square(codes).sum(-1)
    fitted = (codes * blocks).sum(-1) / np.where(squares == 0, 1, squares)
    return (codes + zeros[..., None]).astype(np.uint8), fitted.astype(np.float32), zeros.astype(np.uint8)


def _codes(blocks: Floats, scales: Floats, zeros: Floats) -> Floats:
    """Signed codes: 0…15 less the zero point."""
    codes = np.rint(blocks / np.where(scales == 0, 1, scales)[..., None])
    return np.asarray(np.clip(codes, -zeros[..., None], 15 - zeros[..., None]), np.float32)


def _even(zeros: Bytes) -> Bytes:
    return np.pad(zeros, ((0, 0), (0, zeros.shape[1] % 2)), constant_values=8)


def _pack(codes: Bytes) -> Bytes:
    """u8[…, 2n] → u8[…, n]: element 2i in the low nibble."""
    return np.ascontiguousarray(codes[..., 0::2] | (codes[..., 1::2] << 4))
