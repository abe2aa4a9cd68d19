# SPDX-License-Identifier: Apache-2.0
"""Samples of one channel of 16 bits, as a WAV file has them: a path in, bytes and a rate out.

It resamples and decodes nothing; recordings of other forms are for the decoder.
"""

from __future__ import annotations

import wave
from pathlib import Path

from dpfedge.errors import DpfError

__all__ = ["read_mono"]


def read_mono(path: Path, what: str, refusal: type[DpfError]) -> tuple[bytes, int]:
    """(whole samples as s16le, rate in Hz as the file says); `refusal` of `what` ("the question") for another file."""
    try:
        with wave.open(str(path), "rb") as wav:
            if wav.getsampwidth() != 2 or wav.getnchannels() != 1:
                raise refusal(f"{what} must be 16-bit mono", where=str(path), found=f"{wav.getnchannels()} channels")
            data = wav.readframes(wav.getnframes())
            return data[: len(data) & ~1], wav.getframerate()  # a file that was cut short may end within a sample
    except (OSError, EOFError, RuntimeError, wave.Error) as error:  # RuntimeError: a chunk that is longer than the file
        found = str(error) or "the end of the file"
        raise refusal(f"{what} is no WAV file that can be read", where=str(path), found=found) from error
