# SPDX-License-Identifier: Apache-2.0
"""GGUF blocks in, the arrays of onnxruntime's block operators out; exactly, nothing is quantised again.

`dequantise` is the float32 meaning of each block format (ggml `ggml-quants.c`) and the reference for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpfedge.compiler.importer.gguf import GgufTensor
from dpfedge.errors import ModelError

__all__ = ["BLOCK", "Blocks", "dequantise", "to_blocks", "unpermute_rows"]

BLOCK = 32
Floats = np.ndarray[Any, np.dtype[np.float32]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix [rows, columns] for MatMulNBits, plus what that leaves out.

    Value = scale·(q − zero) + offset. `codes` u8[rows, blocks, 32·bits/8], `scales` f32[rows, blocks]; `offsets`
    f32[rows, blocks], or None when every block is symmetric; `zeros` u8[rows, ⌈blocks·bits/8⌉] packed like the codes,
    or None for the operator's default zero point (8 or 128).
    """

    bits: int
    codes: Bytes
    scales: Floats
    offsets: Floats | None
    zeros: Bytes | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.codes.shape[0], self.codes.shape[1] * BLOCK

    def rows(self, order: np.ndarray[Any, Any] | slice) -> Blocks:
        """The same matrix with rows chosen or reordered."""
        offsets, zeros = (None if part is None else part[order] for part in (self.offsets, self.zeros))
        return Blocks(self.bits, self.codes[order], self.scales[order], offsets, zeros)

    @staticmethod
    def stack(parts: list[Blocks]) -> Blocks:
        """One matrix of all rows; parts must agree in bits and columns."""
        if len({(part.bits, part.shape[1], part.zeros is None) for part in parts}) != 1:
            raise ModelError(
                "matrices that are fused must have one block format", found=[(p.bits, p.shape) for p in parts]
            )
        some = any(part.offsets is not None for part in parts)
        offsets = [np.zeros_like(part.scales) if part.offsets is None else part.offsets for part in parts]
        return Blocks(
            parts[0].bits,
            np.concatenate([part.codes for part in parts]),
            np.concatenate([part.scales for part in parts]),
            np.concatenate(offsets) if some else None,
            None
            if parts[0].zeros is None
            else np.concatenate([part.zeros for part in parts if part.zeros is not None]),
        )


def _scales(tensor: GgufTensor, raw: Bytes) -> Floats:
    values = np.ascontiguousarray(raw).view("<f2")[..., 0].astype(np.float32)
    if not np.isfinite(values).all():
        raise ModelError(f"tensor {tensor.name} has scales that are no numbers", remedy="fetch the file again")
    return values


def _nibbles(raw: Bytes) -> Bytes:
    """u8[..., 16] as ggml packs them (low nibbles: elements 0–15) → u8[..., 32] codes."""
    return np.concatenate([raw & 15, raw >> 4], axis=-1)


def _split(tensor: GgufTensor) -> tuple[Floats, Floats | None, Bytes]:
    """(scale, minimum or None, codes) of each block; codes in element order, unsigned."""
    rows, columns = int(np.prod(tensor.shape[:-1])), tensor.shape[-1]
    raw = tensor.data.reshape(rows, columns // BLOCK, -1)
    if tensor.kind == "Q8_0":
        return _scales(tensor, raw[..., :2]), None, np.bitwise_xor(raw[..., 2:], np.uint8(128))
    if tensor.kind == "Q4_0":
        return _scales(tensor, raw[..., :2]), None, _nibbles(raw[..., 2:])
    if tensor.kind == "Q4_1":
        return _scales(tensor, raw[..., :2]), _scales(tensor, raw[..., 2:4]), _nibbles(raw[..., 4:])
    raise ModelError(f"tensor {tensor.name} has no blocks", found=tensor.kind, allowed="Q4_0, Q4_1, Q8_0")


def to_blocks(tensor: GgufTensor) -> Blocks:
    """The matrix for MatMulNBits: 4-bit codes repacked (element 2i low, 2i+1 high), 8-bit codes as they are."""
    scale, minimum, codes = _split(tensor)
    if tensor.kind == "Q8_0":
        return Blocks(8, np.ascontiguousarray(codes), scale, None)
    packed = codes[..., 0::2] | (codes[..., 1::2] << 4)
    return Blocks(4, np.ascontiguousarray(packed), scale, None if minimum is None else 8 * scale + minimum)


def dequantise(tensor: GgufTensor) -> Floats:
    """Float32 values of any readable tensor, in its shape."""
    if tensor.kind == "F32":
        return tensor.data.view("<f4").reshape(tensor.shape).astype(np.float32)
    if tensor.kind == "F16":
        return tensor.data.view("<f2").reshape(tensor.shape).astype(np.float32)
    if tensor.kind == "BF16":
        return (tensor.data.view("<u2").astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    scale, minimum, codes = _split(tensor)
    zero = {"Q4_0": 8, "Q4_1": 0, "Q8_0": 128}[tensor.kind]
    values = scale[..., None] * (codes.astype(np.float32) - zero)
    if minimum is not None:
        values += minimum[..., None]
    return np.asarray(values.reshape(tensor.shape), np.float32)


def unpermute_rows(heads: int, width: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Row order that undoes llama.cpp's Q/K permutation: its rotary pairs (2i, 2i+1) become (i, i + half) of each head.

    Source: `LlamaModel.permute` in llama.cpp's convert_hf_to_gguf.py.
    """
    half = width // 2
    order = np.arange(heads * width).reshape(heads, half, 2).transpose(0, 2, 1)
    return np.ascontiguousarray(order).reshape(-1)
