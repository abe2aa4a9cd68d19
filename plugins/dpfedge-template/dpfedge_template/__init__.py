# SPDX-License-Identifier: Apache-2.0
"""The template as a plugin: registers one `TemplateBackend`; importing it imports nothing heavy."""

from __future__ import annotations

from dpfedge.plugin.hookspecs import Register, hookimpl
from dpfedge_template.backend import TemplateBackend

__all__ = ["TemplateBackend", "dpfedge_register_backends"]


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Offer the backend."""
    register.add(TemplateBackend())
