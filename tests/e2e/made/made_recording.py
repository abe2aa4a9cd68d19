# SPDX-License-Identifier: Apache-2.0
"""A recording of a question, said by the package's own voice."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from dpfedge import Runtime
from dpfedge.pipeline.events import AudioChunk


def record(package: Path, words: str, out: Path) -> None:
    """Write `words` as a 16-bit mono WAV file."""
    with Runtime.open(package, board="host") as runtime:
        said = [(one.samples.copy(), one.rate) for one in runtime.speak(words) if isinstance(one, AudioChunk)]
    with wave.open(str(out), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(said[0][1])
        file.writeframes(np.concatenate([samples for samples, _ in said]).tobytes())
