# SPDX-License-Identifier: Apache-2.0
"""NVML and the driver asked through child processes: a question in, an answer within a bound, or an error, out.

A child that does not answer in time is killed. One that even that does not end (it hangs in the kernel) is left behind,
and until it is gone no second one is started: the error says since when. Nothing of NVML is loaded here.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from dpfedge.errors import BackendError, Unavailable

__all__ = ["Teller", "ask_cuda"]

_HERE = Path(__file__).parent
_ANSWER_S = 2.0
_FIRST_S = 20.0  # eight GPUs without a persistence daemon take seconds to initialise
_PAUSE_S = 5.0
_LONGEST = 1 << 20
_WHERE = "backend cuda"
_DOCTOR = "`dpfedge doctor --backend cuda` looks for the reason; `dmesg | grep -i NVRM` has the kernel's words"
# nvml.h: nvmlReturn_t
_NOT_LOADED, _MISSING, _NO_FUNCTION, _LOST, _RESET, _MISMATCH = 9, 12, 13, 15, 16, 18
_MEANINGS: dict[int | None, tuple[str, str]] = {
    None: ("", "pip install nvidia-ml-py"),
    _NOT_LOADED: ("the NVIDIA kernel driver is not loaded", "load the NVIDIA kernel driver: modprobe nvidia"),
    _MISSING: ("libnvidia-ml.so.1 is not there", "install the driver; containers: NVIDIA_DRIVER_CAPABILITIES=utility"),
    _NO_FUNCTION: ("the driver is too old", "upgrade the NVIDIA driver"),
    _LOST: ("the GPU fell off the bus", "reset the GPU, or restart the machine"),
    _RESET: ("the GPU must be reset", "nvidia-smi --gpu-reset, when nothing uses it"),
    _MISMATCH: ("library and kernel driver are of different versions", "reload the driver, or restart the machine"),
}  # fmt: skip


class Teller:
    """Asks NVML through one child, which stays between questions; for any thread, one question at a time."""

    def __init__(self, answer_s: float = _ANSWER_S, first_s: float = _FIRST_S) -> None:
        self._answer_s, self._first_s = answer_s, first_s
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._left: subprocess.Popen[bytes] | None = None
        self._failed: tuple[float, Unavailable] | None = None
        self._owner = 0

    def ask(self, question: str, *arguments: object) -> dict[str, Any]:
        """The answer; Unavailable with the reason when there is none in time, BackendError when NVML refuses."""
        with self._lock:
            self._check()
            first = self._child is None
            child = self._child or self._start()
            line = json.dumps({"ask": question, "with": arguments}) + "\n"
            answer = self._exchange(child, line.encode(), self._first_s if first else self._answer_s)
            if "error" in answer:
                self._end()  # what NVML knows of a lost device does not change in a process that has it open
        if "error" in answer:
            raise _refused(answer)
        return answer

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _check(self) -> None:
        if self._owner != os.getpid():  # forked: the child and its pipes are the parent's
            self._child = self._left = None
        if self._left is not None and self._left.poll() is None:
            raise _unanswered(f"process {self._left.pid} hangs in the NVIDIA driver and cannot be killed")
        self._left = None
        if self._failed is not None and time.monotonic() - self._failed[0] < _PAUSE_S:
            raise self._failed[1]
        self._failed = None

    def _start(self) -> subprocess.Popen[bytes]:
        child = self._child = subprocess.Popen(
            [sys.executable, "-P", str(_HERE / "nvml_child.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._owner = os.getpid()
        weakref.finalize(self, _end_own, child, self._owner)  # also when this process ends
        return child

    def _exchange(self, child: subprocess.Popen[bytes], line: bytes, within_s: float) -> dict[str, Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        until, got = time.monotonic() + within_s, b""
        try:
            child.stdin.write(line)
            child.stdin.flush()
        except OSError:
            raise self._gave_up("the process that asks NVML ended") from None
        while not got.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                raise self._gave_up(f"NVML does not answer within {within_s:g} s")
            piece = os.read(child.stdout.fileno(), _LONGEST)
            if not piece or len(got) > _LONGEST:
                code = _code_of(child)
                raise self._gave_up(f"NVML ended the process that asked it{code}")
            got += piece
        answer: dict[str, Any] = json.loads(got)
        return answer

    def _gave_up(self, what: str) -> Unavailable:
        error = _unanswered(what)
        self._failed = time.monotonic(), error
        self._end()
        return error

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None and not _ended(child):
            self._left = child


def _end_own(child: subprocess.Popen[bytes], owner: int) -> None:
    if owner == os.getpid():
        _ended(child)


def _ended(child: subprocess.Popen[bytes]) -> bool:
    """Kill a child; False when it does not end (a process in the kernel's uninterruptible sleep)."""
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not written yet
                continue
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        return False
    return True


def _code_of(child: subprocess.Popen[bytes]) -> str:
    try:
        code = child.wait(0.5)
    except subprocess.TimeoutExpired:
        return ""
    return f" by signal {-code}" if code < 0 else f" with status {code}"


def _unanswered(what: str) -> Unavailable:
    return Unavailable(what, where=_WHERE, remedy=_DOCTOR)


def _refused(answer: dict[str, Any]) -> BackendError:
    what, remedy = _MEANINGS.get(answer["code"], ("NVML refuses", _DOCTOR))
    kind = Unavailable if answer["code"] in _MEANINGS else BackendError
    found = answer["error"] if what else None
    return kind(what or str(answer["error"]), where=_WHERE, found=found, remedy=remedy)


def ask_cuda(within_s: float = 30.0, environ: dict[str, str] | None = None) -> dict[str, Any]:
    """What CUDA tells of its devices, asked in a child that ends with the question.

    Unavailable: no libcuda, no device, a driver too old, one that hangs (the child is killed) or crashes.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", str(_HERE / "libcuda.py")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ,
        start_new_session=True,
    )  # fmt: skip
    try:
        text, _ = child.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        stays = "" if _ended(child) else f", and process {child.pid} cannot be killed"
        raise _unanswered(f"the CUDA driver does not answer within {within_s:g} s{stays}") from None
    if not text:
        raise _unanswered(f"the CUDA driver ended the process that asked it{_code_of(child)}")
    told: dict[str, Any] = json.loads(text)
    if "missing" in told:
        remedy = "install the NVIDIA driver; in a container: run it with --gpus all"
        raise Unavailable("libcuda.so.1 cannot be loaded", where=_WHERE, found=told["missing"], remedy=remedy)
    if "error" in told:
        raise Unavailable("the CUDA driver refuses", where=_WHERE, found=told["error"], remedy=_DOCTOR)
    return told
