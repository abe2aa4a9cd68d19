# SPDX-License-Identifier: Apache-2.0
"""ggml's block formats in, float32 values or the arrays of onnxruntime's block operators out; nothing is rounded again.

Every format is taken apart into scale·(code − zero) + minimum per block of 16 or 32 elements. The layouts are those of
ggml's `ggml-common.h`; super-blocks of the K formats hold 256 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dpfedge.compiler.blocks import Blocks, Bytes, Floats
from dpfedge.compiler.importer.gguf import BLOCK_BYTES, GgufTensor
from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["FORMATS", "Format", "dequantise", "is_blocked", "to_blocks", "unpermute_rows"]

_Parts = tuple[Floats, Floats | None, Bytes]
"""(scales f32[n, k], minima f32[n, k] or None, codes u8[n, k, block]) of n file blocks."""
_NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16)
"""Levels of IQ4_NL and IQ4_XS (ggml's kvalues_iq4nl)."""


@dataclass(frozen=True, slots=True)
class Format:
    """How a block format is read, and the form it takes: `bits` and `block` of MatMulNBits.

    `shift` is added to a code to move its zero point to that of MatMulNBits, as far as the code still fits; what is
    left of the way goes into the offsets.
    """

    zero: int
    bits: int
    block: int
    shift: int
    split: Callable[[Bytes], _Parts]
    minima: bool = False
    """Blocks have a minimum of their own, so that they need offsets."""


def _half(raw: Bytes) -> Floats:
    return np.ascontiguousarray(raw).view("<f2").astype(np.float32)


def _nibbles(raw: Bytes, run: int) -> Bytes:
    """u8[n, m] → u8[n, 2m]: of each `run` bytes first the low nibbles, then the high ones."""
    parts = raw.reshape(len(raw), -1, 1, run) >> np.array([[0], [4]], np.uint8)
    return np.asarray(parts & 15, np.uint8).reshape(len(raw), -1)


def _crumbs(raw: Bytes, bits: int) -> Bytes:
    """u8[n, 32m] → u8[n, 32m·8/bits]: of each 32 bytes first the lowest `bits`, then the next ones."""
    parts = raw.reshape(len(raw), -1, 1, 32) >> np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.asarray(parts & ((1 << bits) - 1), np.uint8).reshape(len(raw), -1)


def _fifth(raw: Bytes) -> Bytes:
    """u8[n, 4] → u8[n, 32]: bit i belongs to element i, moved to the place above a nibble."""
    return np.unpackbits(raw, axis=-1, bitorder="little") << np.uint8(4)


def _q8_0(raw: Bytes) -> _Parts:
    return _half(raw[:, :2]), None, np.bitwise_xor(raw[:, 2:], np.uint8(128))[:, None]


def _q4_0(raw: Bytes) -> _Parts:
    return _half(raw[:, :2]), None, _nibbles(raw[:, 2:], 16)[:, None]


def _q4_1(raw: Bytes) -> _Parts:
    return _half(raw[:, :2]), _half(raw[:, 2:4]), _nibbles(raw[:, 4:], 16)[:, None]


def _q5_0(raw: Bytes) -> _Parts:
    return _half(raw[:, :2]), None, (_nibbles(raw[:, 6:], 16) | _fifth(raw[:, 2:6]))[:, None]


def _q5_1(raw: Bytes) -> _Parts:
    return _half(raw[:, :2]), _half(raw[:, 2:4]), (_nibbles(raw[:, 8:], 16) | _fifth(raw[:, 4:8]))[:, None]


def _iq4_nl(raw: Bytes) -> _Parts:
    codes = (_NON_LINEAR[_nibbles(raw[:, 2:], 16)] + 128).astype(np.uint8)
    return _half(raw[:, :2]), None, codes[:, None]


def _iq4_xs(raw: Bytes) -> _Parts:
    high = np.ascontiguousarray(raw[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = (raw[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15).reshape(len(raw), 8)
    scale = _half(raw[:, :2]) * ((low | high << 4).astype(np.float32) - 32)
    codes = (_NON_LINEAR[_nibbles(raw[:, 8:], 16)] + 128).astype(np.uint8)
    return scale, None, codes.reshape(-1, 8, 32)


def _q2_k(raw: Bytes) -> _Parts:
    scale, least = _half(raw[:, 80:82]) * (raw[:, :16] & 15), _half(raw[:, 82:84]) * (raw[:, :16] >> 4)
    return scale, -least, _crumbs(raw[:, 16:80], 2).reshape(-1, 16, 16)


def _q3_k(raw: Bytes) -> _Parts:
    low = (raw[:, None, 96:104] >> np.array([[0], [4]], np.uint8) & 15).reshape(-1, 16)
    high = (raw[:, None, 104:108] >> np.array([[0], [2], [4], [6]], np.uint8) & 3).reshape(-1, 16)
    scale = _half(raw[:, 108:110]) * ((low | high << 4).astype(np.float32) - 32)
    codes = _crumbs(raw[:, 32:96], 2) | _crumbs(raw[:, :32], 1) << np.uint8(2)
    return scale, None, codes.reshape(-1, 16, 16)


def _scales_and_minima(raw: Bytes) -> tuple[Floats, Floats]:
    """Of a Q4_K or Q5_K super-block: eight 6-bit factors each, packed into 12 bytes, times the two f16 before them."""
    first, second, rest = raw[:, 4:8], raw[:, 8:12], raw[:, 12:16]
    factor = np.concatenate([first & 63, rest & 15 | first >> 2 & 48], axis=1)
    least = np.concatenate([second & 63, rest >> 4 | second >> 2 & 48], axis=1)
    return _half(raw[:, :2]) * factor, -(_half(raw[:, 2:4]) * least)


def _q4_k(raw: Bytes) -> _Parts:
    return *_scales_and_minima(raw), _nibbles(raw[:, 16:], 32).reshape(-1, 8, 32)


def _q5_k(raw: Bytes) -> _Parts:
    codes = _nibbles(raw[:, 48:], 32) | _crumbs(raw[:, 16:48], 1) << np.uint8(4)
    return *_scales_and_minima(raw), codes.reshape(-1, 8, 32)


def _q6_k(raw: Bytes) -> _Parts:
    scale = _half(raw[:, 208:210]) * raw[:, 192:208].view(np.int8).astype(np.float32)
    codes = _nibbles(raw[:, :128], 64) | _crumbs(raw[:, 128:192], 2) << np.uint8(4)
    return scale, None, codes.reshape(-1, 16, 16)


FORMATS: Mapping[str, Format] = {
    "Q4_0": Format(8, 4, 32, 0, _q4_0),
    "Q4_1": Format(0, 4, 32, 0, _q4_1, minima=True),
    "Q5_0": Format(16, 8, 32, 112, _q5_0),
    "Q5_1": Format(0, 8, 32, 128, _q5_1, minima=True),
    "Q8_0": Format(128, 8, 32, 0, _q8_0),
    "Q2_K": Format(0, 4, 16, 8, _q2_k, minima=True),
    "Q3_K": Format(4, 4, 16, 4, _q3_k),
    "Q4_K": Format(0, 4, 32, 0, _q4_k, minima=True),
    "Q5_K": Format(0, 8, 32, 128, _q5_k, minima=True),
    "Q6_K": Format(32, 8, 16, 96, _q6_k),
    "IQ4_NL": Format(128, 8, 32, 0, _iq4_nl),
    "IQ4_XS": Format(128, 8, 32, 0, _iq4_xs),
}
"""Block format → how it is read."""


def is_blocked(kind: str) -> bool:
    """Whether tensors of `kind` consist of blocks; F32, F16 and BF16 do not."""
    return kind in FORMATS


def _split(tensor: GgufTensor, form: Format) -> _Parts:
    rows, columns = int(np.prod(tensor.shape[:-1])), tensor.shape[-1]
    scales, minima, codes = form.split(tensor.data.reshape(-1, BLOCK_BYTES[tensor.kind]))
    for values in (scales, minima):
        if values is not None and not np.isfinite(values).all():
            raise ModelError(f"tensor {tensor.name} has scales that are no numbers", remedy="fetch the file again")
    blocks = columns // form.block
    least = None if minima is None else minima.reshape(rows, blocks)
    return scales.reshape(rows, blocks), least, codes.reshape(rows, blocks, form.block)


def to_blocks(tensor: GgufTensor) -> Blocks:
    """The matrix for MatMulNBits: 4-bit codes where they fit, else 8-bit ones; the same numbers as in the file."""
    form = FORMATS.get(tensor.kind)
    if form is None:
        raise ModelError(f"tensor {tensor.name} has no blocks", found=tensor.kind, allowed=", ".join(FORMATS))
    scale, minimum, codes = _split(tensor, form)
    if form.shift:
        codes = codes + np.uint8(form.shift)
    left = (1 << form.bits - 1) - form.zero - form.shift
    if minimum is not None and left:
        minimum = left * scale + minimum
    if form.bits == 4:
        codes = codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)
    return Blocks(form.bits, np.ascontiguousarray(codes), scale, minimum, None, form.block)


def dequantise(tensor: GgufTensor) -> Floats:
    """Float32 values of any readable tensor, in its shape; bit for bit what ggml's own reference gives."""
    if tensor.kind == "F32":
        return tensor.data.view("<f4").reshape(tensor.shape).astype(np.float32)
    if tensor.kind == "F16":
        return tensor.data.view("<f2").reshape(tensor.shape).astype(np.float32)
    if tensor.kind == "BF16":
        return (tensor.data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    form = FORMATS[tensor.kind]
    scale, minimum, codes = _split(tensor, form)
    values = scale[..., None] * (codes.astype(np.float32) - form.zero)
    if minimum is not None:
        values += minimum[..., None]
    return np.asarray(values.reshape(tensor.shape), np.float32)


def unpermute_rows(heads: int, width: int) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Row order that undoes llama.cpp's Q/K permutation: its rotary pairs (2i, 2i+1) become (i, i + half) of each head.

    Source: `LlamaModel.permute` in llama.cpp's converter.
    """
    half = width // 2
    order = np.arange(heads * width).reshape(heads, half, 2).transpose(0, 2, 1)
    return np.ascontiguousarray(order).reshape(-1)
