# SPDX-License-Identifier: Apache-2.0
"""The OpenCL backend as a plugin: registers one `OpenClBackend`; imports no pyopencl and probes nothing."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_opencl.backend import OpenClBackend

__all__ = ["OpenClBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the OpenCL backend."""
    register.add(OpenClBackend())
