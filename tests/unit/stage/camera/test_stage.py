# SPDX-License-Identifier: Apache-2.0
"""The camera stage: which frames reach the link, when, how large, and what becomes of the others."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ConfigError, InputError, StageError
from dpfedge.stage.api import Adjusts, Kind, Mode, Wait
from dpfedge.stage.camera import stage as module
from dpfedge.stage.camera.stage import CameraStage

MS = 1_000_000
GREYS = [0, 60, 120, 180, 240]


def near(found: list[int], expected: list[int]) -> bool:
    """Grey survives YUV within a few steps."""
    return len(found) == len(expected) and all(abs(a - b) < 5 for a, b in zip(found, expected, strict=True))


def test_file__every_frame_with_its_time(video: Callable[..., Path], shoot: Any) -> None:
    """All frames in order, 100 ms apart; then the end, and what was done."""
    io = shoot({"source": str(video())})

    assert near(io.shades, GREYS)
    assert [later - first for first, later in pairwise(io.times)] == [100 * MS] * 4
    assert io.of(Kind.END, "frames") == [""]
    done = io.done
    assert {name: done[name] for name in ("frames", "dropped", "skipped", "damaged", "missing", "rotated")} == {
        "frames": 5, "dropped": 0, "skipped": 0, "damaged": 0, "missing": 0, "rotated": 0,
    }  # fmt: skip
    assert (done["width"], done["height"]) == (64, 48)
    assert io.waited == 5


def test_file__times_of_its_own(video: Callable[..., Path], shoot: Any) -> None:
    """A variable frame rate stays what it is."""
    io = shoot({"source": str(video(4, times=[0, 10, 200, 230]))})

    assert [at - io.times[0] for at in io.times] == [0, 10 * MS, 200 * MS, 230 * MS]


@pytest.mark.parametrize("size", [(65, 49), (33, 2), (1, 1)])
def test_file__odd_sizes(video: Callable[..., Path], shoot: Any, size: tuple[int, int]) -> None:
    """Frames of any size are given as they are."""
    io = shoot({"source": str(video(2, size=size, pixels="yuv444p"))})

    assert [frame.shape for frame in io.of(Kind.DATA, "frames")] == [(size[1], size[0], 3)] * 2
    assert near(io.shades, GREYS[:2])


def test_file__smaller_and_in_multiples(video: Callable[..., Path], shoot: Any) -> None:
    """Bounds and multiples of the settings, in one pass."""
    path = str(video(1, size=(200, 100)))

    assert shoot({"source": path, "width": 64}).of(Kind.DATA, "frames")[0].shape == (32, 64, 3)
    assert shoot({"source": path, "multiple": 32}).of(Kind.DATA, "frames")[0].shape == (96, 192, 3)


def test_count_and_rate(video: Callable[..., Path], shoot: Any) -> None:
    """So many frames, or so many per second; the others are skipped, not dropped."""
    path = str(video(10))

    assert near(shoot({"source": path, "count": 2}).shades, GREYS[:2])
    slow = shoot({"source": path, "rate": 5})
    assert near(slow.shades, [0, 120, 240, 60, 180])
    assert (slow.done["skipped"], slow.done["dropped"]) == (5, 0)


def test_loop__until_the_count(video: Callable[..., Path], shoot: Any) -> None:
    """The file begins anew, and time goes on."""
    io = shoot({"source": str(video(3)), "loop": True, "count": 7})

    assert near(io.shades, [0, 60, 120, 0, 60, 120, 0])
    assert [at - io.times[0] for at in io.times] == [number * 100 * MS for number in range(7)]


def test_loop__of_what_has_no_frame(video: Callable[..., Path], shoot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with an error, not never."""
    monkeypatch.setattr(module.Video, "frames", lambda self: iter(()))

    with pytest.raises(
        InputError, match=r"stage camera: .*v.mkv: no frame of the video can be decoded; found no frame"
    ):
        shoot({"source": str(video()), "loop": True})


