# SPDX-License-Identifier: Apache-2.0
"""A start that the machine refuses: errors of the operating system in, a StageError that says what ran short out.

What was started is ended all the same. Nothing is checked beforehand: what is there now may be gone when it is needed.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dpfedge.errors import StageError

__all__ = ["beside", "names_shortage", "shortage"]

P = ParamSpec("P")
R = TypeVar("R")

_NO_THREAD = "can't start new thread"  # all that Python says of EAGAIN and ENOMEM there


def names_shortage(start: Callable[P, R]) -> Callable[P, R]:
    """A decorator: `start` raises StageError when descriptors, processes, threads or memory run short in it."""

    @functools.wraps(start)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return start(*args, **kwargs)
        except OSError as error:
            if (told := shortage(error.errno)) is None:
                raise
            raise told from error
        except RuntimeError as error:
            if str(error) != _NO_THREAD:
                raise
            raise _processes(_NO_THREAD) from error

    return named


async def beside(end: Callable[[], None]) -> None:
    """Run `end` in another thread while the loop goes on, or in this one where no thread can be started."""
    import asyncio  # callers of `names_shortage` have not imported it yet

    try:
        await asyncio.to_thread(end)
    except RuntimeError as error:
        if str(error) != _NO_THREAD:
            raise
        end()


def shortage(number: int | None) -> StageError | None:
    """The error for an errno; None when it says of no shortage."""
    text = "" if number is None else os.strerror(number)
    if number == errno.EMFILE:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _error(text, f"a limit of {soft} open files", "raise it (ulimit -n)")
    if number == errno.ENFILE:
        return _error(text, "the machine's limit on open files", "raise fs.file-max")
    if number == errno.EAGAIN:
        return _processes(text)
    if number == errno.ENOMEM:
        return _error(text, None, "free memory, or raise the limit on address space (ulimit -v) or of the cgroup")
    return None


def _processes(text: str) -> StageError:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = "no limit" if soft == resource.RLIM_INFINITY else f"a limit of {soft}"
    return _error(text, f"{limit} on processes and threads", "raise it (ulimit -u), or pids.max of the cgroup")


def _error(text: str, found: str | None, remedy: str) -> StageError:
    return StageError(f"the pipeline cannot be started: {text}", where="start", found=found, remedy=remedy)
