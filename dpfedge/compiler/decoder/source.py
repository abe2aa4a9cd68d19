# SPDX-License-Identifier: Apache-2.0
"""What the graph builder asks of a model file, whatever its format."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from dpfedge.compiler.blocks import Blocks, Floats

__all__ = ["TensorSource"]


class TensorSource(Protocol):
    """A model's tensors under llama.cpp's names (`token_embd.weight`, `blk.0.attn_q.weight`, …).

    What a source hands out is ready for the graph: rows of query and key weights and biases have their rotary pairs
    (i, i + half) in each head, norm weights are the whole factor (Gemma's 1 + w is added). `rope_freqs.weight`
    f32[head_dim/2], where there is one, divides the rotary frequencies. Every call checks the shape it is given
    against the file and raises ModelError with tensor, found and allowed; nothing is read before that.
    """

    @property
    def where(self) -> str:
        """The file or folder, for errors."""

    @property
    def names(self) -> Collection[str]:
        """Every tensor there is; one that the graph does not use is refused."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The size of a tensor, the fastest dimension last; ModelError when it is missing."""

    def kind(self, name: str) -> str:
        """The format a matrix leaves `matrix` in, as decisions name it: `Q4_K`, `F16`, `int4`."""

    def matrix(self, name: str, rows: int, columns: int) -> Blocks | Floats:
        """A weight [rows, columns]: blocks, or float32 values."""

    def vector(self, name: str, size: int) -> Floats:
        """A norm, bias or table of factors: f32[size]."""
