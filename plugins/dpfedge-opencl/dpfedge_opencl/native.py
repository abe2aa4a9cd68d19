# SPDX-License-Identifier: Apache-2.0
"""The OpenCL functions this backend calls, as plain C calls into the library that pyopencl brings.

pyopencl's own objects keep the interpreter locked while a driver hangs, and take a Python module for each kernel; these
calls release it. Objects are released where their `Handle` ends. It decides nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Any

from dpfedge.errors import Unavailable
from dpfedge_opencl.library import check

__all__ = ["Handle", "Native", "callback", "native"]

_P, _SIZE, _UINT, _BITS = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_uint64
_CALLBACK = ctypes.CFUNCTYPE(None, _P, ctypes.c_int, _P)
_ALL_DEVICES = 0xFFFFFFFF
_PRIORITY = 0x1096
_BUILD_LOG, _BINARY_SIZES, _BINARIES, _KERNEL_NAMES = 0x1183, 0x1165, 0x1166, 0x1168
_POINTERS = {
    "clCreateContext": (_P, _UINT, _P, _P, _P, _P),
    "clCreateCommandQueue": (_P, _P, _BITS, _P),
    "clCreateCommandQueueWithProperties": (_P, _P, _P, _P),
    "clCreateProgramWithSource": (_P, _UINT, _P, _P, _P),
    "clCreateProgramWithBinary": (_P, _UINT, _P, _P, _P, _P, _P),
    "clCreateKernel": (_P, ctypes.c_char_p, _P),
    "clCreateBuffer": (_P, _BITS, _SIZE, _P, _P),
    "clEnqueueMapBuffer": (_P, _P, _UINT, _BITS, _SIZE, _SIZE, _UINT, _P, _P, _P),
    "clGetExtensionFunctionAddressForPlatform": (_P, ctypes.c_char_p),
}
_CODES: dict[str, tuple[Any, ...] | None] = {
    "clGetPlatformIDs": (_UINT, _P, _P),
    "clGetDeviceIDs": (_P, _BITS, _UINT, _P, _P),
    "clGetDeviceInfo": (_P, _UINT, _SIZE, _P, _P),
    "clGetPlatformInfo": (_P, _UINT, _SIZE, _P, _P),
    "clBuildProgram": (_P, _UINT, _P, ctypes.c_char_p, _P, _P),
    "clGetProgramInfo": (_P, _UINT, _SIZE, _P, _P),
    "clGetProgramBuildInfo": (_P, _P, _UINT, _SIZE, _P, _P),
    "clEnqueueUnmapMemObject": (_P, _P, _P, _UINT, _P, _P),
    "clSetEventCallback": (_P, ctypes.c_int, _CALLBACK, _P),
    "clFlush": (_P,),
    "clFinish": (_P,),
    "clReleaseContext": (_P,),
    "clReleaseCommandQueue": (_P,),
    "clReleaseProgram": (_P,),
    "clReleaseKernel": (_P,),
    "clReleaseMemObject": (_P,),
    "clReleaseEvent": (_P,),
    "clGetEventInfo": None,
    "clSetKernelArg": None,  # their arguments are made once, as C values: checking them on each call takes longer
    "clEnqueueNDRangeKernel": None,
}


class Handle:
    """An object of the driver, released when nothing holds it."""

    __slots__ = ("_release", "value")

    def __init__(self, value: int, release: Callable[[int], int]) -> None:
        self.value, self._release = value, release

    def __del__(self) -> None:
        self._release(self.value)


class Native:
    """The functions of one library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name, arguments in (*_POINTERS.items(), *_CODES.items()):
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise Unavailable("the OpenCL library lacks a function", where="backend opencl", found=name) from error
            function.argtypes, function.restype = arguments, _P if name in _POINTERS else ctypes.c_int
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:  # for the type checker: all of them are set above
        raise AttributeError(name)

    def devices(self) -> list[tuple[int, int]]:
        """(platform, device) of every device, platform by platform."""
        return [(platform, one) for platform in self._platforms() for one in self._devices(platform)]

    def _platforms(self) -> Sequence[int]:
        count = _UINT()
        check(self.clGetPlatformIDs(0, None, ctypes.byref(count)), "clGetPlatformIDs", "backend opencl")
        found = (_P * count.value)()
        check(self.clGetPlatformIDs(count.value, found, None), "clGetPlatformIDs", "backend opencl")
        return [int(one or 0) for one in found]

    def _devices(self, platform: int) -> Sequence[int]:
        count = _UINT()
        code = self.clGetDeviceIDs(platform, _ALL_DEVICES, 0, None, ctypes.byref(count))
        if code == -1:  # the platform has none
            return []
        check(code, "clGetDeviceIDs", "backend opencl")
        found = (_P * count.value)()
        check(self.clGetDeviceIDs(platform, _ALL_DEVICES, count.value, found, None), "clGetDeviceIDs", "backend opencl")
        return [int(one or 0) for one in found]

    def text(self, function: str, of: int, what: int) -> str:
        """A text that `clGetDeviceInfo`, `clGetPlatformInfo` or `clGetProgramInfo` knows."""
        size = _SIZE()
        check(getattr(self, function)(of, what, 0, None, ctypes.byref(size)), function, "backend opencl")
        room = ctypes.create_string_buffer(size.value)
        check(getattr(self, function)(of, what, size.value, room, None), function, "backend opencl")
        return room.value.decode(errors="replace").strip()

    def number(self, device: int, what: int) -> int:
        """A number that clGetDeviceInfo knows, of whatever width."""
        value = _BITS()
        check(self.clGetDeviceInfo(device, what, 8, ctypes.byref(value), None), "clGetDeviceInfo", "backend opencl")
        return value.value

    def _made(self, name: str, where: str, release: str, *arguments: Any) -> Handle:
        code = ctypes.c_int()
        made = getattr(self, name)(*arguments, ctypes.byref(code))
        check(code.value, name, where)
        return Handle(int(made), getattr(self, release))

    def context(self, device: int, where: str) -> Handle:
        """A context of one device."""
        return self._made("clCreateContext", where, "clReleaseContext", None, 1, (_P * 1)(device), None, None)

    def queue(self, context: Handle, device: int, where: str, priority: int | None = None) -> Handle:
        """An in-order queue; `priority` is a value of cl_khr_priority_hints, for devices that have it."""
        if priority is None:
            return self._made("clCreateCommandQueue", where, "clReleaseCommandQueue", context.value, device, 0)
        properties, name = (_BITS * 3)(_PRIORITY, priority, 0), "clCreateCommandQueueWithProperties"
        return self._made(name, where, "clReleaseCommandQueue", context.value, device, properties)

    def buffer(self, context: Handle, flags: int, size: int, address: int | None, where: str) -> Handle:
        """A memory object."""
        code = ctypes.c_int()  # not by `_made`: each run with new memory comes here
        made = self.clCreateBuffer(context.value, flags, size, address, ctypes.byref(code))
        if code.value:
            check(code.value, "clCreateBuffer", where)
        return Handle(made, self.clReleaseMemObject)

    def program(self, context: Handle, device: int, source: str | bytes, options: str, where: str) -> Handle:
        """A built program, from text or from what the driver made of it before."""
        data = source.encode() if isinstance(source, str) else source
        size, at = (_SIZE * 1)(len(data)), (ctypes.c_char_p * 1)(data)
        devices = (_P * 1)(device)
        if isinstance(source, str):
            made = self._made("clCreateProgramWithSource", where, "clReleaseProgram", context.value, 1, at, size)
        else:
            made = self._made(
                "clCreateProgramWithBinary", where, "clReleaseProgram", context.value, 1, devices, size, at, None
            )
        code = self.clBuildProgram(made.value, 1, devices, options.encode(), None, None)
        check(code, "clBuildProgram", where, self._log(made, device) if code else "")
        return made

    def _log(self, program: Handle, device: int) -> str:
        room = ctypes.create_string_buffer(4096)
        self.clGetProgramBuildInfo(program.value, device, _BUILD_LOG, len(room), room, None)
        return " ".join(room.value.decode(errors="replace").split())[:2000]

    def kernel_names(self, program: Handle) -> str:
        """The kernels of a built program, `;` between them."""
        return self.text("clGetProgramInfo", program.value, _KERNEL_NAMES)

    def binary(self, program: Handle, where: str) -> bytes:
        """A built program as the driver gives it away."""
        name, size = "clGetProgramInfo", _SIZE()
        check(self.clGetProgramInfo(program.value, _BINARY_SIZES, 8, ctypes.byref(size), None), name, where)
        room = ctypes.create_string_buffer(size.value)
        at = (_P * 1)(ctypes.addressof(room))
        check(self.clGetProgramInfo(program.value, _BINARIES, 8, at, None), name, where)
        return room.raw

    def kernel(self, program: int, entry: str, where: str) -> int:
        """A new kernel object of a built program; the caller releases it."""
        code = ctypes.c_int()
        made = self.clCreateKernel(program, entry.encode(), ctypes.byref(code))
        check(code.value, f"clCreateKernel({entry})", where)
        return int(made)

    def extension(self, platform: int, name: str) -> int:
        """The address of a function that is not in every library; 0 where the platform lacks it."""
        return int(self.clGetExtensionFunctionAddressForPlatform(platform, name.encode()) or 0)


@cache
def native() -> Native:
    """The functions of the library that pyopencl was linked with, which need not be imported for it."""
    found = PathFinder.find_spec("pyopencl")
    if found is None or found.origin is None:
        raise Unavailable("pyopencl is not installed", where="backend opencl", remedy="pip install dpfedge[opencl]")
    folder = Path(found.origin).parent
    os.environ.setdefault("PYOPENCL_HOME", str(folder))  # where its loader looks for the drivers that it brings
    name = next((path for suffix in EXTENSION_SUFFIXES if (path := folder / f"_cl{suffix}").exists()), None)
    try:
        return Native(ctypes.CDLL(str(name)))
    except OSError as error:
        raise Unavailable("the OpenCL library cannot be loaded", where="backend opencl", found=error) from error


def callback(function: Callable[[int], None]) -> Any:
    """A C function for `clSetEventCallback` that calls `function` with the event's status, from a driver's thread."""
    return _CALLBACK(lambda _event, status, _data: function(status))
