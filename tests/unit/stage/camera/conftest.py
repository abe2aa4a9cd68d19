# SPDX-License-Identifier: Apache-2.0
"""Videos of a few frames, made when a test asks for them, and a request whose link is as full as the test says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.camera.stage import CameraStage

SHADES = (0, 60, 120, 180, 240)
"""Grey of the frames, in turn."""


def write_video(
    path: Path,
    frames: int = 5,
    *,
    size: tuple[int, int] = (64, 48),
    rate: int = 10,
    codec: str = "ffv1",
    pixels: str = "yuv420p",
    times: Sequence[int] | None = None,
    options: Mapping[str, str] | None = None,
) -> Path:
    """Frames of one grey each; `times` in 1/1000 s instead of a steady rate."""
    with av.open(str(path), "w", options=dict(options or {})) as file:
        stream = file.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = *size, pixels
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(frames):
            shade = np.full((size[1], size[0], 3), SHADES[number % len(SHADES)], np.uint8)
            frame = av.VideoFrame.from_ndarray(shade, format="rgb24").reformat(format=pixels)
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 1000)
            for packet in stream.encode(frame):
                file.mux(packet)
        for packet in stream.encode(None):
            file.mux(packet)
    return path


@pytest.fixture
def video(tmp_path: Path) -> Callable[..., Path]:
    """`video(frames, …)`: the path of a new file, in Matroska unless `name` says otherwise."""

    def make(frames: int = 5, *, name: str = "v.mkv", **settings: Any) -> Path:
        return write_video(tmp_path / name, frames, **settings)

    return make


@pytest.fixture
def shoot(driver: Any) -> Callable[..., Any]:
    """`shoot(settings, options, room)`: one request of a camera, run to its end; `room` slots, None for any number."""

    class Slot:
        def __init__(self, io: Any, array: Any) -> None:
            self.io, self.array = io, array

        def send(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0, last: bool = False) -> None:
            self.io.times.append(captured_ns)
            self.io.note("frames", kind, turn, self.array[:used].copy(), last=last)

        def abandon(self) -> None:
            self.io.abandoned += 1

    class IO(driver.IO):  # type: ignore[misc]
        def __init__(self, options: Mapping[str, Any], room: int | None) -> None:
            super().__init__(Mode.RUN, options, ("sink", "frames"))
            self.room, self.times, self.abandoned, self.waited = room, list[int](), 0, 0

        def try_loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Any:
            if self.room is not None and len(self.times) >= self.room:
                return None
            return Slot(self, np.empty(shape, np.uint8))

        def loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Any:
            self.waited += 1
            yield from ()
            return Slot(self, np.empty(shape, np.uint8))

        @property
        def shades(self) -> list[int]:
            return [int(frame[frame.shape[0] // 2, frame.shape[1] // 2, 0]) for frame in self.of(Kind.DATA, "frames")]

        @property
        def done(self) -> Any:
            return self.of(Kind.DONE)[0]

    def run(
        settings: Mapping[str, Any], options: Mapping[str, Any] | None = None, *, room: int | None = None,
        stage: Any = None, before: Callable[[Any], None] = lambda io: None,
    ) -> Any:  # fmt: skip
        io = IO(options or {}, room)
        before(io)
        for _ in (stage or CameraStage(None, settings, Budget())).request(io):
            pass
        return io

    return run
