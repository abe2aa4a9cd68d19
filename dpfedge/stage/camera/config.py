# SPDX-License-Identifier: Apache-2.0
"""The camera stage's settings, from the pipeline file's mapping to one frozen record; it opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpfedge.config import check
from dpfedge.errors import ConfigError, InputError
from dpfedge.limits import FRAME_MAX_SIDE
from dpfedge.records import dataclass
from dpfedge.stage.settings import schema_of

__all__ = ["LIVE", "REQUEST", "SCHEMA", "CameraConfig"]

LIVE = ("rate", "width", "height")
"""Settings that may change while frames flow: how many, and how large, up to what the links were made for."""
REQUEST = ("source", "rate", "count", "loop", "pace")
"""Settings that a request may bring; a `source` of the settings is not changed by one."""


@dataclass(frozen=True, slots=True)
class CameraConfig:
    """Where frames come from, how many, and how large."""

    source: str | None = None
    """A video file, or a V4L2 device (`/dev/video0`); None: each request names one."""
    rate: float | None = None
    """Frames per second at most; None: all there are."""
    count: int | None = None
    """Frames of one request; None: until the source ends."""
    loop: bool = False
    """A file begins anew when it ends."""
    pace: bool = False
    """A file plays in real time, and what finds no slot is dropped; else as fast as frames are taken, all of them."""
    width: int = 1920
    height: int = 1080
    """Larger frames become smaller, in the same pass, with their proportions; smaller ones stay."""
    multiple: int = 1
    """Sides are multiples of this, so that a detector can read frames where they lie."""
    wait_ms: int = 2000
    """A camera that gives no frame so long is gone."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> CameraConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage camera")
        config = cls(**data)
        if config.multiple > min(config.width, config.height):
            raise ConfigError("frames are smaller than `multiple`", where="stage camera", found=config.multiple,
                              allowed=f"at most {min(config.width, config.height)}")  # fmt: skip
        return config

    def for_request(self, options: Mapping[str, Any]) -> CameraConfig:
        """With what a request brings; InputError says what it may not."""
        own = {name: options[name] for name in REQUEST if options.get(name) is not None}
        if self.source is not None and "source" in own:
            raise InputError("the source is a setting of the stage", stage="camera", found=own["source"],
                             allowed=self.source)  # fmt: skip
        try:
            check(own, SCHEMA, "stage camera")
        except ConfigError as error:
            parts = {"found": error.found, "allowed": error.allowed, "remedy": error.remedy}
            raise InputError(error.what, stage="camera", **parts) from error
        if (self.source or own.get("source")) is None:
            remedy = "add source: to the stage, or source to the request's options"
            raise InputError("no source", stage="camera", allowed="a video file or /dev/videoN", remedy=remedy)
        if self.rate is not None and "rate" in own:
            own["rate"] = min(own["rate"], self.rate)
        return replace(self, **own)

    def within(self, most: CameraConfig) -> CameraConfig:
        """This, when its frames fit the slots that were made for `most`; else ConfigError."""
        for name in ("width", "height"):
            if not most.multiple <= getattr(self, name) <= getattr(most, name):
                raise ConfigError(f"{name} is out of range", where="stage camera", found=getattr(self, name),
                                  allowed=f"{most.multiple} to {getattr(most, name)}, as the link's slots")  # fmt: skip
        return self


_BOUNDS: Mapping[str, Any] = {
    "source": {"type": "string", "minLength": 1, "examples": ["/dev/video0"]},
    "rate": {"type": "number", "minimum": 0.01, "maximum": 1000},
    "count": {"type": "integer", "minimum": 1},
    "width": (1, FRAME_MAX_SIDE),
    "height": (1, FRAME_MAX_SIDE),
    "multiple": (1, 256),
    "wait_ms": (10, 600_000),
}
SCHEMA: Mapping[str, Any] = schema_of(CameraConfig(), _BOUNDS)
"""JSON Schema of the camera's settings."""
