# SPDX-License-Identifier: Apache-2.0
"""Package × board × devices → one target, with the reason for every refusal."""

from __future__ import annotations

from dpfedge.binding.bind import bind
from dpfedge.binding.bound import Bound, BoundModel, Refusal
from dpfedge.binding.devices import Found, find_devices
from dpfedge.binding.here import Here, bind_here, look

__all__ = ["Bound", "BoundModel", "Found", "Here", "Refusal", "bind", "bind_here", "find_devices", "look"]
