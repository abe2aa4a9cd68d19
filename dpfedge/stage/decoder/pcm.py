# SPDX-License-Identifier: Apache-2.0
"""Bytes of linear or companded samples in, f32 frames in −1..1 out; it reads no header and changes no rate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import InputError
from dpfedge.records import dataclass

__all__ = ["CHANNELS_MAX", "ENCODINGS", "RATE_MAX", "RATE_MIN", "Frames", "PcmReader", "SampleFormat", "check_layout"]

CHANNELS_MAX = 32  # the largest microphone arrays have 16; a header that says more is noise
RATE_MIN, RATE_MAX = 1000, 384_000

Frames = Array
"""f32[frames, channels]."""


def _companded(decode: Callable[[Array], Array]) -> Array:
    return (decode(np.arange(256, dtype=np.int32)) / 32768).astype(np.float32)


def _mulaw(code: Array) -> Array:
    """ITU-T G.711 µ-law: 14-bit magnitudes, scaled to 16 bits."""
    code = ~code & 0xFF
    magnitude = (((code & 0x0F) << 3) + 0x84 << ((code & 0x70) >> 4)) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude)


def _alaw(code: Array) -> Array:
    """ITU-T G.711 A-law: 13-bit magnitudes, scaled to 16 bits."""
    code = code ^ 0x55
    exponent = (code & 0x70) >> 4
    mantissa = ((code & 0x0F) << 4) + 8
    magnitude = np.where(exponent == 0, mantissa, mantissa + 0x100 << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude)


_MULAW, _ALAW = _companded(_mulaw), _companded(_alaw)


def _unsigned8(data: Array) -> Array:
    return (data.astype(np.float32) - 128) / 128


def _signed24(data: Array) -> Array:
    wide = np.zeros((data.size // 3, 4), np.uint8)
    wide[:, 1:] = data.reshape(-1, 3)
    return _scaled(wide.view("<i4").reshape(-1), 31)


def _scaled(data: Array, bits: int) -> Array:
    scaled: Array = data.astype(np.float32) * np.float32(2.0**-bits)
    return scaled


def _finite(data: Array) -> Array:
    finite: Array = np.clip(np.nan_to_num(data, posinf=0, neginf=0), -4, 4).astype(np.float32)
    return finite


@dataclass(frozen=True, slots=True)
class SampleFormat:
    """How one sample lies in memory: its size in bytes and the conversion of a u8[n × size] array to f32[n]."""

    name: str
    size: int
    convert: Callable[[Array], Array]


ENCODINGS: Mapping[str, SampleFormat] = {
    known.name: known
    for known in (
        SampleFormat("pcm_u8", 1, _unsigned8),
        SampleFormat("pcm_s16le", 2, lambda data: _scaled(data.view("<i2"), 15)),
        SampleFormat("pcm_s24le", 3, _signed24),
        SampleFormat("pcm_s32le", 4, lambda data: _scaled(data.view("<i4"), 31)),
        SampleFormat("pcm_f32le", 4, lambda data: _finite(data.view("<f4"))),
        SampleFormat("pcm_f64le", 8, lambda data: _finite(data.view("<f8"))),
        SampleFormat("pcm_mulaw", 1, lambda data: _MULAW[data]),
        SampleFormat("pcm_alaw", 1, lambda data: _ALAW[data]),
    )
}


def check_layout(rate: Any, channels: Any) -> tuple[int, int]:
    """`(rate, channels)` when both are possible; InputError otherwise."""
    if isinstance(rate, bool) or not isinstance(rate, int) or not RATE_MIN <= rate <= RATE_MAX:
        raise InputError(
            "sample rate is out of range", stage="decoder", found=rate, allowed=f"{RATE_MIN} to {RATE_MAX} Hz"
        )
    if isinstance(channels, bool) or not isinstance(channels, int) or not 1 <= channels <= CHANNELS_MAX:
        raise InputError(
            "number of channels is out of range", stage="decoder", found=channels, allowed=f"1 to {CHANNELS_MAX}"
        )
    return rate, channels


class PcmReader:
    """Headerless samples of a declared format; pieces may have any length, also odd ones."""

    container = "raw"

    def __init__(self, encoding: SampleFormat, rate: Any, channels: Any) -> None:
        self.rate, self.channels = check_layout(rate, channels)
        self._encoding = encoding
        self._frame = encoding.size * channels
        self._rest = b""

    def push(self, data: memoryview) -> Iterator[Frames]:
        """Every whole frame of what was carried over and `data`."""
        if self._rest:
            need = self._frame - len(self._rest)
            self._rest += bytes(data[:need])
            data = data[need:]
            if len(self._rest) < self._frame:
                return
            yield self._frames(np.frombuffer(self._rest, np.uint8))
            self._rest = b""
        whole = len(data) - len(data) % self._frame
        self._rest = bytes(data[whole:])
        if whole:
            yield self._frames(np.frombuffer(data[:whole], np.uint8))

    def align(self) -> None:
        """Forget a part of a frame: what comes next begins a new one."""
        self._rest = b""

    def finish(self) -> Iterator[Frames]:
        """Nothing more: a part of a frame at the end is not a sample."""
        return iter(())

    def _frames(self, data: Array) -> Frames:
        return self._encoding.convert(data).reshape(-1, self.channels)
