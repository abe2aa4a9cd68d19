# SPDX-License-Identifier: Apache-2.0
"""The firmware's own ear, called from Python: cepstra.c, echo.c and keyword.c, built here: nothing is computed twice.

Samples or frames in, frames or scores out. It chooses nothing.
"""

from __future__ import annotations

import ctypes
import math
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DIMS", "HOP", "HZ", "LENGTH_MAX", "Ear", "Frames", "Phrases", "Samples", "Template"]

HZ, HOP, DIMS, LENGTH_MAX, TEMPLATES_MAX = 16000, 160, 24, 128, 16
_DB = 10 * math.log10(2) / 256
_BRIDGE = Path(__file__).parents[2]
Samples = NDArray[np.int16]
Frames = NDArray[np.int8]
"""i8[n, 24]: a frame for each 10 ms."""


@dataclass(frozen=True, slots=True)
class Template:
    """One example of a phrase. `threshold`: the mean cost of a frame below which it is heard."""

    phrase: int
    frames: Frames
    threshold: int


@dataclass(frozen=True, slots=True)
class Phrases:
    """What the ear compares with. `fillers`: i8[n, 24], typical sounds of speech."""

    templates: Sequence[Template]
    fillers: Frames


class _Frame(ctypes.Structure):
    _fields_ = (("dims", ctypes.c_int8 * DIMS), ("loudness", ctypes.c_int16))


class _Template(ctypes.Structure):
    _fields_ = (
        ("frames", ctypes.c_void_p), ("length", ctypes.c_uint16), ("phrase", ctypes.c_uint8),
        ("threshold", ctypes.c_int16),
    )  # fmt: skip


class _Phrases(ctypes.Structure):
    _fields_ = (
        ("templates", ctypes.POINTER(_Template)), ("count", ctypes.c_uint32), ("fillers", ctypes.c_void_p),
        ("filler_count", ctypes.c_uint32),
    )  # fmt: skip


class _Path(ctypes.Structure):
    _fields_ = (("cost", ctypes.c_int32), ("frames", ctypes.c_uint16), ("stayed", ctypes.c_uint16))


class Ear:
    """cepstra.c, echo.c and keyword.c of this checkout."""

    def __init__(self, compiler: str = "cc") -> None:
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "ear.so"
            sources = [
                str(_BRIDGE / "firmware" / name) for name in ("cepstra.c", "echo.c", "keyword.c", "enrol/sizes.c")
            ]
            subprocess.run([compiler, "-std=c11", "-O2", "-shared", "-fPIC", *sources, "-o", str(library)], check=True)
            self._library = ctypes.CDLL(str(library))
        self._best_at = self._library.dpf_fw_size_best()

    def frames(self, samples: Samples) -> tuple[Frames, NDArray[np.float64]]:
        """Every frame of the samples, as a microphone just switched on hears them, and how loud it is in dB."""
        state = ctypes.create_string_buffer(self._library.dpf_fw_size_features())
        self._library.dpf_fw_features_init(state)
        frame, found, loudness = _Frame(), [], []
        for at in range(0, len(samples) - HOP + 1, HOP):
            hop = np.ascontiguousarray(samples[at : at + HOP], np.int16)
            if self._library.dpf_fw_features_push(state, hop.ctypes.data_as(ctypes.c_void_p), ctypes.byref(frame)):
                found.append(bytes(frame)[:DIMS])
                loudness.append(frame.loudness * _DB)
        return np.frombuffer(b"".join(found), np.int8).reshape(-1, DIMS), np.array(loudness)

    def cancelled(self, captured: Samples, played: Samples) -> Samples:
        """What is left of the samples when what was played is taken out, by a canceller that has learnt nothing yet."""
        state = ctypes.create_string_buffer(self._library.dpf_fw_size_echo())
        self._library.dpf_fw_echo_init(state)
        left = np.empty_like(captured)
        pointers = [np.ascontiguousarray(one).ctypes.data_as(ctypes.c_void_p) for one in (captured, played)]
        self._library.dpf_fw_echo_cancel(state, *pointers, left.ctypes.data_as(ctypes.c_void_p), len(captured))
        return left

    def listen(self, frames: Frames, phrases: Phrases) -> tuple[list[tuple[int, int]], float, int]:
        """(frame, phrase) of everything heard; the lowest mean cost there was, and the template whose it is."""
        state = ctypes.create_string_buffer(self._library.dpf_fw_size_keyword())
        given, kept = _given(phrases)
        if not self._library.dpf_fw_keyword_init(state, ctypes.byref(given)):
            raise ValueError("more templates, or longer ones, than the firmware is built for")
        frame, heard = _Frame(), []
        for at, row in enumerate(frames):
            ctypes.memmove(frame.dims, row.tobytes(), DIMS)
            if (phrase := self._library.dpf_fw_keyword_push(state, ctypes.byref(frame))) != 0:
                heard.append((at, phrase))
        best = _Path.from_buffer(state, self._best_at)
        template = ctypes.c_uint32.from_buffer(state, self._best_at + ctypes.sizeof(_Path)).value
        del kept
        return heard, best.cost / best.frames, template


def _given(phrases: Phrases) -> tuple[_Phrases, Any]:
    """The C structs, and what they point into."""
    frames = [np.ascontiguousarray(one.frames, np.int8) for one in phrases.templates]
    rows = (_Template * len(frames))(
        *(
            _Template(array.ctypes.data, len(array), one.phrase, one.threshold)
            for array, one in zip(frames, phrases.templates, strict=True)
        )
    )
    fillers = np.ascontiguousarray(phrases.fillers, np.int8)
    return _Phrases(rows, len(frames), fillers.ctypes.data, len(fillers)), (frames, rows, fillers)
