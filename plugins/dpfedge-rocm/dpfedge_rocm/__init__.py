# SPDX-License-Identifier: Apache-2.0
"""The rocm backend as a plugin; importing it imports no native library and probes nothing."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_rocm.backend import RocmBackend

__all__ = ["RocmBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the rocm backend."""
    register.add(RocmBackend())
