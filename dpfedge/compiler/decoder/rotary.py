# SPDX-License-Identifier: Apache-2.0
"""Rotary positions as tables: a base and optional factors in, the angle of each position and pair out."""

from __future__ import annotations

import numpy as np

from dpfedge.compiler.blocks import Floats
from dpfedge.compiler.decoder.shape import Rotary
from dpfedge.errors import ModelError

__all__ = ["rotary_angles"]


def rotary_angles(rotary: Rotary, head_dim: int, context: int, factors: Floats | None = None) -> Floats:
    """f32[context, head_dim/2] angles; frequencies are divided by `factors` (Llama 3's, one per pair) if given."""
    exponent = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    frequency = rotary.base**-exponent * rotary.scale
    if factors is not None:
        if not (np.isfinite(factors).all() and (factors > 0).all()):
            raise ModelError("rotary factors must be positive numbers", where="rope_freqs.weight")
        frequency = frequency / factors
    return np.outer(np.arange(context), frequency).astype(np.float32)
