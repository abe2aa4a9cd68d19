# SPDX-License-Identifier: Apache-2.0
"""Runs a function in a forked child under ptrace: every system call passes here first, and may be made to fail.

`run(work, at_entry)` forks; the calls counted begin after the fork, so no interpreter start-up is among them.
`at_entry` is asked at each call's entry: None lets it pass, KILL ends the child there, a number makes it fail with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import signal
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["KILL", "Call", "Outcome", "can_inject", "can_trace", "run"]

KILL = "kill"
_TRACEME, _POKEUSER, _SYSCALL, _SETOPTIONS, _SYSCALL_INFO = 0, 6, 24, 0x4200, 0x420E
_OPTIONS = 1 | 2 | 4 | 8 | 0x100000  # TRACESYSGOOD, FORK, VFORK, CLONE, EXITKILL
_WALL = 0x40000000
_ENTRY, _EXIT = 1, 2
_RAX, _ORIG_RAX = 80, 120
_INFO = struct.Struct("=BxxxIQQQ6Q")

# the calls that change files, and those whose order matters; names as in the manual
_NAMES = {
    "x86_64": {
        1: "write", 2: "open", 18: "pwrite64", 40: "sendfile", 73: "flock", 74: "fsync", 75: "fdatasync",
        76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 87: "unlink", 90: "chmod", 91: "fchmod",
        257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat", 268: "fchmodat", 316: "renameat2",
        326: "copy_file_range",
    },
    "aarch64": {
        32: "flock", 34: "mkdirat", 35: "unlinkat", 38: "renameat", 45: "truncate", 46: "ftruncate", 52: "fchmod",
        53: "fchmodat", 56: "openat", 64: "write", 68: "pwrite64", 71: "sendfile", 82: "fsync", 83: "fdatasync",
        276: "renameat2", 285: "copy_file_range",
    },
}.get(platform.machine(), {})  # fmt: skip
# which arguments are paths, and which is the descriptor that is changed
_PATHS = {
    "open": (0,), "truncate": (0,), "rename": (0, 1), "mkdir": (0,), "unlink": (0,), "chmod": (0,), "openat": (1,),
    "mkdirat": (1,), "unlinkat": (1,), "renameat": (1, 3), "renameat2": (1, 3), "fchmodat": (1,),
}  # fmt: skip
_FDS = {
    "write": 0, "pwrite64": 0, "sendfile": 0, "flock": 0, "fsync": 0, "fdatasync": 0, "ftruncate": 0, "fchmod": 0,
    "copy_file_range": 2,
}  # fmt: skip
_FLAGS = {"open": 1, "openat": 2}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


@dataclass(frozen=True)
class Call:
    """A system call at its entry; `paths` of its arguments or of the descriptor that it changes."""

    index: int
    name: str
    paths: tuple[str, ...] = ()
    flags: int = 0

    @property
    def changes(self) -> bool:
        """Whether it writes anything."""
        if self.name in _FLAGS:
            return bool(self.flags & (os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_RDWR))
        return self.name in _PATHS or (self.name in _FDS and self.name != "flock")


@dataclass(frozen=True)
class Outcome:
    """`result`: what the work returned, `error`: the text of what it raised; neither when it was killed."""

    calls: list[Call]
    killed: bool
    result: Any = None
    error: str | None = None


def can_trace() -> str | None:
    """Why ptrace cannot be used here; None when it can."""
    try:
        outcome = run(lambda: os.getppid() > 0, lambda call: None)
    except OSError as error:
        return f"ptrace is not allowed here: {error}"
    return None if outcome.result is True and _NAMES else "the system calls of this machine are not known"


def can_inject() -> str | None:
    """Why calls cannot be made to fail here; None when they can."""
    return can_trace() or (None if platform.machine() == "x86_64" else "results are changed on x86_64 only")


def run(work: Callable[[], Any], at_entry: Callable[[Call], int | str | None]) -> Outcome:
    """Run `work` in a child; its result must have a JSON form."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(work, writing)
    os.close(writing)
    try:
        calls, killed = _trace(pid, at_entry)
        with os.fdopen(reading, "rb") as stream:
            data = stream.read()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        raise
    told = json.loads(data) if data else {}
    return Outcome(calls, killed, told.get("result"), told.get("error"))


