# SPDX-License-Identifier: Apache-2.0
"""The jetson backend as a plugin; importing it imports no native library and probes nothing."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_jetson.backend import JetsonBackend

__all__ = ["JetsonBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the jetson backend."""
    register.add(JetsonBackend())
