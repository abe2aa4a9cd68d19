# SPDX-License-Identifier: Apache-2.0
"""The cuda backend as a plugin: registers one `CudaBackend`; importing it imports no native library, probes nothing."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_cuda.backend import CudaBackend

__all__ = ["CudaBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the CUDA backend."""
    register.add(CudaBackend())