def _child(work: Callable[[], Any], writing: int) -> None:
    code = 1
    try:
        if _libc.ptrace(_TRACEME, 0, None, None) == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                told = {"result": work()}
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                told = {"error": f"{type(error).__name__}: {error}"}
            os.write(writing, json.dumps(told).encode())
            code = 0
    finally:
        os._exit(code)


def _ptrace(request: int, pid: int, address: int = 0, data: int = 0) -> int:
    result = _libc.ptrace(request, pid, address, data)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)


def _trace(pid: int, at_entry: Callable[[Call], int | str | None]) -> tuple[list[Call], bool]:
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise OSError(1, "the child may not be traced")
    _ptrace(_SETOPTIONS, pid, 0, _OPTIONS)
    _ptrace(_SYSCALL, pid)
    calls: list[Call] = []
    failing: dict[int, int] = {}  # thread → the errno its call ends with
    alive, started = {pid}, {pid}
    while alive:
        tid, status = os.waitpid(-1, _WALL)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            alive.discard(tid)
            if tid == pid:
                return calls, os.WIFSIGNALED(status)
            continue
        alive.add(tid)
        passed = 0
        number = os.WSTOPSIG(status)
        if number == signal.SIGTRAP | 0x80:
            if not _stopped(tid, pid, calls, failing, at_entry):
                continue
        elif number == signal.SIGSTOP and tid not in started:
            started.add(tid)  # a new thread begins with a stop of its own
        elif number != signal.SIGTRAP:
            passed = number
        with contextlib.suppress(ProcessLookupError):
            _ptrace(_SYSCALL, tid, 0, passed)
    return calls, True


def _stopped(
    tid: int, pid: int, calls: list[Call], failing: dict[int, int], at_entry: Callable[[Call], int | str | None]
) -> bool:
    """At a call's entry or exit; False when the child was killed there."""
    buffer = ctypes.create_string_buffer(_INFO.size)
    try:
        _ptrace(_SYSCALL_INFO, tid, _INFO.size, ctypes.addressof(buffer))
    except ProcessLookupError:
        return False
    operation, _, _, _, number, *arguments = _INFO.unpack(buffer.raw)
    if operation == _EXIT and tid in failing:
        _ptrace(_POKEUSER, tid, _RAX, -failing.pop(tid))
    elif operation == _ENTRY:
        call = _call(tid, len(calls), number, arguments)
        calls.append(call)
        wanted = at_entry(call)
        if wanted == KILL:
            os.kill(pid, signal.SIGKILL)
            return False
        if isinstance(wanted, int):
            failing[tid] = wanted
            _ptrace(_POKEUSER, tid, _ORIG_RAX, -1)
    return True


def _call(tid: int, index: int, number: int, arguments: list[int]) -> Call:
    name = _NAMES.get(number, str(number))
    if name in _FDS:
        with contextlib.suppress(OSError):
            return Call(index, name, (os.readlink(f"/proc/{tid}/fd/{arguments[_FDS[name]] & 0xFFFFFFFF}"),))
    paths = tuple(_text(tid, arguments[place]) for place in _PATHS.get(name, ()))
    return Call(index, name, paths, arguments[_FLAGS[name]] if name in _FLAGS else 0)


def _text(tid: int, address: int) -> str:
    with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        data = b""
        while b"\0" not in data and len(data) < 4096:
            try:
                data += memory.read(4096 - (address + len(data)) % 4096)
            except OSError:
                break
    return os.fsdecode(data.partition(b"\0")[0])
