# SPDX-License-Identifier: Apache-2.0
"""The first steps of a start: a package and a board in, a bound package and a warming parent of its stages out.

Everything heavy is imported by that parent, beside what the caller does next; this module imports none of it, so that a
package that does not fit is refused at once.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpfedge.binding import Bound, bind_here
from dpfedge.package import open_package

__all__ = ["Prepared", "Zygote", "environment", "prepare"]


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
        try:
            self.process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=environment(os.environ), stdin=subprocess.DEVNULL
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self.control = ours

    def stop(self, grace_s: float = 2.0) -> None:
        """End it and, through it, every stage that is left."""
        self.control.close()
        try:
            self.process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A bound package and the process that will fork its stages."""

    zygote: Zygote
    bound: Bound

    def close(self) -> None:
        """Give both back, when nothing is started with them."""
        self.zygote.stop(0.0)
        self.bound.package.close()


def prepare(package: str | Path, *, board: str = "auto", check: Literal["fast", "full"] = "fast") -> Prepared:
    """Start the parent of the stages and bind `package`; BindError, BoardError or PackageError as found."""
    zygote = Zygote()
    try:
        return Prepared(zygote, bind_here(open_package(Path(package), check=check), board))
    except BaseException:
        zygote.stop(0.0)
        raise
