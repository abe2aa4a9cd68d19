# SPDX-License-Identifier: Apache-2.0
"""The CPU backend as a plugin: registers one `CpuBackend`; importing it imports no onnxruntime and probes nothing."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_cpu.backend import CpuBackend

__all__ = ["CpuBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the CPU backend."""
    register.add(CpuBackend())
