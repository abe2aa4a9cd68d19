# SPDX-License-Identifier: Apache-2.0
"""WAV files of one channel of 16 bits."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from dpfedge.bench.wav import read_mono
from dpfedge.errors import InputError, UsageError


def write(path: Path, channels: int = 1, width: int = 2) -> Path:
    """Four frames at 8 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(8000)
        file.writeframes(bytes(range(4 * channels * width)))
    return path


def test_read_mono__gives_bytes_and_rate(tmp_path: Path) -> None:
    """As they are in the file; what is left of a sample in a file that was cut short is not one."""
    path = write(tmp_path / "a.wav")
    assert read_mono(path, "the question", InputError) == (bytes(range(8)), 8000)
    path.write_bytes(path.read_bytes()[:-3])
    assert read_mono(path, "the question", InputError) == (bytes(range(4)), 8000)


@pytest.mark.parametrize(("channels", "width"), [(2, 2), (1, 1), (1, 4)])
def test_read_mono__refuses_other_forms(tmp_path: Path, channels: int, width: int) -> None:
    """By the file's name, as the error that the caller asks for."""
    path = write(tmp_path / "b.wav", channels, width)
    with pytest.raises(UsageError, match=rf"b\.wav: the recording must be 16-bit mono; found {channels} channels"):
        read_mono(path, "the recording", UsageError)


@pytest.mark.parametrize("data", [None, b"", b"no sound", b"RIFFsizeWAVE" + b"\xff" * 50])
def test_read_mono__refuses_what_is_no_wav_file(tmp_path: Path, data: bytes | None) -> None:
    """Missing, empty, something else, a chunk that is longer than the file."""
    path = tmp_path / "c.wav"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match=r"c\.wav: the recording is no WAV file that can be read; found ."):
        read_mono(path, "the recording", InputError)
