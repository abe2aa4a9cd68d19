# SPDX-License-Identifier: Apache-2.0
"""The hooks a plugin may implement; nothing else is in this file."""

from __future__ import annotations

from typing import Protocol

import pluggy

from dpfedge.backend.api import Backend

hookspec = pluggy.HookspecMarker("dpfedge")
hookimpl = pluggy.HookimplMarker("dpfedge")


class Register(Protocol):
    """Collects what plugins bring."""

    def add(self, backend: Backend) -> None:
        """Offer one backend; a name that is taken raises UsageError naming both distributions."""


@hookspec
def dpfedge_register_backends(register: Register) -> None:
    """Called once, when the plugin set is loaded; call `register.add(backend)` for each backend, probe nothing yet."""
