# SPDX-License-Identifier: Apache-2.0
"""ggml's block formats: exact values against the gguf package, and the operators' form of them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize, quantize
from made_gguf import TYPES, blocks

from dpfedge.compiler.importer.ggml import FORMATS, dequantise, is_blocked, to_blocks, unpermute_rows
from dpfedge.compiler.importer.gguf import BLOCKS, GgufTensor
from dpfedge.errors import ModelError

ROWS, COLUMNS = 5, 512


def tensor(kind: str, seed: int = 3) -> GgufTensor:
    """A random tensor."""
    data = np.frombuffer(blocks(kind, ROWS, COLUMNS, np.random.default_rng(seed)), np.uint8)
    return GgufTensor("w", kind, (ROWS, COLUMNS), data)


def expected(found: GgufTensor) -> np.ndarray:
    """The gguf package's float32 values."""
    kind = gguf.GGMLQuantizationType(TYPES[found.kind])
    if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
        return found.data.view("<f4" if found.kind == "F32" else "<f2").reshape(ROWS, COLUMNS).astype(np.float32)
    return np.asarray(dequantize(found.data.reshape(ROWS, -1), kind), np.float32)


@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("seed", range(3))
def test_dequantise__bit_for_bit(kind: str, seed: int) -> None:
    """Every format gives the very floats of the gguf package."""
    found = tensor(kind, seed)

    np.testing.assert_array_equal(dequantise(found).view(np.uint32), expected(found).view(np.uint32))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_dequantise__what_gguf_quantised(kind: str) -> None:
    """Blocks that the gguf package makes of real floats come back as near as it can make them."""
    values = np.random.default_rng(1).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    data = quantize(values, gguf.GGMLQuantizationType(TYPES[kind])).reshape(-1).view(np.uint8)
    found = dequantise(GgufTensor("w", kind, (ROWS, COLUMNS), data))

    assert np.abs(found - values).max() < {"Q8_0": 0.02}.get(kind, 0.4)


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_to_blocks__same_values(kind: str) -> None:
    """The operator's form means the file's numbers: exactly, or within a rounding where a minimum moves."""
    source = tensor(kind)
    found, wanted = to_blocks(source), dequantise(source)
    tolerance = 2 * np.spacing(np.abs(wanted).max()) if FORMATS[kind].minima else 0

    np.testing.assert_allclose(found.values(), wanted, rtol=0, atol=tolerance)
    assert (found.bits, found.block) == (FORMATS[kind].bits, FORMATS[kind].block)
    assert (found.offsets is not None) == FORMATS[kind].minima


def test_formats__are_all_that_can_be_read() -> None:
    """What the reader lets in has a decoder, and block sizes are the gguf package's."""
    for number, (name, elements, size) in BLOCKS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (elements, size)
        assert is_blocked(name) == (elements > 1)
        assert TYPES[name] == number


def test_dequantise__by_hand() -> None:
    """One block of two formats, written out: low nibbles are elements 0 to 15."""
    half = np.array([0.5], "<f2").tobytes()
    least = np.array([-1.0], "<f2").tobytes()
    nibbles = bytes([0x21]) + bytes(15)
    four = dequantise(GgufTensor("w", "Q4_1", (1, 32), np.frombuffer(half + least + nibbles, np.uint8)))
    eight = dequantise(GgufTensor("w", "Q8_0", (1, 32), np.frombuffer(half + bytes([255, 2]) + bytes(30), np.uint8)))

    assert (four[0, 0], four[0, 1], four[0, 16]) == (-0.5, -1.0, 0.0)
    assert (eight[0, 0], eight[0, 1], eight[0, 2]) == (-0.5, 1.0, 0.0)


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_to_blocks__scales_that_are_no_numbers(kind: str) -> None:
    """A NaN or infinite scale is refused with the tensor's name."""
    source = tensor(kind)
    data = source.data.copy()
    data[:] = 0xFF
    bad = GgufTensor("w", kind, source.shape, data)

    with pytest.raises(ModelError, match="tensor w has scales that are no numbers; fetch the file again"):
        to_blocks(bad)


def test_to_blocks__plain_floats() -> None:
    """A tensor without blocks is refused."""
    with pytest.raises(ModelError, match="tensor w has no blocks; found F32"):
        to_blocks(tensor("F32"))


def test_unpermute_rows__inverse() -> None:
    """Undoes the permutation of llama.cpp's converter."""
    heads, width = 3, 8
    rows = np.arange(heads * width)
    permuted = rows.reshape(heads, 2, width // 2).swapaxes(1, 2).reshape(-1)

    assert (permuted[unpermute_rows(heads, width)] == rows).all()
