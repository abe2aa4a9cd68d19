# SPDX-License-Identifier: Apache-2.0
"""The question of a bench ends with its last sample of speech."""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.bench.speech import RATE, Question, from_wav, spoken
from dpfedge.errors import InputError
from dpfedge.pipeline.events import AudioChunk, Event, TurnDone


def tone(seconds: float, rate: int, level: float = 0.5) -> Any:
    return (np.sin(np.arange(int(seconds * rate)) * 0.1) * level * 32767).astype(np.int16)


def write(path: Path, samples: Any, rate: int, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.tobytes())
    return path


def test_wav__is_trimmed_at_both_ends(tmp_path: Path) -> None:
    """A quarter second of the silence before stays, none behind; 16 kHz whatever it was."""
    rate = 8000
    quiet = np.zeros(rate, np.int16)
    question = from_wav(write(tmp_path / "hello.wav", np.concatenate([quiet, tone(1, rate), quiet]), rate))

    assert question.words == "hello"
    assert question.seconds == pytest.approx(1.25, abs=0.05)
    assert np.abs(question.pcm[-8:]).max() > 300


def test_wav__of_silence_is_no_question(tmp_path: Path) -> None:
    """The message says what would be."""
    with pytest.raises(InputError, match="the question is silent"):
        from_wav(write(tmp_path / "x.wav", np.zeros(100, np.int16), RATE))


def test_wav__in_stereo_is_refused(tmp_path: Path) -> None:
    """Nothing is mixed silently."""
    with pytest.raises(InputError, match="must be 16-bit mono; found 2 channels"):
        from_wav(write(tmp_path / "x.wav", tone(1, RATE), RATE, channels=2))


def test_wav__that_was_cut_or_has_no_rate(tmp_path: Path) -> None:
    """Whole samples count; a rate of nothing is refused."""
    path = write(tmp_path / "q.wav", tone(1, RATE), RATE)
    path.write_bytes(path.read_bytes()[:-1001])
    assert len(from_wav(path).pcm) < RATE
    path.write_bytes(path.read_bytes()[:24] + bytes(4) + path.read_bytes()[28:])
    with pytest.raises(InputError, match=r"q\.wav: sample rate is out of range; found 0"):
        from_wav(path)


@pytest.mark.parametrize("data", [b"", b"no sound", b"RIFF\x04\0\0\0WAVE", b"RIFFsizeWAVE" + b"\xff" * 50])
def test_wav__that_is_none_is_refused(tmp_path: Path, data: bytes) -> None:
    """By its name."""
    path = tmp_path / "q.wav"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"q\.wav: the question is no WAV file that can be read"):
        from_wav(path)


def test_question__saved_is_what_it_was(tmp_path: Path) -> None:
    """The baseline reads the same samples."""
    Question("x", tone(0.1, RATE)).save(tmp_path / "x.wav")

    with wave.open(str(tmp_path / "x.wav")) as wav:
        assert wav.getframerate() == RATE
        assert wav.readframes(RATE) == tone(0.1, RATE).tobytes()


def test_spoken__is_the_packages_own_voice() -> None:
    """Chunks are joined and brought to 16 kHz; their views may end with the next event."""
    view = tone(0.5, 22050)

    class Runtime:
        async def speak(self, words: str) -> AsyncIterator[Event]:
            for _ in range(2):
                yield AudioChunk(1, 0, view, 22050)
            yield TurnDone(1, 0, "stop")

    question = asyncio.run(spoken(Runtime(), "hello"))  # type: ignore[arg-type]

    assert question.words == "hello"
    assert question.seconds == pytest.approx(1.0, abs=0.05)
