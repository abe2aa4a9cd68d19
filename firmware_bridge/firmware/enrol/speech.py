# SPDX-License-Identifier: Apache-2.0
"""Speech to enrol with and to measure on: what the demo package's voice says, recordings of the cache, other voices.

Text in, 16 kHz samples out, each with half a second of quiet before and behind it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ear import HZ, Samples
from numpy.typing import NDArray

from dpfedge import Runtime
from dpfedge.pipeline.events import AudioChunk
from dpfedge.stage.decoder.resample import Resampler

__all__ = ["Voice", "in_room", "louder", "noisy", "others", "over", "read", "recordings"]

_QUIET = HZ // 2
_HISS = 4.0  # of a good microphone, in units of the last bit: digital silence is nowhere in a car
_FLITE = ("slt", "rms", "awb", "kal16")
_ESPEAK = ("en-us+m1", "en-us+m3", "en-us+m7", "en-us+f1", "en-us+f2", "en-us+f4", "en-gb+f3", "en-gb-scotland+m2")


def _padded(samples: NDArray[np.float32]) -> Samples:
    quiet = np.zeros(_QUIET, np.float32)
    whole = np.concatenate([quiet, samples, quiet]) * 32768
    whole += np.random.default_rng(len(samples)).normal(0, _HISS, len(whole))
    return _whole(whole)


def _whole(values: NDArray[np.floating[Any]]) -> Samples:
    narrow: Samples = np.clip(values, -32768, 32767).astype(np.int16)
    return narrow


def _at_16k(samples: NDArray[np.int16], rate: int) -> Samples:
    resampler = Resampler(rate)
    parts = [resampler.push(samples.astype(np.float32) / np.float32(32768)), resampler.finish()]
    return _padded(np.concatenate(parts))


class Voice:
    """The voice of a package; no two takes of it are the same."""

    def __init__(self, package: Path) -> None:
        self._runtime = Runtime.open(package, board="host")

    def say(self, text: str) -> Samples:
        """One take."""
        said = [(one.samples.copy(), one.rate) for one in self._runtime.speak(text) if isinstance(one, AudioChunk)]
        return _at_16k(np.concatenate([samples for samples, _ in said]), said[0][1])

    def close(self) -> None:
        """End the runtime."""
        self._runtime.close()


def read(path: Path) -> Samples:
    """A 16-bit WAV file of any rate, its first channel."""
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return _at_16k(samples[:: file.getnchannels()], file.getframerate())


def recordings() -> dict[str, Samples]:
    """People reading books: the recordings of moonshine-voice, as far as `dpfedge models pull` has fetched them."""
    from dpfedge.models import cached, pull

    name = "moonshine-speech-samples"
    return {path.stem: read(path) for path in sorted(pull(name).dir.glob("*.wav"))} if cached(name) else {}


def others(text: str) -> Iterator[tuple[str, Samples]]:
    """The text in the voices of flite and espeak-ng, as far as they are installed: speakers nobody enrolled."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "said.wav"
        if shutil.which("flite"):
            for voice in _FLITE:
                subprocess.run(["flite", "-voice", voice, "-t", text, "-o", str(out)], check=True)
                yield f"flite {voice}", read(out)
        if shutil.which("espeak-ng"):
            for voice in _ESPEAK:
                subprocess.run(["espeak-ng", "-v", voice, "-w", str(out), text], check=True)
                yield f"espeak-ng {voice}", read(out)


def _loudness(samples: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(samples[np.abs(samples) > 200] ** 2)))


def noisy(samples: Samples, snr_db: float, seed: int) -> Samples:
    """With noise of a car's colour (12 dB an octave less above 200 Hz), so many dB below the speech."""
    generator = np.random.default_rng(seed)
    spectrum = np.fft.rfft(generator.standard_normal(len(samples)))
    hz = np.fft.rfftfreq(len(samples), 1 / HZ)
    noise = np.fft.irfft(spectrum / (1 + (hz / 200) ** 2), len(samples))
    speech = samples.astype(np.float64)
    noise *= _loudness(speech) / np.sqrt(np.mean(noise**2)) / 10 ** (snr_db / 20)
    return _whole(speech + noise)


def over(samples: Samples, other: Samples, db: float) -> Samples:
    """With other speech behind it, so many dB below: what is left of the answer behind an echo canceller."""
    speech, behind = samples.astype(np.float64), np.resize(other.astype(np.float64), len(samples))
    return _whole(speech + behind * _loudness(speech) / _loudness(behind) / 10 ** (db / 20))


def in_room(samples: Samples, other: Samples, db: float, seed: int) -> tuple[Samples, Samples]:
    """The speech over an answer that is so many dB below, in a room of its own; and the answer as it was played.

    The answer begins two to four seconds earlier. The room: 5 ms on the way, then 24 ms of decaying reflections.
    """
    generator = np.random.default_rng(seed)
    reflections = generator.normal(0, 1, 24 * HZ // 1000)
    reflections *= np.exp(-np.arange(len(reflections)) / (len(reflections) / 5))
    reflections[0] += 2
    room = np.concatenate([np.zeros(5 * HZ // 1000), reflections])
    words = other[_QUIET:-_QUIET]
    played = np.concatenate([words, np.resize(words, len(samples))])
    speech = np.concatenate([np.zeros(len(words)), samples.astype(np.float64)])
    echo = np.convolve(played.astype(np.float64), room)[: len(played)]
    return _whole(speech + echo * _loudness(speech) / _loudness(echo) / 10 ** (db / 20)), played


def louder(samples: Samples, db: float) -> Samples:
    """So many dB louder; negative: less loud."""
    return _whole(samples.astype(np.float64) * 10 ** (db / 20))
