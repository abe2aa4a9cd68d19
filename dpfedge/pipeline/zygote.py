# SPDX-License-Identifier: Apache-2.0
"""The warmed parent of all stage processes: spawn commands in, forked stages out.

It imports the heavy libraries once and opens the package, if there is one, once; a stage is then a fork away (tens of
milliseconds), shares those pages, and keeps the package that was opened even when the file is replaced. It creates no
session and starts no thread: neither survives a fork. It ends when its supervisor closes the socket between them, or
ends itself.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.binding.bound import Chosen
from dpfedge.errors import DpfError, PackageError
from dpfedge.package import open_package
from dpfedge.pipeline.stage_process import Served, run_unit
from dpfedge.pipeline.wire import receive_message, send_message
from dpfedge.plugin.manager import load_plugins
from dpfedge.stage.failure import describe

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m dpfedge.pipeline.zygote FD PARENT`."""
    fd, parent = (int(text) for text in (sys.argv[1:] if argv is None else argv))
    control = socket.socket(fileno=fd)
    Path("/proc/self/comm").write_text("dpf-zygote")  # one that was forked has its parent's command line
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # blocked by whoever started this
    _warm()
    try:
        parent_fd = os.pidfd_open(parent)
    except ProcessLookupError:
        return 0
    if os.getppid() != parent:
        return 0
    try:
        return _serve(control, parent_fd)
    except BrokenPipeError:
        return 0  # the supervisor is gone; nobody is left to be told


def _warm() -> None:
    """What every stage needs of libraries, imported once for all of them.

    None of it is garbage: a collection here would only cost time, and one in a stage would write to every shared page.
    Stages collect again once they are ready.
    """
    gc.disable()
    import numpy  # noqa: F401
    import onnxruntime  # noqa: F401

    import dpfedge.config.schema  # noqa: F401

    gc.freeze()


def _serve(control: socket.socket, parent_fd: int) -> int:
    setup, fds = _next(control, parent_fd)
    if not setup:
        return 0
    arena_fd, *files = fds
    try:
        served = _served(setup, files)
    except DpfError as error:
        send_message(control, {"error": describe(error, "zygote")})
        return error.exit_code
    # children that end become no zombies and raise no signal: the supervisor watches them by pidfd
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        command, fds = _next(control, parent_fd)
        if not command:
            return 0
        if not fds:  # no descriptor was left to take it
            send_message(control, {"unit": command["unit"], "pid": 0, "reason": os.strerror(errno.EMFILE)})
            continue
        _fork(control, command, served, arena_fd, fds[0])
        os.close(fds[0])


def _served(setup: Mapping[str, Any], files: Sequence[int]) -> Served:
    folder = None if setup["folder"] is None else Path(setup["folder"])
    return Served(_open(setup, *files) if files else None, folder)


def _open(setup: Mapping[str, Any], package_fd: int, seal_fd: int | None = None) -> Chosen:
    """The files that were opened, not those of their names by now: a package may be sealed while it is served."""
    package = open_package(_file(package_fd), check="fast")
    if package.manifest_sha256.hex() != setup["manifest"]:
        raise PackageError("the file was replaced while it was opened", where=setup["path"], remedy="start again")
    return Chosen.again(package, setup["chosen"], load_plugins(), None if seal_fd is None else _file(seal_fd))


def _file(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}")


def _next(control: socket.socket, parent_fd: int) -> tuple[dict[str, Any], list[int]]:
    """The next message; an empty map when the supervisor closed the socket or its process ended."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    # a forked child of the supervisor may hold the socket's other end open long after the supervisor's death
    poll.register(parent_fd, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    return ({}, []) if parent_fd in ready else receive_message(control)


def _fork(control: socket.socket, command: Mapping[str, Any], served: Served, arena_fd: int, channel_fd: int) -> None:
    parent, unit = os.getpid(), command["unit"]
    try:
        pid = os.fork()
    except OSError as error:
        send_message(control, {"unit": unit, "pid": 0, "reason": error.strerror})
        return
    if pid == 0:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run_unit(command, served, arena_fd, socket.socket(fileno=channel_fd), parent)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        send_message(control, {"unit": unit, "pid": 0, "reason": "it ended at once"})
        return
    except OSError as error:  # nobody could watch it
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # it ends before it is said to be gone: its leases are taken next
            os.waitpid(pid, 0)
        send_message(control, {"unit": unit, "pid": 0, "reason": error.strerror})
        return
    send_message(control, {"unit": unit, "pid": pid}, [pidfd])
    os.close(pidfd)


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the libraries' own ends take longer than the stages may outlive their supervisor
