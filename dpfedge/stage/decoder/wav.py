# SPDX-License-Identifier: Apache-2.0
"""WAV, RF64 and BW64 bytes in, in pieces of any length; f32 frames out as soon as their bytes are here.

Sizes in a header are claims, not facts: samples that were really sent are read, whatever the header says about their
number. Compressed formats inside a WAV file are not read here: `Compressed` hands them to `media.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator, Mapping
from enum import Enum

from dpfedge.errors import InputError
from dpfedge.limits import WAV_CHUNK_MAX_BYTES, WAV_HEADER_MAX_BYTES
from dpfedge.stage.decoder.pcm import CHANNELS_MAX, ENCODINGS, RATE_MAX, RATE_MIN, Frames, PcmReader, SampleFormat

__all__ = ["Compressed", "WavReader"]

_PCM, _FLOAT, _ALAW, _MULAW, _EXTENSIBLE = 1, 3, 6, 7, 0xFFFE
_ENCODINGS: Mapping[tuple[int, int], str] = {
    (_PCM, 1): "pcm_u8",
    (_PCM, 2): "pcm_s16le",
    (_PCM, 3): "pcm_s24le",
    (_PCM, 4): "pcm_s32le",
    (_FLOAT, 4): "pcm_f32le",
    (_FLOAT, 8): "pcm_f64le",
    (_MULAW, 1): "pcm_mulaw",
    (_ALAW, 1): "pcm_alaw",
}
_CODECS = frozenset({0x02, 0x11, 0x31, 0x50, 0x55, 0xFF})  # MS and IMA ADPCM, GSM 6.10, MPEG, MP3, AAC
_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")  # KSDATAFORMAT_SUBTYPE_*, behind the two bytes of the tag
_CHUNK = struct.Struct("<4sI")
_UNKNOWN = 0xFFFFFFFF
_ENDLESS = 1 << 62


class _Want(Enum):
    """What the walk over the chunks does with the bytes it asks for."""

    NOTHING = 0
    BYTES = 1
    SAMPLES = 2


_Walk = Generator[tuple[_Want, int], bytes, None]


class Compressed(Exception):
    """The file holds compressed audio; `head` is every byte pushed so far."""

    def __init__(self, head: bytes) -> None:
        super().__init__("compressed audio in a WAV file")
        self.head = head


def _wrong(what: str, found: object, allowed: object = None) -> InputError:
    return InputError(what, stage="decoder", where="audio: WAV", found=found, allowed=allowed)


class WavReader:
    """Reads one file; `rate` and `channels` are 0 until its format chunk was read."""

    container = "wav"

    def __init__(self) -> None:
        self.rate = self.channels = 0
        self._pcm: PcmReader | None = None
        self._head = bytearray()  # from the file's start to its format chunk
        self._long: int | None = None  # the data size in an RF64 file's ds64 chunk
        self._claimed: int | None = None  # bytes in the data chunk by its header; None: no data chunk yet
        self._seen = 0
        self._held, self._again = b"", b""
        self._walk: _Walk | None = self._chunks()
        self._want, self._left = next(self._walk)

    def push(self, data: memoryview) -> Iterator[Frames]:
        """Frames complete by now; InputError for a header that cannot be right, Compressed for a codec."""
        if self._pcm is None:
            self._head += data
        while len(data) and self._walk is not None:
            taken, data = data[: self._left], data[self._left :]
            self._left -= len(taken)
            if self._want is _Want.SAMPLES:
                assert self._pcm is not None
                self._seen += len(taken)
                yield from self._pcm.push(taken)
            elif self._want is _Want.BYTES:
                self._held += bytes(taken)
            if not self._left:
                self._advance()
            if self._again:
                data, self._again = memoryview(self._again + bytes(data)), b""
        if self._pcm is None and len(self._head) > WAV_HEADER_MAX_BYTES:
            raise _wrong("no format chunk", f"none in the first {WAV_HEADER_MAX_BYTES} bytes")

    def finish(self) -> Iterator[Frames]:
        """Nothing more; InputError when the file ends before the samples its header promises."""
        if self._pcm is None:
            raise _wrong("the file ends inside its header", f"{len(self._head)} bytes")
        if self._claimed is None:
            raise _wrong("no data chunk", "the end of the file")
        if not self._seen and 0 < self._claimed < _UNKNOWN:
            raise _wrong("the file ends behind its header", f"0 of {self._claimed} bytes of samples")
        return iter(())

    def _advance(self) -> None:
        assert self._walk is not None
        held, self._held = self._held, b""
        try:
            self._want, self._left = self._walk.send(held)
        except StopIteration:
            self._walk = None

    def _chunks(self) -> _Walk:
        yield _Want.NOTHING, 12  # "RIFF", its size and "WAVE": the caller looked at them
        odd = b""
        while True:
            name, size = _CHUNK.unpack(odd + (yield _Want.BYTES, _CHUNK.size - len(odd)))
            if name == b"data":
                yield from self._data(size)
                return
            size -= yield from self._known(name, size)
            if size:
                yield _Want.NOTHING, size
            # writers that forget the pad byte after an odd chunk exist; no chunk's name starts with a zero
            odd = (yield _Want.BYTES, 1).strip(b"\0") if size % 2 else b""

    def _known(self, name: bytes, size: int) -> Generator[tuple[_Want, int], bytes, int]:
        """Read the part of a chunk that matters; returns its length, which is even."""
        if name == b"ds64" and size >= 16:
            self._long = struct.unpack("<8xQ", (yield _Want.BYTES, 16))[0]
            return 16
        if name == b"fmt ":
            if size < 16:
                raise _wrong("the format chunk is too short", f"{size} bytes", "at least 16")
            taken = min(size & ~1, 40)
            self._format((yield _Want.BYTES, taken))
            return taken
        return 0

    def _format(self, body: bytes) -> None:
        tag, channels, rate, _, align, bits = struct.unpack("<HHIIHH", body[:16])
        if tag == _EXTENSIBLE and len(body) == 40 and body[26:] == _GUID_TAIL:
            tag = struct.unpack("<H", body[24:26])[0]
        if not 1 <= channels <= CHANNELS_MAX:
            raise _wrong("number of channels is out of range", channels, f"1 to {CHANNELS_MAX}")
        if not RATE_MIN <= rate <= RATE_MAX:
            raise _wrong("sample rate is out of range", f"{rate} Hz", f"{RATE_MIN} to {RATE_MAX} Hz")
        if tag in _CODECS:
            raise Compressed(bytes(self._head))
        self.rate, self.channels = rate, channels
        self._head.clear()
        self._pcm = PcmReader(_sample_format(tag, channels, align, bits), rate, channels)

    def _data(self, size: int) -> _Walk:
        if self._pcm is None:
            raise _wrong("the data chunk comes before the format chunk", f"{size} bytes of samples")
        if size == _UNKNOWN and self._long is not None:
            size = min(self._long, _ENDLESS)
        self._claimed = size
        if size:
            yield _Want.SAMPLES, _ENDLESS if size == _UNKNOWN else size
        # A recorder that died left a size that is too small (often 0): what follows is then no chunk but more samples.
        behind = yield _Want.BYTES, _CHUNK.size
        if not any(_is_chunk(behind[skip:]) for skip in range(1 + size % 2)):
            self._again = behind
            yield _Want.SAMPLES, _ENDLESS


def _is_chunk(head: bytes) -> bool:
    name, size = _CHUNK.unpack(head.ljust(_CHUNK.size, b"\0"))
    return all(0x20 <= byte < 0x7F for byte in name) and size <= WAV_CHUNK_MAX_BYTES


def _sample_format(tag: int, channels: int, align: int, bits: int) -> SampleFormat:
    size, odd = divmod(align, channels)
    padded = size == 4 and tag == _PCM and 16 < bits <= 32  # 24 bits kept in four bytes
    name = _ENCODINGS.get((tag, size))
    if name is None or odd or not (padded or size == (bits + 7) // 8):
        raise _wrong(
            "unknown sample format",
            f"tag 0x{tag:04x}, {bits} bits, {align} bytes per frame of {channels} channels",
            "PCM of 8, 16, 24 or 32 bits, float of 32 or 64, µ-law, A-law",
        )
    return ENCODINGS[name]
