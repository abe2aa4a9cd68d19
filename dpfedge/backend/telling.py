# SPDX-License-Identifier: Apache-2.0
"""A vendor's library asked through a child process: a question in, an answer within a bound, or a named error, out.

The child is a program of the plugin's own (standard library and the vendor's bindings only) that answers lines of JSON
by lines of JSON. Whatever the library does there (hang, crash, exit, print, fork) costs that child and what it started:
they are killed. One that even that does not end (it hangs in the kernel) is left behind, and until it is gone no second
one is started. The child's end is `answering.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpfedge.errors import BackendError, Unavailable
from dpfedge.records import dataclass

__all__ = ["Asked", "Teller", "ask_once"]

_ANSWER_S = 2.0
_FIRST_S = 20.0  # eight GPUs without a persistence daemon take seconds to initialise
_PAUSE_S = 5.0
_REFUSED_S = 1.0  # each error costs a child, and a broken device is asked of as often as a good one
_LONGEST = 1 << 20
_HOME = os.fspath(Path(__file__).parents[2])
"""Where dpfedge lies, for children of a process that put it on its path by itself."""
_Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom a `Teller` asks."""

    program: Path
    who: str
    """For errors: `NVML`, `the CUDA driver`."""
    where: str
    """For errors: `backend cuda`."""
    remedy: str
    """What to do about a library that does not answer."""
    refused: Callable[[Mapping[str, Any]], BackendError]
    """The error for an answer that has a key `error`."""

    def unanswered(self, what: str) -> Unavailable:
        """The error for no answer."""
        return Unavailable(what, where=self.where, remedy=self.remedy)


class Teller:
    """Asks through one child, which stays between questions; for any thread, one question at a time."""

    def __init__(self, asked: Asked, answer_s: float = _ANSWER_S, first_s: float = _FIRST_S) -> None:
        self.asked, self._answer_s, self._first_s = asked, answer_s, first_s
        self._lock = threading.Lock()
        self._child: _Process | None = None
        self._left: _Process | None = None
        self._failed: tuple[float, Unavailable] | None = None
        self._refused: tuple[float, tuple[str, tuple[object, ...]], BackendError] | None = None
        self._kill: weakref.finalize[..., Teller] | None = None
        self._owner = 0

    def ask(self, question: str, *arguments: object) -> dict[str, Any]:
        """The answer; Unavailable with the reason when there is none in time, else what the library refuses with.

        Either is told for a while without asking again.
        """
        asked = question, arguments
        with self._lock:
            self._check(asked)
            first = self._child is None
            child = self._child or self._start()
            try:
                answer = _exchange(
                    self.asked, child, {"ask": question, "with": arguments}, self._first_s if first else self._answer_s
                )
            except Unavailable as error:
                self._failed = time.monotonic(), error
                self._end()
                raise
            if "error" in answer:
                self._end()  # what a library knows of a lost device does not change in a process that has it open
                refusal = self.asked.refused(answer)
                self._refused = time.monotonic(), asked, refusal
                raise refusal
        return answer

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def _check(self, asked: tuple[str, tuple[object, ...]]) -> None:
        if self._owner != os.getpid():  # forked: the child and its pipes are the parent's
            self._child = self._left = None
        if self._left is not None and self._left.poll() is None:
            raise self.asked.unanswered(f"process {self._left.pid} hangs in {self.asked.who} and cannot be killed")
        self._left = None
        if self._failed is not None and time.monotonic() - self._failed[0] < _PAUSE_S:
            raise self._failed[1].with_traceback(None)
        self._failed = None
        if self._refused is not None:
            at, what, error = self._refused
            if what == asked and time.monotonic() - at < _REFUSED_S:
                raise error.with_traceback(None)

    def _start(self) -> _Process:
        child = self._child = _started(self.asked.program)
        self._owner = os.getpid()
        self._kill = weakref.finalize(self, _end_own, child, self._owner)  # also when this process ends
        return child

    def _end(self) -> None:
        child, self._child = self._child, None
        if self._kill is not None:
            self._kill.detach()
        if child is not None and not _ended(child):
            self._left = child


def ask_once(asked: Asked, question: str, within_s: float, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The answer of a child that ends with the question; errors as `Teller.ask` has them."""
    child = _started(asked.program, environ)
    try:
        answer = _exchange(asked, child, {"ask": question, "with": ()}, within_s)
    except Unavailable as error:
        if not _ended(child):
            raise asked.unanswered(f"{error.what}, and process {child.pid} cannot be killed") from None
        raise
    _ended(child)
    if "error" in answer:
        raise asked.refused(answer)
    return answer


def _started(program: Path, environ: Mapping[str, str] | None = None) -> _Process:
    environ = dict(os.environ if environ is None else environ)
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), _HOME)))
    return subprocess.Popen(
        [sys.executable, "-P", os.fspath(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True, env=environ,
    )  # fmt: skip


def _exchange(asked: Asked, child: _Process, question: Mapping[str, Any], within_s: float) -> dict[str, Any]:
    """One line there and one back."""
    assert child.stdin is not None
    assert child.stdout is not None
    until, got = time.monotonic() + within_s, b""
    try:
        child.stdin.write(json.dumps(question).encode() + b"\n")
        child.stdin.flush()
    except OSError:
        raise asked.unanswered(f"{asked.who} ended the process that asked it{_code_of(child)}") from None
    while not got.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
            raise asked.unanswered(f"{asked.who} does not answer within {within_s:g} s")
        piece = os.read(child.stdout.fileno(), _LONGEST)
        if not piece or len(got) > _LONGEST:
            raise asked.unanswered(f"{asked.who} ended the process that asked it{_code_of(child)}")
        got += piece
    try:
        answer = json.loads(got)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise asked.unanswered(f"{asked.who} wrote into the answer: {got[:80]!r}")
    return answer


def _end_own(child: _Process, owner: int) -> None:
    if owner == os.getpid():
        _ended(child)


def _ended(child: _Process) -> bool:
    """Kill a child and what it started; False when it does not end (it is in the kernel's uninterruptible sleep)."""
    if child.returncode is None:  # its number is still its own
        with contextlib.suppress(ProcessLookupError):  # it has ended, and nothing of its session is left
            os.killpg(child.pid, signal.SIGKILL)
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


def _code_of(child: _Process) -> str:
    try:
        code = child.wait(0.5)
    except subprocess.TimeoutExpired:
        return ""
    return f" by signal {-code}" if code < 0 else f" with status {code}"
