# SPDX-License-Identifier: Apache-2.0
"""This process' side of a zygote, the warmed parent of all stages: started here, spoken to through `control`.

It imports nothing heavy, so that the parent can be started before anything else.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping

__all__ = ["Zygote", "environment"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment a zygote needs: no telemetry, no library threads before the fork."""
    quiet = {"ORT_DISABLE_TELEMETRY": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return {**environ, **quiet}


class Zygote:
    """The supervisor's side of a zygote, started before anything else: its imports overlap the rest of the start."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # -P: the folder the caller happens to stand in holds none of our modules
        command = [sys.executable, "-P", "-m", "dpfedge.pipeline.zygote", str(theirs.fileno()), str(os.getpid())]
        # Ctrl-C reaches the whole group; it waits until the zygote says that it wants none
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment(os.environ), stdin=subprocess.DEVNULL
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.control = ours

    def stop(self, grace_s: float = 2.0) -> None:
        """End it and, through it, every stage that is left."""
        self.control.close()
        try:
            self.process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
