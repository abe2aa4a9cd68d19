# SPDX-License-Identifier: Apache-2.0
"""The first bytes of a stream decide how the rest is read: bytes in, f32 frames out, never by a name or content type.

It decodes nothing itself; WAV and raw PCM are read while they arrive, other containers when they are complete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from dpfedge.errors import InputError
from dpfedge.stage.decoder.media import MediaReader
from dpfedge.stage.decoder.pcm import ENCODINGS, Frames, PcmReader
from dpfedge.stage.decoder.wav import Compressed, WavReader

__all__ = ["AudioReader", "ContainerReader", "container_of", "open_reader"]

_HEAD = 16  # bytes that tell every container below apart
_PREFIXES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (4, b"ftyp", "mov"),
    (4, b"moov", "mov"),
    (4, b"wide", "mov"),
    (0, b"#!AMR-WB\n", "amr"),
    (0, b"#!AMR\n", "amr"),
    (0, b".snd", "au"),
    (0, b"caff", "caf"),
    (0, b"RIFX", "wav"),
    (0, b"riff\x2e\x91\xcf\x11", "w64"),
    (0, b"wvpk", "wv"),
    (0, b"MAC ", "ape"),
    (0, b"TTA1", "tta"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (0, b"\x0b\x77", "ac3"),
)
_MPEG_VERSIONS = (0, None, 2, 3)


class AudioReader(Protocol):
    """Turns pieces of a byte stream into frames; `rate` and `channels` are 0 until they are known."""

    @property
    def container(self) -> str:
        """The container's name."""

    @property
    def rate(self) -> int:
        """Hz."""

    @property
    def channels(self) -> int:
        """Channels of the frames."""

    def push(self, data: memoryview) -> Iterator[Frames]:
        """Frames that are complete now; InputError when the bytes cannot be audio."""

    def finish(self) -> Iterator[Frames]:
        """The frames behind the last byte; InputError when the stream ended too early."""


def container_of(head: bytes) -> str | None:
    """The container that begins with `head` (16 bytes, or the whole file when it is shorter); None when unknown."""
    if head[:4] in (b"RIFF", b"RF64", b"BW64"):
        return {b"WAVE": "wave", b"AVI ": "avi"}.get(head[8:12])
    if head[:4] == b"FORM":
        return "aiff" if head[8:12] in (b"AIFF", b"AIFC") else None
    for offset, magic, name in _PREFIXES:
        if head[offset : offset + len(magic)] == magic:
            return name
    return _mpeg(head)


def _mpeg(head: bytes) -> str | None:
    """MPEG audio without a tag before it: 11 sync bits and no reserved value (ISO 11172-3, 13818-7)."""
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bitrate, rate = head[2] >> 4, head[2] >> 2 & 3
    if layer == 0:
        return "aac" if head[1] & 0xF6 == 0xF0 and head[2] >> 2 & 15 < 13 else None
    return None if _MPEG_VERSIONS[version] is None or bitrate in (0, 15) or rate == 3 else "mp3"


class ContainerReader:
    """Any container; the reader behind it is chosen once the first bytes are here."""

    def __init__(self) -> None:
        self._head = b""
        self._reader: AudioReader | None = None

    @property
    def container(self) -> str:
        """The container's name; `unknown` before it was recognised."""
        return self._reader.container if self._reader else "unknown"

    @property
    def rate(self) -> int:
        """Hz; 0 until known."""
        return self._reader.rate if self._reader else 0

    @property
    def channels(self) -> int:
        """Channels; 0 until known."""
        return self._reader.channels if self._reader else 0

    def push(self, data: memoryview) -> Iterator[Frames]:
        """Frames that are complete now."""
        if self._reader is None:
            self._head += bytes(data)
            if len(self._head) < _HEAD:
                return
            self._reader, data, self._head = _reader(self._head), memoryview(self._head), b""
        yield from self._read(data)

    def finish(self) -> Iterator[Frames]:
        """The frames behind the last byte."""
        if self._reader is None:
            if not self._head:
                raise InputError("the body is empty", stage="decoder", where="audio", found="0 bytes")
            self._reader = _reader(self._head)
            yield from self._read(memoryview(self._head))
        yield from self._reader.finish()

    def _read(self, data: memoryview) -> Iterator[Frames]:
        assert self._reader is not None
        try:
            yield from self._reader.push(data)
        except Compressed as found:
            self._reader = MediaReader("wav", found.head)


def _reader(head: bytes) -> AudioReader:
    name = container_of(head[:_HEAD])
    if name is None:
        raise InputError(
            "this is no known audio container",
            stage="decoder",
            where="audio",
            found=_described(head[:_HEAD]),
            allowed="WAV, FLAC, MP3, Ogg, WebM, Matroska, MP4, AAC, AIFF, AU, CAF, AMR, ASF, AVI",
            remedy="declare encoding, rate and channels if these are raw samples",
        )
    return WavReader() if name == "wave" else MediaReader(name)


def _described(head: bytes) -> str:
    if head.lstrip()[:1] in (b"<", b"{", b"["):
        return f"text that begins with {head.decode('latin-1')!r}"
    return f"bytes {head.hex(' ')}"


def open_reader(form: Mapping[str, Any] | None) -> AudioReader:
    """The reader for a declared format `{encoding, rate, channels}`; `container` or nothing: found by the bytes."""
    encoding = (form or {}).get("encoding", "container")
    if encoding == "container":
        return ContainerReader()
    if encoding not in ENCODINGS:
        allowed = ", ".join(("container", *ENCODINGS))
        raise InputError("unknown encoding", stage="decoder", found=encoding, allowed=allowed)
    assert form is not None
    return PcmReader(ENCODINGS[encoding], form.get("rate"), form.get("channels", 1))
