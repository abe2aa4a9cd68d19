# SPDX-License-Identifier: Apache-2.0
"""Vendors' libraries that may hang, within a bound: a call or a repeated question in, its answer or a named error out.

A native call cannot be ended from outside, only given up: its thread is left to itself and counts as stuck until it
comes back. There is one such thread for each `Watched` and one for each `bounded` call that has not come back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from dpfedge.errors import Unavailable

__all__ = ["Watched", "bounded"]

Answer = TypeVar("Answer")


def bounded(ask: Callable[[], Answer], where: str, seconds: float = 10.0) -> Answer:
    """`ask()` in a thread of its own, its errors here; Unavailable when it has not answered after `seconds`."""
    watched = Watched(ask, where, period_s=None, stale_s=seconds)
    try:
        return watched.latest()
    finally:
        watched.close()


class Watched(Generic[Answer]):
    """Asks every `period_s` seconds (None: once) in a thread of its own, begun at the first `latest`.

    What `ask` raises, `latest` raises to whoever asks then. A forked process asks through a thread of its own.
    """

    def __init__(self, ask: Callable[[], Answer], where: str, period_s: float | None = 1.0, stale_s: float = 5.0):
        self._ask, self._where, self._period, self._stale = ask, where, period_s, stale_s
        self._closed = threading.Event()
        self._begin()

    def _begin(self) -> None:
        """Nothing was asked yet in this process."""
        self._changed, self._owner = threading.Condition(), os.getpid()
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._at: float | None = None
        self._since = 0.0
        self._thread: threading.Thread | None = None

    def latest(self) -> Answer:
        """The last answer, without waiting once there was one; Unavailable when it is older than `stale_s`."""
        if self._owner != os.getpid():
            self._begin()
        with self._changed:
            if self._thread is None:
                self._since = time.monotonic()
                self._thread = threading.Thread(target=self._run, name=f"watch {self._where}", daemon=True)
                self._thread.start()
            self._changed.wait_for(lambda: self._at is not None, self._stale)
            last = self._since if self._at is None else self._at
            if self._at is None or (self._period is not None and time.monotonic() - last > self._stale + self._period):
                raise Unavailable(
                    "the library does not answer", where=self._where,
                    found=f"nothing for {time.monotonic() - last:.1f} s", allowed=f"{self._stale:g} s",
                    remedy="the driver hangs: look at `dmesg`, and reset the device or restart the machine",
                )  # fmt: skip
            if self._error is not None:
                raise self._error.with_traceback(None)
            return self._answer  # type: ignore[return-value]  # None only before the first answer

    def close(self) -> None:
        """Ask no more; does not wait for a question that hangs."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            answer, raised = None, _Raised()
            with raised:
                answer = self._ask()
            with self._changed:
                self._answer, self._error, self._at = answer, raised.error, time.monotonic()
                self._changed.notify_all()
            if self._period is None or self._closed.wait(self._period):
                return


class _Raised:
    """Keeps what is raised inside, of whatever kind, for the thread that asked."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True
