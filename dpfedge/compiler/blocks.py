# SPDX-License-Identifier: Apache-2.0
"""The block form of a matrix that onnxruntime's operators take; it knows no file format (see `importer/ggml.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["BLOCK", "Blocks", "Bytes", "Floats"]

BLOCK = 32
Floats = np.ndarray[Any, np.dtype[np.float32]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """A matrix [rows, columns] for MatMulNBits, plus what its zero points leave out.

    Value = scale·(q − zero) + offset. `codes` u8[rows, blocks, block·bits/8] with the lower element in the lower bits,
    `scales` f32[rows, blocks]; `offsets` f32[rows, blocks], or None when there are none; `zeros`
    u8[rows, ⌈blocks·bits/8⌉] packed like codes, or None for 2^(bits−1) everywhere.
    """

    bits: int
    codes: Bytes
    scales: Floats
    offsets: Floats | None
    zeros: Bytes | None = None
    block: int = BLOCK

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.codes.shape[0], self.codes.shape[1] * self.block

    @property
    def form(self) -> tuple[int, int, bool]:
        """(bits, elements per block, own zero points): matrices of one form and width can be stacked."""
        return self.bits, self.block, self.zeros is not None

    def rows(self, order: np.ndarray[Any, Any] | slice) -> Blocks:
        """The same matrix with rows chosen or reordered."""
        offsets = None if self.offsets is None else self.offsets[order]
        zeros = None if self.zeros is None else self.zeros[order]
        return Blocks(self.bits, self.codes[order], self.scales[order], offsets, zeros, self.block)

    def values(self) -> Floats:
        """What it means: f32[rows, columns]."""
        codes = _unpack(self.codes, self.bits).reshape(*self.scales.shape, self.block)
        zero: Any = 1 << self.bits - 1
        if self.zeros is not None:
            zero = _unpack(self.zeros, self.bits)[:, : codes.shape[1], None].astype(np.float32)
        result = self.scales[..., None] * (codes.astype(np.float32) - zero)
        if self.offsets is not None:
            result += self.offsets[..., None]
        return np.asarray(result.reshape(self.shape), np.float32)

    def column(self, index: int) -> Floats:
        """f32[rows] of one column, without its offsets."""
        at, place = divmod(index, self.block)
        zeros = self.zeros
        if zeros is not None:
            bit = at * self.bits
            zeros = zeros[:, bit // 8 : bit // 8 + 1] >> np.uint8(bit % 8)
        one = Blocks(self.bits, self.codes[:, at : at + 1], self.scales[:, at : at + 1], None, zeros, self.block)
        return one.values()[:, place]

    @staticmethod
    def stack(parts: list[Blocks]) -> Blocks:
        """One matrix of all rows; parts must agree in form and columns."""
        if len({(part.form, part.shape[1]) for part in parts}) != 1:
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
            parts[0].block,
        )


def _unpack(packed: Bytes, bits: int) -> Bytes:
    """u8[..., n] → u8[..., n·8/bits], the lowest bits first."""
    parts = packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return np.asarray(parts.reshape(*packed.shape[:-1], -1), np.uint8)
