# SPDX-License-Identifier: Apache-2.0
"""The null backend as a plugin: registers one `NullBackend`."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_null.backend import NullBackend

__all__ = ["NullBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the null backend."""
    register.add(NullBackend())
