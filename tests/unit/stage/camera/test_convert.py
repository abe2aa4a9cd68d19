# SPDX-License-Identifier: Apache-2.0
"""Conversion into foreign memory: every pixel right, and not one byte beside it."""

from __future__ import annotations

from typing import Any

import av
import numpy as np
import pytest

from dpfedge.errors import InputError, Unavailable
from dpfedge.stage.camera import convert
from dpfedge.stage.camera.convert import Converter

GUARD = 256
COLOUR = (200, 40, 90)


def picture(width: int, height: int, pixels: str, matrix: str | None = None) -> Any:
    """A frame of one colour."""
    data = np.full((height, width, 3), COLOUR, np.uint8)
    return av.VideoFrame.from_ndarray(data, format="rgb24").reformat(
        format=pixels, **({} if matrix is None else {"dst_colorspace": matrix})
    )


def guarded(converter: Converter, frame: Any, width: int, height: int) -> np.ndarray:
    """The frame converted between guard bytes, which must stay."""
    memory = np.full(GUARD + height * width * 3 + GUARD, 7, np.uint8)
    out = memory[GUARD:-GUARD].reshape(height, width, 3)
    converter.write(frame, out)
    assert (memory[:GUARD] == 7).all()
    assert (memory[-GUARD:] == 7).all()
    return out


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv422p", "yuvj420p", "yuv444p", "nv12", "yuyv422", "rgb24", "bgra"])
def test_write__every_width_in_place(pixels: str) -> None:
    """Odd widths too: no column is wrong, and nothing is written behind the last row."""
    converter = Converter()
    for width in [*range(1, 36), 47, 48, 63, 64, 65, 127]:
        frame = picture(width, 6, pixels)
        for size in ((width, 6), (max(1, width // 2), 3), (width + 5, 9)):
            out = guarded(converter, frame, *size)

            np.testing.assert_allclose(out.reshape(-1, 3), [COLOUR] * (size[0] * size[1]), atol=6)
    converter.close()


@pytest.mark.parametrize("matrix", ["ITU709", "ITU601"])
def test_write__the_files_own_colours(matrix: str) -> None:
    """The colour matrix a file names is the one it is read with."""
    out = guarded(Converter(), picture(64, 48, "yuv420p", matrix), 64, 48)

    np.testing.assert_allclose(out[20, 20], COLOUR, atol=3)


def test_write__equals_pyav() -> None:
    """The same numbers as PyAV's own conversion, which copies."""
    noise = np.random.default_rng(0).integers(0, 256, (50, 80, 3), np.uint8)
    frame = av.VideoFrame.from_ndarray(noise, format="rgb24").reformat(format="yuv420p", dst_colorspace="ITU601")

    found = guarded(Converter(), frame, 80, 50).astype(int)

    assert np.abs(found - frame.to_ndarray(format="rgb24")).mean() < 2


def test_write__format_that_cannot_be_read() -> None:
    """The format is named; what is in memory stays."""

    class Frame:
        width, height, colorspace, color_range = 4, 4, 2, 0
        format = type("Format", (), {"name": "nonsense"})

    with pytest.raises(InputError, match="frames of this pixel format cannot be read; found nonsense"):
        Converter().write(Frame(), np.empty((4, 4, 3), np.uint8))


def test_library__absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyAV without shared libraries, or with others, is refused by name."""
    with pytest.raises(Unavailable, match=r"PyAV brings no libnothing of its own.*install the extra"):
        convert._loaded("libnothing")
    library = convert.ctypes.CDLL(str(convert._loaded("libavutil")))
    with pytest.raises(Unavailable, match=r"FFmpeg lacks a function; found av_nothing in .*libavutil"):
        convert._function(library, "av_nothing", None, [])
