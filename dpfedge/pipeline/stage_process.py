# SPDX-License-Identifier: Apache-2.0
"""The life of one stage process after the fork: load, warm, say ready, serve, exit; it never returns to its parent."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

from dpfedge.backend.api import Budget
from dpfedge.binding import Chosen
from dpfedge.errors import DpfError
from dpfedge.link import Arena
from dpfedge.pipeline.early import load_early
from dpfedge.pipeline.graph import StageNode
from dpfedge.pipeline.runner import StageRunner
from dpfedge.pipeline.wire import send_message
from dpfedge.stage.api import Stage
from dpfedge.stage.failure import describe

__all__ = ["run_stage"]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def run_stage(
    command: Mapping[str, Any], node: StageNode, chosen: Chosen, arena_fd: int, channel: socket.socket, parent: int
) -> NoReturn:
    """Be the stage `node` where `command` says, until SIGTERM or the death of process `parent`; ends the process."""
    name = command["stage"]
    _become(name, command, parent)
    started = time.monotonic_ns()
    code = 1
    try:
        with _apart(command["load_cores"]):
            stage = _build(node, command, chosen)
            loaded = time.monotonic_ns()
            stage.warm()
        warmed = time.monotonic_ns()
        runner = StageRunner(
            stage, name, node.wiring, Arena.attach(arena_fd), command["owner"],
            spin_ns=command["spin_ns"], budget_ns=node.budget_ns,
        )  # fmt: skip
        _on_term(runner.stop)
        gc.freeze()  # what start-up made lives for ever; collections during a turn stay short
        times = {"load_ms": (loaded - started) / 1e6, "warm_ms": (warmed - loaded) / 1e6}
        send_message(channel, {"ready": name, "facts": dict(stage.facts()), **times})
        runner.run()
        code = 0
    except DpfError as error:
        print(f"dpfedge: stage {name}: {error}", file=sys.stderr, flush=True)
        _last_words(channel, {"error": describe(error, name)})
    except BrokenPipeError:
        code = 0  # the supervisor is gone; nobody is left to be told
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def _last_words(channel: socket.socket, data: Mapping[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        send_message(channel, data)


def _become(name: str, command: Mapping[str, Any], parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, f"dpf-{name}"[:15].encode(), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the request above took effect
    cores = set(command["cores"]) & os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    if command["nice"]:
        _be_nice(name, command["nice"])


def _be_nice(name: str, nice: int) -> None:
    try:
        os.nice(nice)
    except PermissionError:
        print(f"dpfedge: stage {name}: nice {nice} needs CAP_SYS_NICE; it stays at 0", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _apart(cores: Sequence[int]) -> Iterator[None]:
    """Stay on these cores inside; then every thread made meanwhile may go where this one could before."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    yield
    for task in os.listdir("/proc/self/task") if cores else ():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), before)


def _build(node: StageNode, command: Mapping[str, Any], chosen: Chosen) -> Stage:
    budget = Budget(threads=command["threads"], cores=tuple(command["cores"]))
    model = load_early(chosen.model(node.model), budget) if node.model else None
    # each process imports its own stage only: the others' libraries would cost every process memory
    return node.kind.load()(model, node.config, budget)


def _on_term(stop: Callable[[], None]) -> None:
    def handle(_signal: int, _frame: FrameType | None) -> None:
        stop()

    signal.signal(signal.SIGTERM, handle)
    assert threading.current_thread() is threading.main_thread()