def test_pace__real_time_and_a_full_link(video: Callable[..., Path], shoot: Any) -> None:
    """Frames leave no earlier than they are shown; without a slot they are dropped here, unconverted, and counted."""
    started = time.monotonic_ns()
    io = shoot({"source": str(video(4, rate=50)), "pace": True}, room=2)

    assert time.monotonic_ns() - started >= 60 * MS
    assert near(io.shades, GREYS[:2])
    assert (io.done["frames"], io.done["dropped"], io.waited) == (2, 2, 0)


def test_camera__drops_at_the_source(video: Callable[..., Path], shoot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live source never waits for a slot, and never for a frame without giving others their turn."""
    monkeypatch.setattr(module, "Video", live(module.Video, pauses=3))
    io = shoot({"source": str(video())}, room=1)

    assert (io.done["frames"], io.done["dropped"], io.waited) == (1, 4, 0)
    assert all(abs(at - time.monotonic_ns()) < 60_000 * MS for at in io.times)


def live(real: Any, pauses: int) -> Any:
    """A video that is taken for a camera, which has nothing at first."""

    class Live(real):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.live = True

        def frames(self) -> Any:
            yield from [None] * pauses
            yield from super().frames()

    return Live


def test_camera__that_gives_nothing(video: Callable[..., Path], shoot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time in the settings it is gone."""
    monkeypatch.setattr(module, "Video", live(module.Video, pauses=100_000))

    with pytest.raises(StageError, match="the camera gives no frame; found none for 20 ms; plug it in again"):
        shoot({"source": str(video()), "wait_ms": 20})


def test_adjust__while_frames_flow(video: Callable[..., Path], shoot: Any) -> None:
    """Another rate and size from the next frame on; what the ports cannot bear is refused and changes nothing."""
    stage = CameraStage(None, {"source": str(video(10)), "width": 64, "height": 48}, Budget())

    def lower(io: Any) -> None:
        io.on_sent = lambda io: stage.adjust({"rate": 5, "width": 32}) if len(io.times) == 2 else None

    io = shoot({}, stage=stage, before=lower)

    assert [frame.shape[1] for frame in io.of(Kind.DATA, "frames")] == [64, 64, 32, 32, 32, 32]
    assert [round((at - io.times[0]) / MS) for at in io.times] == [0, 100, 200, 400, 600, 800]
    assert isinstance(stage, Adjusts)
    for settings, message in (
        ({"rate": 1, "width": 65}, "width is out of range"),
        ({"source": "x"}, "cannot change while the stage runs; found source; allowed rate, width, height"),
        ({"rate": -1}, "rate: out of range"),
    ):
        with pytest.raises(ConfigError, match=message):
            stage.adjust(settings)
    assert stage.facts() == {"source": stage.facts()["source"], "rate": 5, "width": 32, "height": 48}
    stage.adjust({})
    assert (stage.facts()["rate"], stage.facts()["width"]) == (None, 64)


def test_cancel__between_frames(video: Callable[..., Path], shoot: Any) -> None:
    """A cancelled request gives no further frame, also while it waits for a frame's time."""

    def cancel_at(io: Any) -> None:
        io.on_sent = lambda io: setattr(io, "cancel_before", 1) if len(io.times) == 2 else None

    assert len(shoot({"source": str(video())}, before=cancel_at).times) == 2
    assert len(shoot({"source": str(video(3, rate=1)), "pace": True}, before=lambda io: setattr(
        io, "on_sent", lambda io: setattr(io, "cancel_before", 1))).times) == 1  # fmt: skip


def test_request__closes_its_source(video: Callable[..., Path], driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is given up in the middle; a second one begins at the first frame."""
    stage = CameraStage(None, {"source": str(video())}, Budget())
    io = driver.IO(Mode.RUN, {}, ("sink", "frames"))
    closed: list[Any] = []
    monkeypatch.setattr(module.Video, "close", lambda self: closed.append(self))
    steps = stage.request(io)
    assert next(steps) is Wait.SPACE
    steps.close()

    assert len(closed) == 1
    assert not stage._shots
    driver.drive(stage.request(io), io)
    assert len(io.of(Kind.DATA, "frames")) == 5


def test_file__cut_off(video: Callable[..., Path], shoot: Any) -> None:
    """What is there is given, and how much is missing is told; an index without any frame is an error."""
    path = video(40, codec="mpeg4", name="v.mp4", options={"movflags": "faststart"})
    whole = path.read_bytes()
    start = whole.index(b"mdat") + 4
    path.write_bytes(whole[: (start + len(whole)) // 2])

    done = shoot({"source": str(path)}).done
    assert done["frames"] + done["missing"] == 40
    assert 0 < done["missing"] < 40

    path.write_bytes(whole[:start])
    with pytest.raises(InputError, match="no frame of the video can be decoded"):
        shoot({"source": str(path)})


def test_rotated__frames_stand_upright(shoot: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A phone's video is turned, whatever its angle, and the report says so."""
    path = tmp_path / "v.mkv"
    picture = np.zeros((32, 64, 3), np.uint8)
    picture[:, :32] = 200
    with av.open(str(path), "w") as file:
        stream = file.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv444p"
        for packet in (*stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")), *stream.encode(None)):
            file.mux(packet)
    for angle, code in ((90, cv2.ROTATE_90_COUNTERCLOCKWISE), (-90, cv2.ROTATE_90_CLOCKWISE), (180, cv2.ROTATE_180)):
        monkeypatch.setattr(module, "_turns", lambda frame, angle=angle: round(angle / 90) % 4)
        io = shoot({"source": str(path)})

        np.testing.assert_allclose(io.of(Kind.DATA, "frames")[0], cv2.rotate(picture, code), atol=4)
        assert io.done["rotated"] == 1


@pytest.mark.parametrize(
    ("matrix", "code"),
    [
        ((0, 1, -1, 0), cv2.ROTATE_90_CLOCKWISE),
        ((0, -1, 1, 0), cv2.ROTATE_90_COUNTERCLOCKWISE),
        ((-1, 0, 0, -1), cv2.ROTATE_180),
    ],
)
def test_rotated__as_the_file_says(
    video: Callable[..., Path], shoot: Any, matrix: tuple[int, int, int, int], code: int
) -> None:
    """The display matrix of an MP4, as phones write it: (0, 1, −1, 0) is shown a quarter turn clockwise."""
    path = video(1, name="v.mp4", codec="mpeg4", size=(64, 32), options={"movflags": "faststart"})
    data = bytearray(path.read_bytes())
    place = data.index(b"tkhd") + 44
    a, b, c, d = (number << 16 for number in matrix)
    data[place : place + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    plain, turned = np.zeros((32, 64), np.uint8), shoot({"source": str(path)})

    assert turned.of(Kind.DATA, "frames")[0].shape[:2] == cv2.rotate(plain, code).shape
    assert turned.done["rotated"] == 1
    frame = next(av.open(str(path)).decode(video=0))
    assert {1: cv2.ROTATE_90_COUNTERCLOCKWISE, 2: cv2.ROTATE_180, 3: cv2.ROTATE_90_CLOCKWISE}[
        module._turns(frame)
    ] == code


@pytest.mark.parametrize(("angle", "turns"), [(0, 0), (90, 1), (-90, 3), (180, 2), (-180, 2), (270, 3), (2, 0)])
def test_turns__of_an_angle(angle: int, turns: int) -> None:
    """Quarter turns counter-clockwise, as PyAV says the angle."""
    assert module._turns(type("Frame", (), {"rotation": angle})) == turns


def test_format_that_cannot_be_read__gives_the_slot_back(
    video: Callable[..., Path], shoot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request fails; the link keeps its slot."""
    held: list[Any] = []

    def refuse(self: Any, frame: Any, out: Any) -> None:
        raise InputError("frames of this pixel format cannot be read")

    monkeypatch.setattr(module.Converter, "write", refuse)
    with pytest.raises(InputError, match="pixel format"):
        shoot({"source": str(video())}, before=held.append)
    assert held[0].abandoned == 1
