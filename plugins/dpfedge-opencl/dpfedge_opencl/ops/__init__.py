# SPDX-License-Identifier: Apache-2.0
"""The operators of this backend; importing a module of it registers its operators in `api.OPS`."""

from __future__ import annotations

from dpfedge_opencl.ops import (
    attention,
    bytes,
    chain,
    conv,
    deconv,
    gemm,
    index,
    lstm,
    move,
    nbits,
    norm,
    pool,
    quantise,
    reduce,
    resize,
    rotary,
    scan,
    softmax,
    views,
)

__all__ = [
    "attention",
    "bytes",
    "chain",
    "conv",
    "deconv",
    "gemm",
    "index",
    "lstm",
    "move",
    "nbits",
    "norm",
    "pool",
    "quantise",
    "reduce",
    "resize",
    "rotary",
    "scan",
    "softmax",
    "views",
]
