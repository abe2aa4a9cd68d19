# SPDX-License-Identifier: Apache-2.0
"""An in-order queue of one binding: kernels go in by windows, and every wait for them ends within a bound.

A window is about a millisecond of kernels: so many that the device stays busy while the host looks whether the run was
cancelled, and never more than two of them are in the queue. It knows no graph and no memory.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from dpfedge.errors import BackendError, RunCancelled, Unavailable
from dpfedge_opencl.kernels import Kind
from dpfedge_opencl.library import build_seconds, check, driver, hang_seconds, hung_error, status_name
from dpfedge_opencl.native import Native, callback
from dpfedge_opencl.runtime import Runtime

__all__ = ["Batch", "Call", "Stream"]

_WINDOW_S = 1e-3
_USUAL, _MOST = 4, 64  # kernels of a window: before any was timed, and at most
_GLANCES = 100
_LONG = 4  # a window that took longer so often in a row is not looked at any more
_STATUS = (ctypes.c_uint(0x11D3), ctypes.c_size_t(4))  # CL_EVENT_COMMAND_EXECUTION_STATUS
_MEASURED = 4  # runs, behind the one that compiles
Call = tuple[Any, ...]
"""Arguments of clEnqueueNDRangeKernel."""
_lost: list[object] = []  # the driver may still call back into what it hung on


class Window:
    """Calls that are enqueued without looking up; the last one tells when it is done."""

    __slots__ = ("_asked", "_status", "calls", "event", "long", "nodes")

    def __init__(self, calls: Sequence[Call], nodes: Sequence[str]) -> None:
        self.event = ctypes.c_void_p()
        self.calls = (*calls[:-1], (*calls[-1][:-1], ctypes.byref(self.event)))
        self.nodes = nodes
        self._status = ctypes.c_int()
        self._asked = (*_STATUS, ctypes.byref(self._status), None)
        self.long = 0
        """How many of its last runs took longer than a few glances."""

    def glance(self, native: Native) -> int | None:
        """Its status if it is done within a few glances: the driver tells by a thread of its own, 20 µs later."""
        info, status, event = native.clGetEventInfo, self._status, self.event
        for _ in range(_GLANCES):
            if info(event, *self._asked):
                return None
            if status.value <= 0:
                self.long = 0
                return status.value
            os.sched_yield()
        self.long += 1
        return None


class Batch:
    """Calls that follow one another."""

    def __init__(
        self, calls: Sequence[Call], nodes: Sequence[str], launched: set[Kind] | None = None,
        kinds: frozenset[Kind] = frozenset(),
    ) -> None:  # fmt: skip
        self._calls, self._nodes = tuple(calls), tuple(nodes)
        self._size = 0
        self._timed, self._least, self._wanted = 0, math.inf, 0
        self._launched = set() if launched is None else launched
        self._kinds = frozenset(kind for kind in kinds if kind[1] is not None)
        self.ran = bool(kinds) and self._kinds == kinds and self._launched >= kinds
        """Whether its kernels were run before: drivers compile some more when one is first launched."""
        self._windows: tuple[Window, ...] = ()

    def __len__(self) -> int:
        return len(self._calls)

    def done(self) -> None:
        """It was run."""
        if not self.ran:
            self.ran = True
            self._launched |= self._kinds

    def took(self, seconds: float) -> None:
        """How long a run was that compiled nothing."""
        self._timed += 1
        self._least = min(self._least, seconds)
        self._wanted = min(_MOST, -(-len(self._calls) // max(1, round(self._least / _WINDOW_S))))

    @property
    def timed(self) -> bool:
        """Whether enough of its runs were."""
        return self._timed >= _MEASURED

    def size(self, usual: int) -> int:
        """Calls of a window, such that each takes about a millisecond; `usual` where nothing was timed."""
        return self._wanted or usual

    def windows(self, size: int) -> tuple[Window, ...]:
        """The calls in windows of `size`."""
        if size != self._size:
            starts = range(0, len(self._calls), size)
            made = (Window(self._calls[at : at + size], self._nodes[at : at + size]) for at in starts)
            self._size, self._windows = size, tuple(made)
            if len(self._windows) > 1:
                for window in self._windows:
                    window.long = _LONG
        return self._windows


class _Signal:
    """Set by the driver when an event is done."""

    __slots__ = ("function", "lock", "status")

    def __init__(self) -> None:
        self.lock, self.status = threading.Lock(), 0
        self.lock.acquire()
        self.function = callback(self._done)

    def _done(self, status: int) -> None:
        self.status = status
        self.lock.release()


class Stream:
    """A queue and the waits for what is in it; used by one thread at a time."""

    def __init__(self, runtime: Runtime, where: str, urgency: int = 3) -> None:
        self._runtime, self._native, self._where = runtime, runtime.native, where
        self._queue = runtime.queue(urgency)
        self.handle = ctypes.c_void_p(self._queue.value)
        self._signal = _Signal()
        self._seconds = self._patience = hang_seconds()
        self._usual = _USUAL
        self._ran = False
        self.cancelled = False
        self._broken: BackendError | None = None

    def run(self, batch: Batch) -> None:
        """Enqueue every window and wait; RunCancelled once `cancelled` is seen, with nothing left in the queue."""
        if self._broken is not None:
            raise self._broken
        self._runtime.check_process()
        started = time.perf_counter()
        self._ran = batch.ran
        self._patience = self._seconds if batch.ran else build_seconds()
        try:
            self._launch(batch)
        except BackendError:
            self._recover()
            raise
        self.check_cancelled()
        batch.done()
        if self._ran and not batch.timed:
            batch.took(time.perf_counter() - started)
            self._usual = batch.size(self._usual)

    def _launch(self, batch: Batch) -> None:
        """The windows, for the first time in a thread of their own: drivers do most then, and enqueueing may hang."""
        work = batch.windows(batch.size(self._usual))
        if batch.ran:
            self._run(work)
            return
        try:
            driver(lambda: self._run(work), "the first launch of kernels", self._where, 2 * build_seconds())
        except Unavailable as error:
            _lost.append((self, batch))
            self._broken = error
            raise

    def _run(self, work: Sequence[Window]) -> None:
        waiting: Window | None = None
        for window in work:
            if self.cancelled:
                break
            try:
                self._enqueue(window)
            finally:
                if waiting is not None:
                    self._await(waiting)
                    waiting = None
            waiting = window
        if waiting is not None:
            self._await(waiting)

    def _recover(self) -> None:
        """After an error: wait for what is in the queue, which may still signal what nobody waits for."""
        _lost.append(self._signal)
        self._signal = _Signal()
        if self._broken is None:
            try:
                driver(lambda: self._native.clFinish(self._queue.value), "clFinish", self._where)
            except BackendError as error:
                self._broken = error

    def check_cancelled(self) -> None:
        """RunCancelled when the run was cancelled."""
        if self.cancelled:
            raise RunCancelled("the run was cancelled", where=self._where)

    def _enqueue(self, window: Window) -> None:
        enqueue = self._native.clEnqueueNDRangeKernel
        for index, call in enumerate(window.calls):
            if code := enqueue(*call):
                check(code, f"clEnqueueNDRangeKernel of {window.nodes[index]}", self._where)
        if code := self._native.clFlush(self.handle):
            check(code, "clFlush", self._where)

    def _await(self, window: Window) -> None:
        found = window.glance(self._native) if self._ran and window.long < _LONG else None
        if found is None:
            found = self._told(window)
        self._native.clReleaseEvent(window.event)
        if found < 0:
            raise BackendError(
                f"a kernel failed on the device, in {window.nodes[0]} … {window.nodes[-1]}", where=self._where,
                found=f"{status_name(found)} ({found})",
            )  # fmt: skip

    def _told(self, window: Window) -> int:
        """The status that the driver tells when the window is done."""
        signal = self._signal
        if code := self._native.clSetEventCallback(window.event, 0, signal.function, None):
            check(code, "clSetEventCallback", self._where)
        if not signal.lock.acquire(timeout=self._patience):
            _lost.append((self, window))
            self._broken = hung_error(
                self._where, f"a kernel of {window.nodes[0]} … {window.nodes[-1]}", self._patience
            )
            raise self._broken
        return signal.status
