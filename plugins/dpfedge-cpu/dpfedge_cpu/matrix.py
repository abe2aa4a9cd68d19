# SPDX-License-Identifier: Apache-2.0
"""A matrix of 4- or 8-bit codes in blocks, as MatMulNBits and as BlockProduct has it: the first's arrays in, the
second's out.

Value = scale·(code − zero) + offset there, scale·code + end here (`kernels/blocks.h`), in blocks of 32; codes of 8 bits
that are centred may have a scale for every 16. Codes stay the bytes they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpfedge.backend.api import Array

__all__ = ["BLOCK", "Matrix"]

BLOCK = 32


@dataclass(frozen=True, slots=True)
class Matrix:
    """`codes` u8[rows, blocks, 4·bits]; `scales` f32[rows, blocks] or [rows, 2·blocks]; `zeros` likewise.

    `zeros` are what MatMulNBits takes off codes; `offsets` f32[rows, blocks] are added, if any.
    """

    bits: int
    codes: Array
    scales: Array
    zeros: Array
    offsets: Array | None = None

    @classmethod
    def read(cls, bits: int, block: int, codes: Array, scales: Array, zeros: Array | None) -> Matrix | None:
        """From MatMulNBits' inputs; a block of n·32 elements becomes n blocks of 32, which share what it has.

        None for blocks that are no such multiple, and not 16 centred codes of 8 bits either.
        """
        rows, large = codes.shape[:2]
        if block == BLOCK // 2 and bits == 8 and zeros is None and large % 2 == 0:
            times = 1
        elif block % BLOCK == 0:
            times = block // BLOCK
        else:
            return None
        taken = np.full((rows, large), 1 << (bits - 1), np.float32)
        if zeros is not None:
            taken = _numbers(zeros, bits, rows, large)
        wide = [np.repeat(one.reshape(rows, large), times, axis=1) for one in (scales, taken)]
        return cls(bits, codes.reshape(rows, -1, 4 * bits), *wide)

    @property
    def columns(self) -> int:
        """Elements of a row."""
        return int(self.codes.shape[1]) * BLOCK

    def column(self, index: int) -> Array:
        """f32[rows]: scale·(code − zero), without offsets."""
        block, place = divmod(index, BLOCK)
        codes = self.codes[:, block]
        code = codes[:, place] if self.bits == 8 else codes[:, place // 2] >> np.uint8(4 * (place % 2)) & np.uint8(15)
        scale = index * self.scales.shape[1] // self.columns
        return np.asarray(self.scales[:, scale] * (code.astype(np.float32) - self.zeros[:, scale]))

    @property
    def centre(self) -> int:
        """What every code of 4 bits is less than it says, where that is all the ends would say; else 0."""
        first = int(self.zeros.flat[0])
        return first if self.bits == 4 and self.offsets is None and bool((self.zeros == first).all()) else 0

    def parameters(self) -> dict[str, Array]:
        """`scales` and, where they are needed, `ends`: f16 where that rounds none of them, else f32."""
        found = {"scales": self.scales}
        taken = self.zeros - (128 if self.bits == 8 else 0)  # the kernel's bytes are signed
        ends = -self.scales * taken
        if self.offsets is not None:
            ends = ends + self.offsets
        if not self.centre and ends.any():
            found["ends"] = ends
        with np.errstate(over="ignore"):
            halves = {name: values.astype(np.float16) for name, values in found.items()}
        exact = all(np.array_equal(halves[name].astype(np.float32), values) for name, values in found.items())
        return halves if exact else {name: np.ascontiguousarray(values) for name, values in found.items()}


def _numbers(packed: Array, bits: int, rows: int, blocks: int) -> Array:
    """f32[rows, blocks] of zero points packed like codes, each row from a byte of its own."""
    flat = packed.reshape(rows, -1)
    if bits == 4:
        flat = np.stack([flat & np.uint8(15), flat >> np.uint8(4)], axis=2).reshape(rows, -1)
    return np.ascontiguousarray(flat[:, :blocks].astype(np.float32))
