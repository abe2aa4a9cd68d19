# SPDX-License-Identifier: Apache-2.0
"""A video file or a V4L2 device in, decoded frames in the order they are shown out; it converts and drops none.

Only local files of known containers are opened: no play list, no remote source, whatever a file's first bytes say.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpfedge.errors import InputError, StageError, Unavailable
from dpfedge.limits import FRAME_MAX_PIXELS

__all__ = ["Video"]

_CONTAINERS = "mov,mp4,matroska,webm,avi,mpegts,mpeg,mpegvideo,ogg,flv,asf,ivf,h264,hevc,m4v,mjpeg,yuv4mpegpipe,gif,nut"
_NON_BLOCKING = "4"  # AVFMT_FLAG_NONBLOCK, which has no name among FFmpeg's options
_REMEDY = "install the extra: pip install 'dpfedge[vision]'"
_AGAIN_MAX = 1000  # times in a row that a file may have nothing to give before that is its end
_GONE = (errno.ENODEV, errno.ENXIO, errno.EIO, errno.EPIPE, errno.EBADF)


class Video:
    """An opened source. `damaged` counts packets that could not be decoded."""

    def __init__(self, source: str, *, threads: int = 1, size: tuple[int, int] | None = None) -> None:
        """`size` is asked of a camera. InputError or StageError says what is wrong with `source`."""
        self._av, self._where = _library(), f"stage camera: {source}"
        self.live = _is_device(source, self._where)
        self._file = self._open(source, size)
        self.damaged = self._packets = 0
        try:
            self._stream = self._pick(threads)
        except DpfErrors:
            self.close()
            raise

    @property
    def rate(self) -> Fraction | None:
        """Frames per second on average, as the source says."""
        rate = self._stream.average_rate or self._stream.guessed_rate
        return Fraction(rate) if rate else None

    @property
    def told(self) -> int:
        """How many frames a file says it has; 0 when it says nothing."""
        return int(self._stream.frames)

    def frames(self) -> Iterator[Any]:
        """`av.VideoFrame`s from here to the end; None where a camera has none yet.

        InputError for a frame larger than allowed, StageError when a camera is gone.
        """
        packets, again = self._file.demux(self._stream), 0
        while again < _AGAIN_MAX:
            try:
                packet = next(packets)
            except StopIteration:
                return
            except (self._av.error.BlockingIOError, IndexError) as error:
                # nothing yet, or a packet of a stream that was not there when the file was opened: only `packets` ended
                packets = self._file.demux(self._stream)
                again += not self.live
                if self.live and not isinstance(error, IndexError):
                    yield None
                continue
            except (self._av.error.FFmpegError, OSError) as error:
                self._end(error)
                return
            again = 0
            yield from self._decoded(packet)
        self.damaged += 1

    def rewind(self) -> None:
        """Back to a file's first frame; InputError when it cannot be moved in."""
        try:
            self._file.seek(0, backward=True, any_frame=False)
        except self._av.error.FFmpegError as error:
            raise InputError("the file cannot begin anew", stage="camera", where=self._where, found=error.strerror,
                             remedy="leave out loop: true") from error  # fmt: skip

    def close(self) -> None:
        """Give file or device back."""
        self._file.close()

    def _decoded(self, packet: Any) -> Iterator[Any]:
        try:
            frames = packet.decode()
        except self._av.error.FFmpegError:
            self.damaged += 1  # one damaged packet costs its own frames, not the rest of the video
            return
        for frame in frames:
            if frame.width * frame.height > FRAME_MAX_PIXELS:
                raise _too_large(self._where, frame.width, frame.height)
            yield frame

    def _end(self, error: Exception) -> None:
        """What a read error means: of a camera that it is gone; a file that was cut off is worth what it holds."""
        number = getattr(error, "errno", None)
        if self.live:
            what = "the camera is gone" if number in _GONE else "the camera cannot be read"
            raise StageError(what, stage="camera", where=self._where, found=_text(error)) from error
        self.damaged += 1

    def _open(self, source: str, size: tuple[int, int] | None) -> Any:
        try:
            if self.live:
                options = {"fflags": _NON_BLOCKING} | ({"video_size": f"{size[0]}x{size[1]}"} if size else {})
                return self._av.open(source, format="v4l2", options=options)
            options = {"protocol_whitelist": "file", "format_whitelist": _CONTAINERS}
            return self._av.open(f"file:{os.path.abspath(source)}", options=options, metadata_errors="replace")
        except (self._av.error.FFmpegError, OSError, ValueError) as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> InputError | StageError:
        number = getattr(error, "errno", None)
        if number == errno.EBUSY:
            return StageError("the camera is in use", stage="camera", where=self._where,
                              remedy="end the other program that reads it")  # fmt: skip
        if number in (errno.EACCES, errno.EPERM):
            remedy = "add the user to the group video" if self.live else "change the file's mode"
            return InputError("no permission to read it", stage="camera", where=self._where, remedy=remedy)
        if self.live:
            return StageError("the camera cannot be opened", stage="camera", where=self._where, found=_text(error))
        return InputError("not a video that can be read", stage="camera", where=self._where, found=_text(error),
                          allowed="MP4, Matroska, WebM, AVI, MPEG, Ogg, FLV, ASF, IVF, H.264, HEVC, MJPEG, Y4M, GIF",
                          remedy="an MP4 that was cut off has no index: record it anew, or as Matroska")  # fmt: skip

    def _pick(self, threads: int) -> Any:
        """The first video stream, ready to be decoded by so many threads."""
        if not self._file.streams.video:
            found = f"{len(self._file.streams)} streams of other kinds"
            raise InputError("there is no video in it", stage="camera", where=self._where, found=found)
        stream = self._file.streams.video[0]
        context = stream.codec_context
        if context is None:
            raise InputError("no decoder for this video", stage="camera", where=self._where)
        if context.width * context.height > FRAME_MAX_PIXELS:
            raise _too_large(self._where, context.width, context.height)
        context.options = {"max_pixels": str(FRAME_MAX_PIXELS)}
        stream.thread_type = "AUTO" if threads > 1 else "NONE"
        if threads > 1:
            context.thread_count = threads
        return stream


DpfErrors = (InputError, StageError)


def _too_large(where: str, width: int, height: int) -> InputError:
    return InputError("the frames are too large", stage="camera", where=where, found=f"{width} × {height}",
                      allowed=f"{FRAME_MAX_PIXELS} pixels", remedy="scale the video down")  # fmt: skip


def _is_device(source: str, where: str) -> bool:
    """Whether `source` is a camera and not a file; InputError when it is neither."""
    try:
        mode = os.stat(source).st_mode
    except (OSError, ValueError) as error:
        cameras = ", ".join(sorted(str(path) for path in Path("/dev").glob("video*"))) or "none"
        raise InputError("there is no such video", stage="camera", where=where, found=_text(error),
                         allowed="a video file, or a camera", remedy=f"cameras here: {cameras}") from error  # fmt: skip
    if stat.S_ISCHR(mode):
        return True
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "neither a file nor a camera"
        raise InputError("not a video", stage="camera", where=where, found=found, allowed="a video file, or a camera")
    if os.stat(source).st_size == 0:
        raise InputError("the file is empty", stage="camera", where=where, found="0 bytes")
    return False


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _library() -> Any:
    try:
        import av
    except ImportError as error:
        raise Unavailable("PyAV is not installed", where="stage camera", found=str(error), remedy=_REMEDY) from error
    av.logging.set_level(None)
    return av
