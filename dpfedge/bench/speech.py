# SPDX-License-Identifier: Apache-2.0
"""The spoken question of a bench: words or a WAV file in, 16 kHz samples with a known end of speech out."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from dpfedge.bench.wav import read_mono
from dpfedge.errors import InputError
from dpfedge.pipeline.events import AudioChunk
from dpfedge.records import dataclass
from dpfedge.runtime import AsyncRuntime
from dpfedge.stage.decoder.pcm import RATE_MAX, RATE_MIN

__all__ = ["RATE", "Question", "from_wav", "spoken"]

RATE = 16000
_FLOOR = 0.01  # of full scale: quieter than this is the silence around the words


@dataclass(frozen=True, slots=True)
class Question:
    """`pcm` is i16[n] mono at 16 kHz and ends with the last sample of speech."""

    words: str
    pcm: np.ndarray[Any, np.dtype[np.int16]]

    @property
    def seconds(self) -> float:
        """Length of the speech."""
        return len(self.pcm) / RATE

    def save(self, path: Path) -> None:
        """Write the question as a WAV file."""
        with wave.open(str(path), "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes(self.pcm.tobytes())


async def spoken(runtime: AsyncRuntime, words: str) -> Question:
    """The package's own voice says `words`."""
    chunks, rate = [], RATE
    async for event in runtime.speak(words):
        if isinstance(event, AudioChunk):
            chunks.append(event.samples.copy())
            rate = event.rate
    samples = np.concatenate(chunks).astype(np.float32) / 32768
    return Question(words, _trim(soxr.resample(samples, rate, RATE)))


def from_wav(path: Path) -> Question:
    """A 16-bit mono WAV recording of the question."""
    data, rate = read_mono(path, "the question", InputError)
    if not RATE_MIN <= rate <= RATE_MAX:
        allowed = f"{RATE_MIN} to {RATE_MAX} Hz"
        raise InputError("sample rate is out of range", where=str(path), found=rate, allowed=allowed)
    samples = np.frombuffer(data, "<i2").astype(np.float32) / 32768
    return Question(path.stem, _trim(soxr.resample(samples, rate, RATE)))


def _trim(samples: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.int16]]:
    loud = np.flatnonzero(np.abs(samples) > _FLOOR)
    if not loud.size:
        raise InputError("the question is silent", where="bench", allowed="speech louder than 1 % of full scale")
    start = max(0, int(loud[0]) - RATE // 4)
    return (np.clip(samples[start : int(loud[-1]) + 1], -1, 1) * 32767).astype(np.int16)
