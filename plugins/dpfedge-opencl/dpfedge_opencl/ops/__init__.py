# SPDX-License-Identifier: Apache-2.0
"""The operators of this backend; importing a module of it registers its operators in `api.OPS`."""

from __future__ import annotations

from dpfedge_opencl.ops import chain, conv, deconv, gemm, nbits, norm, reduce, softmax

__all__ = ["chain", "conv", "deconv", "gemm", "nbits", "norm", "reduce", "softmax"]
