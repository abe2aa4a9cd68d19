# SPDX-License-Identifier: Apache-2.0
"""Makes the own process' machine a poor one, for good: system calls that are refused, small file systems.

For child processes of tests: `python -c "from made_machine import ...; ..."`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from pathlib import Path

NOBODY = 54321
"""A user who has no processes."""
SKIP = 77
"""Exit code of a process that may not do this to itself."""

_NUMBERS = {
    "x86_64": {"memfd_create": 319, "clone": 56, "fork": 57, "vfork": 58, "clone3": 435, "pidfd_open": 434},
    "aarch64": {"memfd_create": 279, "clone": 220, "clone3": 435, "pidfd_open": 434},
}
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NEWNS, _NEWUSER = 0x20000, 0x10000000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

libc = ctypes.CDLL(None, use_errno=True)


def refuse(number: int, *calls: str) -> None:
    """From now on these system calls fail with this errno, in this process and in all it starts."""
    known = _NUMBERS[platform.machine()]
    wanted = [known[call] for call in calls if call in known]
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH[platform.machine()]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    steps += [(_EQUAL, len(wanted) - at, 0, call) for at, call in enumerate(wanted)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | number)]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    kept = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(kept)))
    _check(libc.prctl(38, 1, 0, 0, 0))  # PR_SET_NO_NEW_PRIVS
    _check(libc.prctl(22, 2, program, 0, 0))  # PR_SET_SECCOMP, a filter


def small_folder(path: str | Path, nbytes: int, *, full: bool = False) -> None:
    """Mount an empty file system of `nbytes` there that only this process and its children see; `full` fills it."""
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(_NEWUSER | _NEWNS) != 0:
        sys.exit(SKIP)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    Path(path).mkdir(parents=True, exist_ok=True)
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, f"size={nbytes},mode=700".encode()) != 0:
        sys.exit(SKIP)
    if full:
        with (Path(path) / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, os.statvfs(path).f_bavail * os.statvfs(path).f_frsize)


def few_processes(most: int) -> None:
    """At most so many processes and threads of this user; root, who has no limit, becomes another who reads all."""
    if os.getuid() == 0:
        _check(libc.prctl(8, 1, 0, 0, 0))  # PR_SET_KEEPCAPS
        os.setresuid(NOBODY, NOBODY, NOBODY)
        reading = 0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        header, sets = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", reading, reading, reading, 0, 0, 0)
        _check(libc.capset(header, sets))
        for capability in (1, 2):
            _check(libc.prctl(47, 2, capability, 0, 0))  # PR_CAP_AMBIENT_RAISE: what is started may read, too
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _check(result: int) -> None:
    if result != 0:
        print(os.strerror(ctypes.get_errno()), file=sys.stderr)
        sys.exit(SKIP)
