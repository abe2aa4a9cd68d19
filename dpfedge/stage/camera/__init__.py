# SPDX-License-Identifier: Apache-2.0
"""A video file or a camera in, frames out, decoded and converted straight into the link's slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.camera.stage import CameraStage

__all__ = ["CameraStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked where the stage's libraries need not be installed
    if name == "CameraStage":
        from dpfedge.stage.camera.stage import CameraStage

        return CameraStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
