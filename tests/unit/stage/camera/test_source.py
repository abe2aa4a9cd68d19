# SPDX-License-Identifier: Apache-2.0
"""Sources: good ones, and every bad one by name."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import pytest

from dpfedge.errors import DpfError, InputError, StageError
from dpfedge.stage.camera import source as module
from dpfedge.stage.camera.source import Video


def test_frames__in_the_order_they_are_shown(video: Callable[..., Path]) -> None:
    """All of them, with their times; B frames too."""
    opened = Video(str(video(20, codec="mpeg4", name="v.mp4")))

    frames = list(opened.frames())

    assert [frame.pts for frame in frames] == sorted(frame.pts for frame in frames)
    assert (len(frames), opened.told, opened.rate, opened.live, opened.damaged) == (20, 20, 10, False, 0)
    opened.close()


def test_frames__again(video: Callable[..., Path]) -> None:
    """A file can begin anew, several threads decode it as well."""
    opened = Video(str(video(4)), threads=2)
    first = [frame.pts for frame in opened.frames()]
    opened.rewind()

    assert [frame.pts for frame in opened.frames()] == first != []
    opened.close()


def audio(path: Path) -> Path:
    """A file without a picture."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame(format="s16", layout="mono", samples=160)
        frame.sample_rate = 8000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    return path


def bad_sources(folder: Path) -> dict[str, tuple[str, str]]:
    """Name → (path, what the error says)."""
    (folder / "text.mp4").write_text("no video\n" * 100)
    (folder / "empty.mp4").touch()
    (folder / "list.m3u8").write_text("#EXTM3U\n#EXTINF:1,\n/etc/passwd\n")
    (folder / "list.mp4").write_text("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:1/a.ts\n")
    (folder / "concat.txt").write_text("ffconcat version 1.0\nfile other.mp4\n")
    os.mkfifo(folder / "fifo")
    return {
        "none": (str(folder / "none.mp4"), "there is no such video; found No such file.*allowed a video file"),
        "text": (str(folder / "text.mp4"), "not a video that can be read; found Invalid data"),
        "empty": (str(folder / "empty.mp4"), "the file is empty"),
        "folder": (str(folder), "not a video; found a folder"),
        "fifo": (str(folder / "fifo"), "not a video; found neither a file nor a camera"),
        "playlist": (str(folder / "list.m3u8"), "not a video that can be read"),
        "hidden playlist": (str(folder / "list.mp4"), "not a video that can be read"),
        "concat": (str(folder / "concat.txt"), "not a video that can be read"),
        "audio": (str(audio(folder / "audio.mkv")), "there is no video in it; found 1 streams"),
        "url": ("http://127.0.0.1:1/v.mp4", "there is no such video"),
        "null": ("a\0b", "there is no such video"),
        "device": ("/dev/null", "the camera cannot be opened|no permission"),
        "no camera": ("/dev/video77", "there is no such video.*cameras here: "),
    }


