# SPDX-License-Identifier: Apache-2.0
"""Keeps one zygote for a supervisor: a started one in; spawn commands passed on, its answers and its deaths told.

One that dies is followed by another, which is told the same setup. It knows no stage; `zygote.py` is the other side.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dpfedge.pipeline.parent import Zygote
from dpfedge.pipeline.supervisor_loop import Loop
from dpfedge.pipeline.unit import BACK_OFF_S, Deaths
from dpfedge.pipeline.wire import receive_message, send_message

__all__ = ["Told", "ZygoteKeeper"]


class Told(Protocol):
    """Who is told, on the loop's thread."""

    def forked(self, unit: str, pid: int, pidfd: int, reason: str) -> None:
        """The process that was asked for; pid 0 and a reason when there could be none. The pidfd is the caller's."""

    def zygote_gone(self) -> bool:
        """It ended, and with it every stage; whether another one is wanted."""

    def zygote_new(self) -> None:
        """Another one took its place and takes commands."""


class ZygoteKeeper:
    """One zygote, and after its death the next; on the loop's thread only."""

    def __init__(self, zygote: Zygote, loop: Loop, told: Told) -> None:
        self._zygote: Zygote | None = zygote
        self.pid = zygote.process.pid
        """Of the one there is, or was last."""
        self.error: Mapping[str, Any] | None = None
        """What the last one said was wrong with its setup."""
        self._loop, self._told = loop, told
        self._deaths = Deaths()
        self._setup: Mapping[str, Any] = {}
        self._files: Sequence[int] = ()

    @property
    def alive(self) -> bool:
        """Whether there is one to ask."""
        return self._zygote is not None

    def introduce(self, setup: Mapping[str, Any], files: Sequence[int]) -> None:
        """Tell the zygote, and every one after it, what it is to serve; the files stay the caller's and open."""
        self._setup, self._files = setup, files
        self._introduce()

    def _introduce(self) -> None:
        assert self._zygote is not None
        self._loop.watch(self._zygote.control, self._hear)
        self._send(self._setup, self._files)

    def ask(self, command: Mapping[str, Any], channel: int) -> None:
        """Ask for a process; `forked` tells of it. The descriptor, its end of a channel, stays the caller's."""
        self._send(command, [channel])

    def _send(self, data: Mapping[str, Any], files: Sequence[int]) -> None:
        assert self._zygote is not None
        try:
            send_message(self._zygote.control, data, files)
        except OSError:
            return  # it is gone already; its socket says so in the next round

    def _hear(self) -> None:
        assert self._zygote is not None
        message, files = receive_message(self._zygote.control)
        if not message:
            self._gone(self._zygote)
        elif "unit" in message:
            self._told.forked(message["unit"], message["pid"], next(iter(files), -1), message.get("reason", ""))
        else:
            self.error = message["error"]

    def kill(self) -> None:
        """End it at once, and with it every stage; the loop hears of that as of any other death."""
        if self._zygote is not None:
            os.kill(self._zygote.process.pid, signal.SIGKILL)  # nobody has waited for it: the pid is still its own

    def _gone(self, zygote: Zygote) -> None:
        self._loop.forget(zygote.control)
        zygote.stop(0.0)
        self._zygote = None
        self._deaths.add()
        if self._told.zygote_gone():
            self._loop.after(self._deaths.pause_s()[0], self._renew)

    def _renew(self) -> None:
        try:
            self._zygote = Zygote()
        except OSError:  # no memory or process for it now
            self._loop.after(BACK_OFF_S[-1], self._renew)
            return
        self.pid = self._zygote.process.pid
        self._introduce()
        self._told.zygote_new()

    def close(self) -> None:
        """End it and, through it, every stage that is left."""
        if self._zygote is not None:
            self._loop.forget(self._zygote.control)
            self._zygote.stop()
            self._zygote = None
