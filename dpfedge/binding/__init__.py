# SPDX-License-Identifier: Apache-2.0
"""Package × board × devices → one target per model, with the reason for every refusal."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.binding.bound import Bound, BoundModel, Chosen, ModelPlace, Refusal
    from dpfedge.binding.devices import Found, find_devices
    from dpfedge.binding.here import Here, bind_here, look

__all__ = [
    "Bound", "BoundModel", "Chosen", "Found", "Here", "ModelPlace", "Refusal", "bind_here", "find_devices", "look",
]  # fmt: skip

_HOMES = {
    "Bound": "bound", "BoundModel": "bound", "Chosen": "bound", "Found": "devices", "Here": "here",
    "ModelPlace": "bound", "Refusal": "bound", "bind_here": "here", "find_devices": "devices", "look": "here",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # a stage's process needs what was chosen only; what chooses reads boards and the machine
    if name in _HOMES:
        return getattr(importlib.import_module(f"dpfedge.binding.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
