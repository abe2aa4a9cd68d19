# SPDX-License-Identifier: Apache-2.0
"""What every call into the vendor's OpenCL library shares: errors by name, and a bound on how long it may take.

It makes no call itself; `native.py` does.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dpfedge.backend.bounded import bounded
from dpfedge.errors import BackendError, Unavailable

__all__ = ["build_seconds", "check", "driver", "hang_seconds", "hung_error", "spare_cache", "status_name"]

T = TypeVar("T")
_HANG_S = 30.0
_LACKING = frozenset({"PLATFORM_NOT_FOUND_KHR", "DEVICE_NOT_FOUND", "DEVICE_NOT_AVAILABLE", "COMPILER_NOT_AVAILABLE"})


def status_name(code: int) -> str:
    """The name of an OpenCL error code: -5 is OUT_OF_RESOURCES."""
    import pyopencl  # only where there is an error: it takes a tenth of a second

    names: Any = pyopencl.status_code
    return str(names.to_string(code, "%d"))


def check(code: int, call: str, where: str, text: str = "") -> None:
    """BackendError with the code's name unless `code` is success; Unavailable where the device or its driver lacks."""
    if code:
        name = status_name(code)
        kind = Unavailable if name in _LACKING else BackendError
        raise kind(f"{call} failed{': ' + text if text else ''}", where=where, found=f"{name} ({code})")


def hang_seconds() -> float:
    """How long one call into the driver may take before it counts as hung: `DPFEDGE_OPENCL_HANG_S`, else 30."""
    try:
        return max(0.01, float(os.environ.get("DPFEDGE_OPENCL_HANG_S", _HANG_S)))
    except ValueError:
        return _HANG_S


def build_seconds() -> float:
    """How long compiling a program may take: twenty times an ordinary call."""
    return 20 * hang_seconds()


def hung_error(where: str, call: str, seconds: float) -> Unavailable:
    """What a call that does not come back is reported as; what it was called with is lost."""
    return Unavailable(
        "the OpenCL driver does not come back", where=where, found=f"{call} for {seconds:g} s",
        remedy="restart this process; DPFEDGE_OPENCL_HANG_S sets the bound",
    )  # fmt: skip


def driver(call: Callable[[], T], what: str, where: str, seconds: float | None = None) -> T:
    """`call()`, a call into the driver that releases the interpreter, within `seconds` (`hang_seconds` by default)."""
    return bounded(call, f"{where}: {what}", hang_seconds() if seconds is None else seconds)


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
