# SPDX-License-Identifier: Apache-2.0
"""Decoded frames in, RGB in the caller's own memory out, in one pass of libswscale: scaled, converted, nothing copied.

libswscale is the one that PyAV was linked with, called through its C interface, which has been the same since
libswscale 1: PyAV itself converts into frames of its own only, and from there every frame would be copied once more.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from dpfedge.backend.api import Array
from dpfedge.errors import InputError, Unavailable
from dpfedge.records import dataclass

__all__ = ["Converter"]

_WHERE = "stage camera"
_REMEDY = "install the extra: pip install 'dpfedge[vision]'"
_BILINEAR, _ACCURATE = 2, 0x40000
_LANE = 16
"""Columns that the fast converters write at once. Where the last row ends inside a lane they write behind the picture,
and some columns wrongly, so other widths take the accurate one."""
_HD_ROWS = 720  # from here on a file that does not name its colour matrix means BT.709, as players take it
_MATRICES = {1: 1, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9, 10: 9}  # AVColorSpace → libswscale's name of its coefficients
_BT709, _BT601, _FULL = 1, 5, 2
_ONE = 1 << 16

_Planes = ctypes.c_void_p * 4
_Strides = ctypes.c_int * 4


@dataclass(frozen=True, slots=True)
class _Library:
    """The functions used, with their C types."""

    scale: Any
    context: Any
    free: Any
    format: Any
    colours: Any
    coefficients: Any
    reads: Any


class Converter:
    """Writes frames of any one size after the other; contexts of the last size and format are kept."""

    def __init__(self) -> None:
        """Unavailable names the library or function that is missing."""
        self._library = _library()
        self._rgb = self._library.format(b"rgb24")
        self._context: int | None = None
        self._made_for: tuple[object, ...] = ()

    def write(self, frame: Any, out: Array) -> None:
        """Convert an `av.VideoFrame` into u8[height, width, 3] C-contiguous, scaled to its size.

        InputError when the frame's pixel format is one that cannot be read.
        """
        height, width = out.shape[:2]
        context = self._for(frame, width, height)
        planes = frame.planes
        sources = _Planes(*(plane.buffer_ptr for plane in planes))
        strides = _Strides(*(plane.line_size for plane in planes))
        target = _Planes(out.ctypes.data)
        row = _Strides(3 * width)
        written = self._library.scale(context, sources, strides, 0, frame.height, target, row)
        if written != height:
            found, allowed = f"{written} of {height} rows", f"{frame.format.name}"
            raise InputError("the frame cannot be converted", stage="camera", found=found, allowed=allowed)

    def close(self) -> None:
        """Free the context."""
        if self._context is not None:
            self._library.free(self._context)
            self._context, self._made_for = None, ()

    def _for(self, frame: Any, width: int, height: int) -> int:
        wanted = (frame.width, frame.height, frame.format.name, frame.colorspace, frame.color_range, width, height)
        if self._context is None or wanted != self._made_for:
            self.close()
            self._context, self._made_for = self._make(frame, width, height), wanted
        return self._context

    def _make(self, frame: Any, width: int, height: int) -> int:
        name = str(frame.format.name)
        number = self._library.format(name.encode())
        flags = _BILINEAR if width % _LANE == 0 else _BILINEAR | _ACCURATE
        known = number >= 0 and self._library.reads(number)
        sizes = (frame.width, frame.height, number, width, height, self._rgb)
        context = self._library.context(*sizes, flags, None, None, None) if known else None
        if not context:
            raise InputError("frames of this pixel format cannot be read", stage="camera", found=name,
                             remedy="convert the video to yuv420p")  # fmt: skip
        matrix = _MATRICES.get(int(frame.colorspace), _BT709 if frame.height >= _HD_ROWS else _BT601)
        full = int(frame.color_range) == _FULL or name.startswith("yuvj")
        rows = self._library.coefficients(matrix), self._library.coefficients(_BT601)
        # not for RGB sources, which have no matrix: it says so and changes nothing
        self._library.colours(context, rows[0], int(full), rows[1], 1, 0, _ONE, _ONE)
        return int(context)


@cache
def _library() -> _Library:
    try:
        import av  # noqa: F401  (loads the libraries)
    except ImportError as error:
        raise Unavailable("PyAV is not installed", where=_WHERE, found=str(error), remedy=_REMEDY) from error
    sws, util = (ctypes.CDLL(str(_loaded(name))) for name in ("libswscale", "libavutil"))
    number, pointer = ctypes.c_int, ctypes.c_void_p
    return _Library(
        scale=_function(sws, "sws_scale", number, [pointer, pointer, pointer, number, number, pointer, pointer]),
        context=_function(sws, "sws_getContext", pointer, [*[number] * 7, *[pointer] * 3]),
        free=_function(sws, "sws_freeContext", None, [pointer]),
        format=_function(util, "av_get_pix_fmt", number, [ctypes.c_char_p]),
        colours=_function(sws, "sws_setColorspaceDetails", number, [pointer, pointer, number, pointer, *[number] * 4]),
        coefficients=_function(sws, "sws_getCoefficients", pointer, [number]),
        reads=_function(sws, "sws_isSupportedInput", number, [number]),
    )


def _loaded(name: str) -> Path:
    """The file of a library that this process has mapped: the very one PyAV uses, wherever it was installed."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split(maxsplit=5)[-1])
        if path.name.startswith((f"{name}.so", f"{name}-")) and path.exists():
            return path
    raise Unavailable(
        f"PyAV brings no {name} of its own", where=_WHERE, allowed="PyAV linked with shared libraries of FFmpeg",
        remedy=_REMEDY,
    )  # fmt: skip


def _function(library: ctypes.CDLL, name: str, result: Any, arguments: list[Any]) -> Any:
    try:
        function = getattr(library, name)
    except AttributeError as error:
        where, found = _WHERE, f"{name} in {library._name}"
        raise Unavailable("FFmpeg lacks a function", where=where, found=found, remedy=_REMEDY) from error
    function.restype, function.argtypes = result, arguments
    return function
