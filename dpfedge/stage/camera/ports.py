# SPDX-License-Identifier: Apache-2.0
"""What the camera gives: frames. It takes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.stage.camera.config import CameraConfig
from dpfedge.stage.ports import Dim, Port, Ports

__all__ = ["NEEDS_MODEL", "ports"]

NEEDS_MODEL = False


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """`frames` u8[height, width, 3], no larger than the settings say; `rate` is the most frames per second."""
    settings = CameraConfig.of(config)
    shape = (Dim("height", 1, settings.height), Dim("width", 1, settings.width), 3)
    return Ports(outputs={"frames": Port("u8", shape, rate=settings.rate, layout="hwc", unit="rgb", slots=4)})
