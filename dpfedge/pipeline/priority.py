# SPDX-License-Identifier: Apache-2.0
"""The priority of a stage's own thread: niceness and SCHED_FIFO in, a line for each that the machine refuses out.

A real-time thread must not be able to take a machine with one core away from everybody else. So the priority is taken
after load and warm-up, and for the stage's own thread alone, beside those that end its runs and watch its steps, which
sleep: threads and processes made by it start without (SCHED_RESET_ON_FORK). The kernel's own limit for all real-time
threads (sched_rt_runtime_us, 95 % of each second) stays as it is; where somebody switched that off, RLIMIT_RTTIME still
holds: a thread that computes for COMPUTE_MAX_S without once waiting goes back to an ordinary priority, and one that is
so deep in a library that it cannot is killed by the kernel at KILL_S, to be restarted as after any other death.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable
from types import FrameType

__all__ = ["COMPUTE_MAX_S", "FIFO_MOST", "KILL_S", "be_fifo", "be_fifo_before", "be_nice", "give_up_fifo"]

FIFO_MOST = 99
COMPUTE_MAX_S: float = 1.0
"""Processor time in one go at a real-time priority; a stage that deserves one waits for input many times a second."""
KILL_S: float = 3.0


def be_nice(nice: int) -> str | None:
    """Make the calling thread, and those it makes, this much nicer; a line when that is refused."""
    try:
        os.nice(nice)
    except PermissionError:
        return f"nice {nice} needs CAP_SYS_NICE or RLIMIT_NICE; it stays at {os.nice(0)}"
    return None


def be_fifo(priority: int, thread: int = 0) -> str | None:
    """Give the calling thread, or `thread`, and no other, the real-time priority 1..99; a line when that is refused."""
    _limit_computing()
    try:
        os.sched_setscheduler(thread, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except PermissionError:
        return f"fifo {priority} needs CAP_SYS_NICE or RLIMIT_RTPRIO; it runs at an ordinary priority"
    return None


def be_fifo_before(priority: int, thread: int) -> str | None:
    """Let `thread`, which sleeps and watches, go before a stage of that priority, or it would never run on its core.

    0: there is none.
    """
    return be_fifo(min(priority + 1, FIFO_MOST), thread) if thread else None


def _limit_computing() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    soft, kill = round(COMPUTE_MAX_S * 1e6), round(KILL_S * 1e6)
    if hard != resource.RLIM_INFINITY:
        soft, kill = min(soft, hard), min(kill, hard)
    resource.setrlimit(resource.RLIMIT_RTTIME, (soft, kill))


def give_up_fifo(told: Callable[[int], None]) -> None:
    """From now on real-time threads of this process go back to an ordinary priority when one computes too long.

    `told` is called with the thread id of each, in the main thread; call this there.
    """

    def handle(_signal: int, _frame: FrameType | None) -> None:
        for task in map(int, os.listdir("/proc/self/task")):
            with contextlib.suppress(ProcessLookupError):  # a thread of a library that just ended
                if os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO:
                    # without the flag, too, this would need a privilege
                    os.sched_setscheduler(task, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
                    told(task)

    signal.signal(signal.SIGXCPU, handle)
