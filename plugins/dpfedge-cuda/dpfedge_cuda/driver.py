# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver in this process: calls in, results or BackendErrors within a bound, out.

A call that does not come back keeps its thread for good (nothing can end it but the end of the process); from then on
each further call is refused at once and names the one that hangs, so there is one such thread. The driver is first
asked in a child process: one that crashes or hangs while it starts costs only that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dpfedge.backend.bounded import bounded
from dpfedge.errors import BackendError, Unavailable
from dpfedge_cuda.libcuda import CudaError, Libcuda
from dpfedge_cuda.telling import ask_cuda

__all__ = ["Context", "Driver"]

_WHERE = "backend cuda"
_START_S = 30.0
_CALL_S = 10.0
# cuda.h: CUresult
_OUT_OF_MEMORY, _OLD, _NO_DEVICE, _LOST = 2, 35, 100, 700
_KNOWN: dict[int, tuple[type[BackendError], str]] = {
    _OUT_OF_MEMORY: (BackendError, "free device memory, or place fewer stages on this device"),
    _OLD: (Unavailable, "upgrade the NVIDIA driver"),
    _NO_DEVICE: (Unavailable, "CUDA_VISIBLE_DEVICES may hide it; `dpfedge doctor --backend cuda` looks"),
}
_RESTART = "an earlier error of the device ended its context: restart the process"
Result = TypeVar("Result")


class Driver:
    """libcuda, loaded and initialised at the first call; for any thread."""

    def __init__(self, start_s: float = _START_S, call_s: float = _CALL_S) -> None:
        self.start_s, self.call_s = start_s, call_s
        self._stuck: tuple[str, float] | None = None
        self._lock = threading.Lock()
        self._cuda: Libcuda | None = None
        self._told: list[dict[str, Any]] | None = None
        self._owner = 0

    def devices(self) -> Sequence[dict[str, Any]]:
        """What CUDA sees in this process (`libcuda.Libcuda.devices`), asked once in a child process."""
        if self._told is None:
            self._told = ask_cuda(self.start_s)["devices"]
        return self._told

    def started(self) -> bool:
        """Whether CUDA is initialised here, after which its list of devices stays what it is."""
        return self._cuda is not None

    def forget(self) -> None:
        """Ask anew which devices there are: CUDA_VISIBLE_DEVICES has changed."""
        self._told = None

    def check_process(self) -> None:
        """Unavailable where CUDA was begun before a fork: nothing of it works in the forked process."""
        if self._cuda is not None and self._owner != os.getpid():
            what, remedy = "CUDA was begun before this process was forked", "load graphs in the process that runs them"
            raise Unavailable(what, where=_WHERE, remedy=remedy)

    def do(self, what: str, act: Callable[[Libcuda], Result], within_s: float | None = None) -> Result:
        """`act(libcuda)` in a thread of its own; `what` names it in errors."""
        self.devices()
        self.check_process()
        if self._stuck is not None:
            since = time.monotonic() - self._stuck[1]
            what, remedy = f"{self._stuck[0]} hangs in the CUDA driver since {since:.0f} s", "restart the process"
            raise Unavailable(what, where=_WHERE, remedy=remedy)
        begun, ended = time.monotonic(), threading.Event()

        def inside() -> Result:
            try:
                return _mapped(lambda: act(self._started()))
            finally:
                ended.set()

        try:
            return bounded(inside, f"{_WHERE}: {what}", within_s or self.call_s)
        except Unavailable:
            if not ended.is_set():
                self._stuck = what, begun
            raise

    def _started(self) -> Libcuda:
        with self._lock:
            if self._cuda is None:
                cuda = Libcuda()
                cuda.call("cuInit", 0)
                self._cuda, self._owner = cuda, os.getpid()
            return self._cuda


def _mapped(act: Callable[[], Result]) -> Result:
    try:
        return act()
    except CudaError as error:
        kind, remedy = _KNOWN.get(error.code, (BackendError, _RESTART if error.code >= _LOST else None))
        raise kind("the CUDA driver refuses", where=_WHERE, found=str(error), remedy=remedy) from error
    except OSError as error:
        raise Unavailable("libcuda.so.1 cannot be loaded", where=_WHERE, found=str(error)) from error


class Context:
    """One device in this process: its primary context, one stream for each level of urgency."""

    def __init__(self, driver: Driver, ordinal: int, facts: dict[str, Any]) -> None:
        self.driver, self.ordinal, self.facts = driver, ordinal, facts
        self._context = driver.do("cuDevicePrimaryCtxRetain", self._retain, driver.start_s)
        self._streams: dict[bool, int] = {}
        self._lock = threading.Lock()

    def _retain(self, cuda: Libcuda) -> int:
        return cuda.retain(cuda.number("cuDeviceGet", self.ordinal))

    def do(self, what: str, act: Callable[[Libcuda], Result]) -> Result:
        """`act` with this device's context current."""

        def inside(cuda: Libcuda) -> Result:
            cuda.call("cuCtxSetCurrent", self._context)
            return act(cuda)

        return self.driver.do(what, inside)

    def stream(self, *, high: bool) -> int:
        """The stream of urgent work, or of the rest; made once, shared by the executables of a level."""
        self.driver.check_process()
        with self._lock:
            if high not in self._streams:
                self._streams[high] = self.do("cuStreamCreateWithPriority", lambda cuda: _stream(cuda, high))
            return self._streams[high]

    def free_share(self) -> float:
        """Free over total memory of the device, as every process together leaves it."""
        free, total = self.do("cuMemGetInfo", lambda cuda: cuda.memory())
        return free / total if total else 0.0


def _stream(cuda: Libcuda, high: bool) -> int:
    first, last = cuda.priorities()
    return cuda.stream(first if high else last)
