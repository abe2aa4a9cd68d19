# SPDX-License-Identifier: Apache-2.0
"""The warmed parent of all stage processes: spawn commands in, forked stages out.

It imports the heavy libraries once and binds the package once; a stage is then a fork away (tens of milliseconds), shares
those pages, and keeps the package that was opened even when the file is replaced. It creates no session and starts no
thread: neither survives a fork. It ends when its supervisor's end of the socket closes.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from dpfedge.binding import Bound, bind_here
from dpfedge.package import open_package
from dpfedge.pipeline.stage_process import run_stage
from dpfedge.pipeline.wire import receive_message, send_message

__all__ = ["environment", "main"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment a zygote needs: no telemetry, no library threads before the fork."""
    quiet = {"ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**environ, **quiet}


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m dpfedge.pipeline.zygote FD`."""
    fd = int((sys.argv[1:] if argv is None else argv)[0])
    control = socket.socket(fileno=fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the supervisor decides
    _warm()
    setup, fds = receive_message(control)
    if not setup:
        return 0
    package_fd, arena_fd = fds
    bound = bind_here(open_package(Path(f"/proc/self/fd/{package_fd}"), check="fast"), setup["board"])
    return _serve(control, bound, arena_fd)


def _warm() -> None:
    import numpy  # noqa: F401
    import onnxruntime  # noqa: F401


def _serve(control: socket.socket, bound: Bound, arena_fd: int) -> int:
    # children that end become no zombies and raise no signal: the supervisor watches them by pidfd
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        command, fds = receive_message(control)
        if not command:
            return 0
        pid = os.fork()
        if pid == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            run_stage(command, bound, arena_fd, socket.socket(fileno=fds[0]))
        os.close(fds[0])
        send_message(control, {"stage": command["stage"], "pid": pid})


if __name__ == "__main__":
    sys.exit(main())
