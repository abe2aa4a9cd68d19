# SPDX-License-Identifier: Apache-2.0
"""The reference backend as a plugin: registers one `ReferenceBackend`; importing it imports neither onnx nor NumPy."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the reference backend."""
    register.add(ReferenceBackend())
