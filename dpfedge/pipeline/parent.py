# SPDX-License-Identifier: Apache-2.0
"""This process' side of a zygote, the warmed parent of all stages: started here, spoken to through `control`.

It imports nothing heavy, so that the parent can be started before anything else. A process of dpfedge's own forks it:
what both sides import is then imported once. An application's process starts it anew, because a fork would take the
application's files, locks and memory along.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol

__all__ = ["Child", "Zygote", "environment"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment a zygote needs: no telemetry, no library threads before the fork."""
    quiet = {"ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**environ, **quiet}


class Child(Protocol):
    """What a supervisor needs of a process it started: as `subprocess.Popen` has it."""

    pid: int
    returncode: int | None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it ended; TimeoutExpired after `timeout` seconds."""

    def kill(self) -> None:
        """End it at once."""


class Zygote:
    """The supervisor's side of a zygote, started before anything else: its imports overlap the rest of the start.

    `own`: this process is a command of dpfedge, and no application lives in it: the zygote is forked off it, unless it
    has threads, which a fork would lose.
    """

    process: Child

    def __init__(self, *, own: bool = False) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs, _no_interrupt():
                self.process = _fork(theirs) if own and _threads() == 1 else _start(theirs)
        except OSError:
            ours.close()
            raise
        self.control = ours

    def stop(self, grace_s: float = 2.0) -> None:
        """End it and, through it, every stage that is left."""
        self.control.close()
        try:
            self.process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Ctrl-C reaches the whole group; it waits until the zygote says that it wants none."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(theirs: socket.socket) -> Child:
    # -P: the folder the caller happens to stand in holds none of our modules
    command = [sys.executable, "-P", "-m", "dpfedge.pipeline.zygote", str(theirs.fileno()), str(os.getpid())]
    child: Child = subprocess.Popen(
        command, pass_fds=[theirs.fileno()], env=environment(os.environ), stdin=subprocess.DEVNULL
    )
    return child


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _fork(theirs: socket.socket) -> Child:
    # imported before the fork: both sides need them
    import dpfedge.binding.bound
    import dpfedge.plugin.manager  # noqa: F401

    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_zygote(theirs, parent)
    return _Forked(pid)


def _be_zygote(theirs: socket.socket, parent: int) -> NoReturn:
    """The forked side: what a started zygote has, and nothing else of its parent's; never returns."""
    code = 1
    try:
        os.environ.update(environment({}))
        control = _only(theirs)
        from dpfedge.pipeline import zygote
        from dpfedge.pipeline.stage_process import stay_a_child

        stay_a_child(parent)  # of its only thread: a parent that is stopped would outlive it, and its stages would
        code = zygote.main([str(control), str(parent)])
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(code)  # whatever happened: what the parent wanted to do at its end is not done twice


def _only(theirs: socket.socket) -> int:
    """Close every descriptor but the standard ones and `theirs`, and read nothing from the terminal; its number."""
    fd = theirs.detach()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (0, 1, 2, fd):
            with suppress(OSError):  # the descriptor of the listing is among them
                os.close(int(name))
    return fd


class _Forked:
    """A forked child, as far as `Child` goes."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for the signal that ended it."""
        if self.returncode is None:
            self._await_end(timeout)
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def _await_end(self, timeout: float | None) -> None:
        fd = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1e3):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        finally:
            os.close(fd)

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