@pytest.mark.parametrize("name", [
    "none", "text", "empty", "folder", "fifo", "playlist", "hidden playlist", "concat", "audio", "url", "null",
    "device", "no camera",
])  # fmt: skip
def test_open__bad_source(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is, what was found, and what to do; nothing is ever asked of the network."""

    def connect(*arguments: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", connect)
    path, message = bad_sources(tmp_path)[name]

    with pytest.raises(DpfError, match=message) as caught:
        Video(path)
    assert isinstance(caught.value, InputError | StageError)
    assert f"stage camera: {path}" in str(caught.value)


def test_open__without_permission(video: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of somebody else, a camera without its group, a camera in use."""
    path = str(video())
    for number, live, message in (
        (errno.EACCES, False, "no permission to read it; change the file's mode"),
        (errno.EACCES, True, "no permission to read it; add the user to the group video"),
        (errno.EBUSY, True, "the camera is in use; end the other program"),
        (errno.EINVAL, True, "the camera cannot be opened; found Invalid argument"),
    ):
        monkeypatch.setattr(module, "_is_device", lambda source, where, live=live: live)

        def refuse(*arguments: Any, number: int = number, **options: Any) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(av, "open", refuse)
        with pytest.raises(StageError, match=message):
            Video(path)


def test_open__frames_too_large(video: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is in the error; a file is refused before a frame is decoded."""
    monkeypatch.setattr(module, "FRAME_MAX_PIXELS", 64 * 48 - 1)

    with pytest.raises(InputError, match="the frames are too large; found 64 × 48; allowed 3071 pixels; scale"):
        Video(str(video()))


def test_frames__cut_off(video: Callable[..., Path]) -> None:
    """What a file holds up to where it ends is worth having; how much is missing can be told."""
    path = video(40, codec="mpeg4", name="v.mp4")
    whole = path.read_bytes()
    cut = path.with_name("cut.mkv")
    matroska = video(40, codec="mpeg4", name="whole.mkv").read_bytes()
    cut.write_bytes(matroska[: len(matroska) // 2])

    frames = list(Video(str(cut)).frames())
    assert 5 < len(frames) < 40

    path.write_bytes(whole[:-200])  # the index of an MP4 is at its end
    with pytest.raises(InputError, match="an MP4 that was cut off has no index"):
        Video(str(path))


def test_frames__damaged(video: Callable[..., Path]) -> None:
    """Damaged packets cost their own frames and are counted, whatever bytes they hold."""
    path = video(30, name="v.mkv")
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 60] = bytes(60)
    path.write_bytes(data)
    opened = Video(str(path))

    assert 0 < len(list(opened.frames())) <= 30


@pytest.mark.parametrize(("name", "codec"), [("v.mp4", "mpeg4"), ("v.mkv", "ffv1"), ("v.ts", "mpeg2video")])
def test_bytes__of_any_kind(video: Callable[..., Path], name: str, codec: str) -> None:
    """A mutated file gives frames or an error of ours, never another one; a longer run found none in 40,000 files."""
    path = video(4, name=name, codec=codec, rate=25)
    whole, chance = path.read_bytes(), random.Random(7)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.choice((1, 10, 60))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.choice((len(data), chance.randrange(1, len(data))))])
        with contextlib.suppress(InputError, StageError):
            opened = Video(str(path))
            assert all(frame is not None for frame in opened.frames())
            opened.close()


def test_file__that_has_nothing_yet(video: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file does not keep anybody waiting: packets of unknown streams are passed over, and never for ever."""
    wait = av.error.BlockingIOError(errno.EAGAIN, "again")

    passed = camera(monkeypatch, video(), [0, IndexError(), wait, 1], live=False)
    assert [frame is None for frame in passed.frames()] == [False, False]
    for step in (IndexError(), wait):
        stuck = camera(monkeypatch, video(), [0, *[step] * 2000, 1], live=False)
        assert len(list(stuck.frames())) == 1
        assert stuck.damaged == 1


class FakeCamera:
    """A device that gives what the test says: frames, errors, or nothing yet."""

    def __init__(self, path: Path, steps: list[Any]) -> None:
        self._file, self._steps = av.open(str(path)), steps
        self.streams = self._file.streams
        self._packets = [packet for packet in self._file.demux(self.streams.video[0]) if packet.size]

    def demux(self, stream: Any) -> Any:
        while self._steps:
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            yield self._packets[step]

    def close(self) -> None:
        self._file.close()


def camera(monkeypatch: pytest.MonkeyPatch, path: Path, steps: list[Any], *, live: bool = True) -> Video:
    """A `Video` on such a device."""
    fake = FakeCamera(path, steps)
    monkeypatch.setattr(module, "_is_device", lambda source, where: live)
    with monkeypatch.context() as patch:
        patch.setattr(av, "open", lambda *arguments, **options: fake)
        return Video("/dev/video0", size=(640, 480))


def test_camera__has_nothing_yet(video: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """None where a frame is not there yet; reading goes on behind it."""
    wait = av.error.BlockingIOError(errno.EAGAIN, "again")

    opened = camera(monkeypatch, video(), [0, wait, wait, 1])

    assert [frame is None for frame in opened.frames()] == [False, True, True, False]
    assert opened.live


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENODEV, "the camera is gone; found No such device"), (errno.EINVAL, "cannot be read")],
)
def test_camera__goes_away(
    video: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    """The frames before are given; then the error names the device."""
    opened = camera(monkeypatch, video(), [0, OSError(number, os.strerror(number))])
    frames = opened.frames()
    next(frames)

    with pytest.raises(StageError, match=message):
        next(frames)


def test_format__of_a_real_device_library() -> None:
    """FFmpeg takes the number that stands for reading without blocking."""
    with av.open("testsrc2=size=64x48:rate=30", format="lavfi", options={"fflags": module._NON_BLOCKING}) as file:
        assert file.flags & av.container.Flags.non_block.value
