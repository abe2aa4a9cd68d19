# SPDX-License-Identifier: Apache-2.0
"""The camera stage: one source per request, frames decoded and converted straight into the outgoing slot.

A file is given whole, as fast as frames are taken. A camera, and a file played in real time, waits for nobody: the
frame that finds no slot is dropped here, before it is converted, and counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from dpfedge.backend.api import Array, Budget
from dpfedge.errors import InputError, StageError
from dpfedge.records import dataclass
from dpfedge.stage.api import Kind, RequestIO, Slot, Steps, Wait
from dpfedge.stage.camera.config import LIVE, CameraConfig
from dpfedge.stage.camera.convert import Converter
from dpfedge.stage.camera.ports import ports
from dpfedge.stage.camera.source import Video
from dpfedge.stage.camera.timing import Clock, Thinner, fit
from dpfedge.stage.each import Each
from dpfedge.stage.live import adjusted

__all__ = ["CameraStage"]

_NAP_S = 0.002  # between looks at a camera without a frame, and at the clock: shorter than anyone sees, idle enough
_QUARTER = 90


@dataclass(slots=True)
class _Shot:
    """One request: its source, and what happened to its frames."""

    config: CameraConfig
    video: Video
    clock: Clock
    thinner: Thinner = field(default_factory=Thinner)
    decoded: int = 0
    sent: int = 0
    dropped: int = 0
    skipped: int = 0
    rotated: int = 0
    decode_ns: int = 0
    convert_ns: int = 0
    size: tuple[int, int] = (0, 0)


class CameraStage(Each):
    """Owns no model. Requests take turns frame by frame."""

    name = "camera"

    ports = staticmethod(ports)
    idempotent = True

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Budget) -> None:
        """Unavailable when PyAV is not installed as it must be."""
        super().__init__(model, config, budget)
        self._most = self._config = CameraConfig.of(config)
        self._converter = Converter()
        self._upright: Array | None = None
        self._shots: dict[int, _Shot] = {}

    def facts(self) -> Mapping[str, Any]:
        """`source`, `rate`, `width` and `height` as they are now set."""
        return {name: getattr(self._config, name) for name in ("source", "rate", "width", "height")}

    def adjust(self, settings: Mapping[str, Any]) -> None:
        """Work as configured, except for these settings (of `LIVE`), from the next frame on."""
        changed = CameraConfig.of(adjusted(self.config, settings, LIVE, "stage camera"))
        self._config = changed.within(self._most)

    def request(self, io: RequestIO) -> Steps:
        """See `Each`; the source is closed whatever happens."""
        try:
            yield from super().request(io)
        finally:
            if (shot := self._shots.pop(io.key, None)) is not None:
                shot.video.close()

    def report(self, io: RequestIO) -> Mapping[str, Any]:
        """What happened to the frames; `missing`: of those the file says it has."""
        shot = self._shots[io.key]
        whole = shot.config.count is None and not shot.config.loop
        return {
            "frames": shot.sent, "dropped": shot.dropped, "skipped": shot.skipped, "rotated": shot.rotated,
            "damaged": shot.video.damaged, "missing": max(0, shot.video.told - shot.decoded) if whole else 0,
            "width": shot.size[0], "height": shot.size[1],
            "decode_ms": shot.decode_ns / 1e6, "convert_ms": shot.convert_ns / 1e6,
        }  # fmt: skip

    def produce(self, io: RequestIO) -> Steps:
        """Frames until `count` are sent, the source ends, or the request is cancelled."""
        shot = self._shots[io.key] = self._open(io)
        while True:
            before = shot.decoded
            yield from self._once(io, shot)
            if not shot.config.loop or self._ended(io, shot):
                break
            if shot.decoded == before:
                break  # what has no frame now has none when it begins anew
            shot.video.rewind()
            shot.clock.again()
        if not shot.decoded and not io.cancelled(0):
            found = f"{shot.video.damaged} damaged packets" if shot.video.damaged else "no frame"
            raise InputError("no frame of the video can be decoded", stage="camera",
                             where=f"stage camera: {shot.config.source}", found=found)  # fmt: skip

    def _open(self, io: RequestIO) -> _Shot:
        config = self._most.for_request(io.options)
        assert config.source is not None
        video = Video(config.source, threads=self.budget.threads, size=(config.width, config.height))
        return _Shot(config, video, Clock(time.monotonic_ns(), live=video.live, rate=video.rate))

    def _ended(self, io: RequestIO, shot: _Shot) -> bool:
        return io.cancelled(0) or (shot.config.count is not None and shot.sent >= shot.config.count)

    def _once(self, io: RequestIO, shot: _Shot) -> Steps:
        """The source from here to its end."""
        frames, seen = shot.video.frames(), time.monotonic()
        while not self._ended(io, shot):
            frame, more = self._decode(shot, frames)
            if not more:
                return
            if frame is None:
                self._watch(shot, seen)
                time.sleep(_NAP_S)
            else:
                seen = time.monotonic()
                yield from self._show(io, shot, frame)
            yield Wait.STEP

    def _decode(self, shot: _Shot, frames: Iterator[Any]) -> tuple[Any, bool]:
        started = time.monotonic_ns()
        try:
            frame = next(frames)
        except StopIteration:
            return None, False
        shot.decode_ns += time.monotonic_ns() - started
        shot.decoded += frame is not None
        return frame, True

    def _watch(self, shot: _Shot, seen: float) -> None:
        """StageError when a camera has given nothing for too long."""
        if time.monotonic() - seen > shot.config.wait_ms / 1000:
            where, found = f"stage camera: {shot.config.source}", f"none for {shot.config.wait_ms} ms"
            raise StageError("the camera gives no frame", stage="camera", where=where, found=found,
                             remedy="plug it in again, or raise wait_ms")  # fmt: skip

    def _show(self, io: RequestIO, shot: _Shot, frame: Any) -> Steps:
        """One frame: skipped, dropped, or converted into a slot and sent."""
        at_ns = shot.clock.at(frame.pts, frame.time_base)
        if not shot.thinner.keeps(at_ns, self._rate(shot)):
            shot.skipped += 1
            return
        if shot.config.pace and not shot.video.live:
            while (early := at_ns - time.monotonic_ns()) > 0:
                time.sleep(min(_NAP_S, early / 1e9))
                yield Wait.STEP
                if io.cancelled(0):
                    return
        shape = self._shape(shot, frame)
        slot: Slot | None
        if shot.video.live or shot.config.pace:
            slot = io.try_loan("frames", shape, "u8")
        else:
            slot = yield from io.loan("frames", shape, "u8")
        if slot is None:
            shot.dropped += 1
            return
        self._write(shot, frame, slot)
        slot.send(shape[0], kind=Kind.DATA, turn=0, captured_ns=at_ns)
        shot.sent, shot.size = shot.sent + 1, (shape[1], shape[0])

    def _rate(self, shot: _Shot) -> float | None:
        rates = [rate for rate in (self._config.rate, shot.config.rate) if rate is not None]
        return min(rates, default=None)

    def _shape(self, shot: _Shot, frame: Any) -> tuple[int, int, int]:
        size = (frame.height, frame.width) if _turns(frame) % 2 else (frame.width, frame.height)
        width, height = fit(size, (self._config.width, self._config.height), self._most.multiple)
        return height, width, 3

    def _write(self, shot: _Shot, frame: Any, slot: Slot) -> None:
        started = time.monotonic_ns()
        try:
            turns = _turns(frame)
            if turns:
                self._rotate(frame, turns, slot.array)
                shot.rotated += 1
            else:
                self._converter.write(frame, slot.array)
        except InputError:
            slot.abandon()
            raise
        shot.convert_ns += time.monotonic_ns() - started

    def _rotate(self, frame: Any, turns: int, out: Array) -> None:
        """A phone held otherwise: its frames pass through a picture of our own, because libswscale turns none."""
        import cv2
        import numpy as np

        height, width = out.shape[:2] if turns == 2 else out.shape[1::-1]
        if self._upright is None or self._upright.shape != (height, width, 3):
            self._upright = np.empty((height, width, 3), np.uint8)
        self._converter.write(frame, self._upright)
        codes = {1: cv2.ROTATE_90_COUNTERCLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_CLOCKWISE}
        cv2.rotate(self._upright, codes[turns], dst=out)


def _turns(frame: Any) -> int:
    """Quarter turns counter-clockwise that show the frame upright; other angles are rounded to the nearest."""
    return int(round(frame.rotation / _QUARTER) % 4)
