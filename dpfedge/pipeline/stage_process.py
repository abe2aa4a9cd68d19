# SPDX-License-Identifier: Apache-2.0
"""The life of one stage process after the fork: load, warm, say ready, serve, exit; it never returns to its parent's code."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, NoReturn

from dpfedge.backend.api import Budget
from dpfedge.binding import Bound, BoundModel
from dpfedge.errors import DpfError
from dpfedge.link import Arena
from dpfedge.pipeline.runner import StageRunner, describe
from dpfedge.pipeline.wire import send_message
from dpfedge.stage.api import Stage

__all__ = ["run_stage"]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def run_stage(command: Mapping[str, Any], bound: Bound, arena_fd: int, channel: socket.socket) -> NoReturn:
    """Be the stage that `command` names, until SIGTERM or the parent's death; ends the process."""
    name = command["stage"]
    _become(name, command)
    started = time.monotonic_ns()
    code = 1
    try:
        stage = _build(name, command, bound)
        loaded = time.monotonic_ns()
        stage.warm()
        warmed = time.monotonic_ns()
        runner = StageRunner(stage, Arena.attach(arena_fd), command["owner"], spin_ns=command["spin_ns"])
        _on_term(runner.stop)
        gc.freeze()  # what start-up made lives for ever; collections during a turn stay short
        times = {"load_ms": (loaded - started) / 1e6, "warm_ms": (warmed - loaded) / 1e6}
        send_message(channel, {"ready": name, "facts": dict(stage.facts()), **times})
        runner.run()
        code = 0
    except DpfError as error:
        send_message(channel, {"error": describe(error, name)})
        print(f"dpfedge: stage {name}: {error}", file=sys.stderr, flush=True)
    except BrokenPipeError:
        code = 0  # the supervisor is gone; nobody is left to be told
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def _become(name: str, command: Mapping[str, Any]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, f"dpf-{name}"[:15].encode(), 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)  # the parent died before the request above took effect
    cores = set(command["cores"]) & os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    if command["nice"]:
        os.nice(command["nice"])


def _build(name: str, command: Mapping[str, Any], bound: Bound) -> Stage:
    model = bound.model(command["model"])
    budget = Budget(threads=command["threads"], cores=tuple(command["cores"]))
    return _factory(name)(model, command["config"], budget)


def _factory(name: str) -> Callable[[BoundModel, Mapping[str, Any], Budget], Stage]:
    # each process imports its own stage only: the others' libraries would cost every process memory
    if name == "decoder":
        from dpfedge.stage.decoder import DecoderStage

        return DecoderStage
    if name == "encoder":
        from dpfedge.stage.encoder import EncoderStage

        return EncoderStage
    if name == "llm":
        from dpfedge.stage.llm import LlmStage

        return LlmStage
    from dpfedge.stage.voice import VoiceStage

    return VoiceStage


def _on_term(stop: Callable[[], None]) -> None:
    def handle(_signal: int, _frame: FrameType | None) -> None:
        stop()

    signal.signal(signal.SIGTERM, handle)
    assert threading.current_thread() is threading.main_thread()
