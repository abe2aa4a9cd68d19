# SPDX-License-Identifier: Apache-2.0
"""One thread's loop: descriptors, times and other threads' calls in, handlers called one after the other.

It knows no process and no stage.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["Loop", "readable"]

Action = Callable[[], None]


class Loop:
    """Sleeps until something it watches is readable, something is due, or somebody calls; `call` is for any thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe()
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._called)
        self._calls: deque[Action] = deque()
        self._due: list[tuple[float, Action]] = []
        self._closed, self._lock = False, threading.Lock()

    def watch(self, source: int | socket.socket, action: Action) -> None:
        """Call `action` whenever the source is readable, until `forget`."""
        self._selector.register(source, selectors.EVENT_READ, action)

    def forget(self, source: int | socket.socket) -> None:
        """Watch this no more; before it is closed. Nothing happens when it is not watched."""
        if source in self._selector.get_map():
            self._selector.unregister(source)

    def watches(self, source: int | socket.socket) -> bool:
        """Whether this is watched."""
        return source in self._selector.get_map()

    def after(self, pause_s: float, action: Action) -> None:
        """Call `action` once, so many seconds from now."""
        self._due.append((time.monotonic() + pause_s, action))

    def forget_due(self) -> None:
        """Nothing that was to be called later is."""
        self._due = []

    def call(self, action: Action) -> None:
        """Call `action` on the loop's thread, soon; from any thread. Nothing happens once the loop is closed."""
        with self._lock:
            if not self._closed:
                self._calls.append(action)
                os.write(self._wake_w, b"x")

    def round(self, timeout_s: float | None = None) -> None:
        """Wait for the next thing, at most `timeout_s`, and see to everything that is ready."""
        next_due = max(0.0, min(at for at, _ in self._due) - time.monotonic()) if self._due else None
        waits = [wait for wait in (next_due, timeout_s) if wait is not None]
        for key, _ in self._selector.select(min(waits, default=None)):
            # another handler of this same round may have forgotten it, or put another file in its place
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        now = time.monotonic()
        due = [action for at, action in self._due if at <= now]
        self._due = [(at, action) for at, action in self._due if at > now]
        for action in due:
            action()

    def _called(self) -> None:
        os.read(self._wake_r, 64)
        while self._calls:
            self._calls.popleft()()

    def close(self) -> None:
        """Watch nothing any more; on the loop's thread, or when it has none."""
        with self._lock:
            self._closed = True
            self._selector.close()
            os.close(self._wake_r)
            os.close(self._wake_w)


def readable(source: socket.socket) -> bool:
    """Whether a read returns at once."""
    with selectors.PollSelector() as selector:
        selector.register(source, selectors.EVENT_READ)
        return bool(selector.select(0))
