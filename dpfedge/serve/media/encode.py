# SPDX-License-Identifier: Apache-2.0
"""16-bit mono samples in, WAV, PCM, FLAC, MP3, Opus or AAC out, piece by piece.

It synthesises nothing and writes no file. WAV and PCM need nothing more; the others need PyAV (`dpfedge[media]`).
"""

from __future__ import annotations

import importlib.util
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from dpfedge.serve.errors import RequestError
from dpfedge.serve.media.resample import Resampler, Samples
from dpfedge.serve.media.wav import stream_header

__all__ = ["FORMATS", "PCM_HZ", "Encoder", "encoder_for"]

PCM_HZ = 24_000
"""The rate of `pcm`, as the OpenAI speech endpoint."""

FORMATS = {
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
}
"""Format → media type."""

# container, codec, sample format, rate (None: the voice's own), options of the container
_AV: dict[str, tuple[str, str, str, int | None, dict[str, str]]] = {
    "mp3": ("mp3", "libmp3lame", "s16p", None, {"write_xing": "0", "id3v2_version": "0"}),
    "opus": ("ogg", "libopus", "s16", 24_000, {"page_duration": "200000"}),
    "aac": ("adts", "aac", "fltp", None, {}),
    "flac": ("flac", "flac", "s16", None, {}),
}


class Encoder(Protocol):
    """A sound format being written."""

    heavy: bool
    """Whether a piece takes long enough to hold up an event loop."""

    def feed(self, samples: Samples) -> bytes:
        """i16[n] in, the bytes that are ready out (may be empty)."""

    def finish(self) -> bytes:
        """The rest."""


def encoder_for(name: str, rate: int) -> Encoder:
    """The encoder of format `name` for samples at `rate` Hz; RequestError when this installation cannot."""
    if name == "wav":
        return _Wav(rate)
    if name == "pcm":
        return _Pcm(rate)
    if importlib.util.find_spec("av") is None:
        raise RequestError(
            f"response_format {name!r} needs PyAV, which is not installed",
            allowed="wav, pcm",
            param="response_format",
            remedy="pip install 'dpfedge[media]', or ask for wav or pcm",
            code="unsupported_value",
        )
    return _Av(name, rate)


class _Wav:
    heavy = False

    def __init__(self, rate: int) -> None:
        self._head = stream_header(rate)

    def feed(self, samples: Samples) -> bytes:
        head, self._head = self._head, b""
        return head + samples.astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        return self._head


class _Pcm:
    heavy = False

    def __init__(self, rate: int) -> None:
        self._resampler = Resampler(rate, PCM_HZ)

    def feed(self, samples: Samples) -> bytes:
        return self._resampler.feed(samples).astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        return self._resampler.flush().astype("<i2", copy=False).tobytes()


class _Sink:
    """What PyAV writes to: no `seek`, so nothing sent is ever patched."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _Av:
    heavy = True

    def __init__(self, name: str, rate: int) -> None:
        import av

        container, codec, self._format, fixed, options = _AV[name]
        self._av, self._sink = av, _Sink()
        self._rate = fixed or rate
        self._resampler = Resampler(rate, self._rate)
        opened: Any = av.open  # its stubs know no file object without `seek`
        self._container = opened(self._sink, "w", format=container, container_options=options)
        self._stream = self._container.add_stream(codec, rate=self._rate, layout="mono")
        self._stream.format = self._format
        self._base = Fraction(1, self._rate)
        self._sent = 0

    def feed(self, samples: Samples) -> bytes:
        self._encode(self._resampler.feed(samples))
        return self._sink.take()

    def finish(self) -> bytes:
        self._encode(self._resampler.flush())
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._sink.take()

    def _encode(self, samples: Samples) -> None:
        if not len(samples):
            return
        if self._format == "fltp":
            samples = (samples.astype(np.float32) / 32768).astype(np.float32)
        frame = self._av.AudioFrame.from_ndarray(samples.reshape(1, -1), format=self._format, layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = self._rate, self._base, self._sent
        self._sent += len(samples)
        self._container.mux(self._stream.encode(frame))
