# SPDX-License-Identifier: Apache-2.0
"""Block formats: exact values, repacking, fusing, row order."""

from __future__ import annotations

import numpy as np
import pytest
from made_gguf import blocks

from dpfedge.compiler.blocks import BLOCK, Blocks, dequantise, to_blocks, unpermute_rows
from dpfedge.compiler.importer.gguf import GgufTensor
from dpfedge.errors import ModelError


def tensor(kind: str, rows: int = 3, columns: int = 64) -> GgufTensor:
    """A random tensor."""
    data = np.frombuffer(blocks(kind, rows, columns, np.random.default_rng(3)), np.uint8)
    return GgufTensor("w", kind, (rows, columns), data)


def values(matrix: Blocks) -> np.ndarray:
    """What MatMulNBits and the offsets mean together."""
    codes = matrix.codes
    if matrix.bits == 4:
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:2], BLOCK)
    zero = 8 if matrix.bits == 4 else 128
    result = matrix.scales[..., None] * (codes.astype(np.float32) - zero)
    if matrix.offsets is not None:
        result = result + matrix.offsets[..., None]
    return result.reshape(matrix.shape)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_to_blocks__same_values(kind: str) -> None:
    """The operator's form means the same numbers as the file's blocks."""
    source = tensor(kind)

    np.testing.assert_allclose(values(to_blocks(source)), dequantise(source), rtol=0, atol=1e-6)


def test_dequantise__by_hand() -> None:
    """One block of each format, written out: low nibbles are elements 0 to 15."""
    half = np.array([0.5], "<f2").tobytes()
    least = np.array([-1.0], "<f2").tobytes()
    nibbles = bytes([0x21]) + bytes(15)
    four = dequantise(GgufTensor("w", "Q4_1", (1, 32), np.frombuffer(half + least + nibbles, np.uint8)))
    eight = dequantise(GgufTensor("w", "Q8_0", (1, 32), np.frombuffer(half + bytes([255, 2]) + bytes(30), np.uint8)))

    assert (four[0, 0], four[0, 1], four[0, 16]) == (-0.5, -1.0, 0.0)
    assert (eight[0, 0], eight[0, 1], eight[0, 2]) == (-0.5, 1.0, 0.0)


def test_to_blocks__plain_floats() -> None:
    """A tensor without blocks is refused."""
    with pytest.raises(ModelError, match="tensor w has no blocks; found F32"):
        to_blocks(tensor("F32"))


def test_stack__mixed_offsets() -> None:
    """Rows of symmetric blocks get offsets of zero; other bits are refused."""
    fused = Blocks.stack([to_blocks(tensor("Q4_0")), to_blocks(tensor("Q4_1"))])

    assert fused.shape == (6, 64)
    assert fused.offsets is not None
    assert not fused.offsets[:3].any()
    with pytest.raises(ModelError, match="must have one block format"):
        Blocks.stack([to_blocks(tensor("Q4_0")), to_blocks(tensor("Q8_0"))])


def test_unpermute_rows__inverse() -> None:
    """Undoes the permutation of llama.cpp's converter."""
    heads, width = 3, 8
    rows = np.arange(heads * width)
    permuted = rows.reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)

    assert (permuted[unpermute_rows(heads, width)] == rows).all()
