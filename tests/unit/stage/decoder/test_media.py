# SPDX-License-Identifier: Apache-2.0
"""Media files through PyAV."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

from dpfedge.errors import InputError
from dpfedge.stage.decoder import media
from dpfedge.stage.decoder.media import MediaReader


def test_reader__without_pyav(monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing extra is named."""
    monkeypatch.setitem(sys.modules, "av", None)

    with pytest.raises(InputError, match=r"dpfedge\[media\]"):
        MediaReader("mp3")


def test_finish__file_without_audio() -> None:
    """A video without sound is refused with the reason."""
    av = pytest.importorskip("av")
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as out:
        stream = out.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 16, 16, "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((24, 16), np.uint8), "yuv420p")
        out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    reader = MediaReader("matroska", buffer.getvalue())

    with pytest.raises(InputError, match="no audio stream"):
        list(reader.finish())


def test_push__too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept in memory is bounded."""
    pytest.importorskip("av")
    monkeypatch.setattr(media, "BODY_MAX_BYTES", 100)
    reader = MediaReader("mp3")

    with pytest.raises(InputError, match="too large"):
        list(reader.push(memoryview(bytes(101))))
