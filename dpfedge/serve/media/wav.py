# SPDX-License-Identifier: Apache-2.0
"""The head of a WAV stream whose length is not known yet; it carries no samples."""

from __future__ import annotations

import struct

__all__ = ["stream_header"]

_UNKNOWN = 0xFFFFFFFF
"""Both sizes of a stream that still grows: what ffmpeg writes to a pipe, and what readers take as `to the end`."""


def stream_header(rate: int) -> bytes:
    """44 bytes: RIFF, 16-bit mono PCM at `rate` Hz, sizes unknown."""
    head = struct.pack("<4sI4s", b"RIFF", _UNKNOWN, b"WAVE")
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    return head + form + struct.pack("<4sI", b"data", _UNKNOWN)
