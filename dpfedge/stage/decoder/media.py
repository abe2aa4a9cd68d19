# SPDX-License-Identifier: Apache-2.0
"""A whole media file in memory in, f32 frames of its first audio stream out; PyAV reads every container but plain WAV.

It follows no link inside a file: the container's name is given, so that no play list or remote source is ever opened.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from dpfedge.errors import InputError
from dpfedge.limits import BODY_MAX_BYTES
from dpfedge.stage.decoder.pcm import Frames, check_layout

__all__ = ["MediaReader"]


class MediaReader:
    """Collects one file; its frames come from `finish`, because many containers have their index at the end."""

    rate = channels = 0

    def __init__(self, container: str, head: bytes = b"") -> None:
        """`container` is a demuxer's name (`mp3`, `mov`, …); InputError when PyAV is not installed."""
        self.container = container
        self._av = _library()
        self._file = io.BytesIO()
        self._file.write(head)

    def push(self, data: memoryview) -> Iterator[Frames]:
        """Keep the bytes; InputError when there are too many."""
        self._file.write(data)
        if self._file.tell() > BODY_MAX_BYTES:
            raise self._wrong("the file is too large", f"over {self._file.tell()} bytes", f"{BODY_MAX_BYTES} bytes")
        return iter(())

    def finish(self) -> Iterator[Frames]:
        """Decode packet by packet; InputError when the bytes hold no audio that can be decoded."""
        size = self._file.tell()
        self._file.seek(0)
        try:
            yield from self._decode()
        except (self._av.error.FFmpegError, ValueError) as error:
            if self.rate and isinstance(error, self._av.error.FFmpegError):
                return  # a recording that was cut off is worth what was decoded
            raise self._wrong("the file cannot be decoded", getattr(error, "strerror", None) or error) from error
        if not self.rate:
            raise self._wrong("the file holds no audio that can be decoded", f"{size} bytes")

    def _decode(self) -> Iterator[Frames]:
        with self._av.open(self._file, format=self.container, metadata_errors="replace") as file:
            if not file.streams.audio:
                raise self._wrong("the file has no audio stream", f"{len(file.streams)} streams of other kinds")
            stream = file.streams.audio[0]
            stream.thread_type = "NONE"
            resampler = None
            for packet in file.demux(stream):
                for frame in self._frames(packet):
                    if resampler is None:
                        self.rate, self.channels = check_layout(frame.rate, len(frame.layout.channels))
                        resampler = self._av.AudioResampler("flt", frame.layout, frame.rate)
                    for converted in resampler.resample(frame):
                        yield converted.to_ndarray().reshape(-1, self.channels)

    def _frames(self, packet: Any) -> list[Any]:
        try:
            return list(packet.decode())
        except self._av.error.InvalidDataError:
            return []  # one damaged packet costs its own milliseconds, not the rest of the recording

    def _wrong(self, what: str, found: object, allowed: object = None) -> InputError:
        return InputError(what, stage="decoder", where=f"audio: {self.container}", found=found, allowed=allowed)


def _library() -> Any:
    try:
        import av
    except ImportError as error:
        raise InputError(
            "only WAV and raw PCM can be read here",
            stage="decoder",
            where="audio",
            remedy="install dpfedge[media] on the server, or send WAV",
        ) from error
    av.logging.set_level(None)
    return av
