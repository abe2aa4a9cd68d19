# SPDX-License-Identifier: Apache-2.0
"""The vendor's OpenCL library: imported when first needed, its error codes as BackendErrors, every wait bounded.

Devices, contexts and programs come from pyopencl; what happens once per kernel goes to the same library by ctypes:
pyopencl writes a Python module for each kernel object. It knows no graph.
"""

from __future__ import annotations

import ctypes
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dpfedge.backend.bounded import bounded
from dpfedge.errors import BackendError, Unavailable

__all__ = [
    "Native",
    "callback",
    "check",
    "driver",
    "hang_seconds",
    "hung_error",
    "mapped_errors",
    "native",
    "pyopencl",
    "spare_cache",
    "status_name",
]

T = TypeVar("T")
_HANG_S = 30.0
_LACKING = frozenset({"PLATFORM_NOT_FOUND_KHR", "DEVICE_NOT_FOUND", "DEVICE_NOT_AVAILABLE", "COMPILER_NOT_AVAILABLE"})


@cache
def pyopencl() -> Any:
    """The module pyopencl without its own cache of programs, which has no digest; Unavailable says what is missing."""
    os.environ["PYOPENCL_NO_CACHE"] = "1"
    try:
        import pyopencl
    except ImportError as error:
        raise Unavailable(
            "pyopencl cannot be imported", where="backend opencl", found=error, remedy="pip install dpfedge[opencl]"
        ) from error
    warnings.filterwarnings("ignore", category=pyopencl.CompilerWarning)  # errors come as errors
    return pyopencl


def spare_cache() -> None:
    """For graphs that come with their programs: let PoCL unpack them in memory. Its cache on disk waits for each file.

    Nothing where PoCL is loaded already, or where the environment places its cache.
    """
    folder = Path(f"/dev/shm/dpfedge-pocl-{os.getuid()}")
    if "POCL_CACHE_DIR" in os.environ:
        return
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return  # no such place: PoCL's own is slower and does as well
    if status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077:
        os.environ["POCL_CACHE_DIR"] = str(folder)


def status_name(code: int) -> str:
    """The name of an OpenCL error code: -5 is OUT_OF_RESOURCES."""
    return str(pyopencl().status_code.to_string(code, "%d"))


def _error(where: str, call: str, code: int, text: str = "") -> BackendError:
    name = status_name(code)
    kind = Unavailable if name in _LACKING else BackendError
    return kind(f"{call} failed{': ' + text if text else ''}", where=where, found=f"{name} ({code})")


def check(code: int, call: str, where: str) -> None:
    """BackendError with the code's name unless `code` is success."""
    if code:
        raise _error(where, call, code)


@contextmanager
def mapped_errors(where: str) -> Iterator[None]:
    """Turn every error of pyopencl into a BackendError that names the call and the code."""
    cl = pyopencl()
    try:
        yield
    except cl.Error as error:
        text = " ".join(str(error.what).split()) if error.routine is None else ""
        raise _error(where, error.routine or "OpenCL", int(error.code or 0), text[:2000]) from error


def hang_seconds() -> float:
    """How long one call into the driver may take before it counts as hung: `DPFEDGE_OPENCL_HANG_S`, else 30."""
    try:
        return max(0.01, float(os.environ.get("DPFEDGE_OPENCL_HANG_S", _HANG_S)))
    except ValueError:
        return _HANG_S


def hung_error(where: str, call: str, seconds: float) -> BackendError:
    """What a call that does not come back is reported as; the thread in it is lost."""
    return BackendError(
        "the OpenCL driver does not come back", where=where, found=f"{call} for {seconds:g} s",
        remedy="restart this process; DPFEDGE_OPENCL_HANG_S sets the bound",
    )  # fmt: skip


def driver(call: Callable[[], T], what: str, where: str, seconds: float | None = None) -> T:
    """`call()`, a call into the driver, within `seconds` (`hang_seconds` by default); its errors as BackendErrors."""

    def ask() -> T:
        with mapped_errors(where):
            return call()

    return bounded(ask, f"{where}: {what}", hang_seconds() if seconds is None else seconds)


_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_POINTER = ctypes.c_void_p


class Native:
    """Functions of the OpenCL library that pyopencl loaded, as plain C calls; they release the interpreter's lock."""

    def __init__(self, library: ctypes.CDLL) -> None:
        try:
            self.create_kernel = library.clCreateKernel
            self.set_arg = library.clSetKernelArg
            self.release_kernel = library.clReleaseKernel
            self.enqueue = library.clEnqueueNDRangeKernel
            self.flush = library.clFlush
            self.set_callback = library.clSetEventCallback
            self.release_event = library.clReleaseEvent
            self.address = library.clGetExtensionFunctionAddressForPlatform
        except AttributeError as error:
            raise Unavailable("the OpenCL library lacks a function", where="backend opencl", found=error) from error
        self.create_kernel.restype = _POINTER
        self.create_kernel.argtypes = (_POINTER, ctypes.c_char_p, _POINTER)
        self.address.restype = _POINTER
        self.address.argtypes = (_POINTER, ctypes.c_char_p)
        self.release_kernel.argtypes = self.flush.argtypes = self.release_event.argtypes = (_POINTER,)
        self.set_callback.argtypes = (_POINTER, ctypes.c_int, _CALLBACK, _POINTER)

    def extension(self, platform: int, name: str) -> int:
        """The address of a function that is not in every library; 0 where the platform lacks it."""
        return int(self.address(platform, name.encode()) or 0)

    def kernel(self, program: int, entry: str, where: str) -> int:
        """A new kernel object of a built program."""
        code = ctypes.c_int()
        made = self.create_kernel(program, entry.encode(), ctypes.byref(code))
        check(code.value, f"clCreateKernel({entry})", where)
        return int(made)


@cache
def native() -> Native:
    """The functions of the library that pyopencl was linked with."""
    return Native(ctypes.CDLL(pyopencl()._cl.__file__))


def callback(function: Callable[[int], None]) -> Any:
    """A C function for `set_callback` that calls `function` with the event's status, from a thread of the driver."""
    return _CALLBACK(lambda _event, status, _data: function(status))
