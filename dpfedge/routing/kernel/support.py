# SPDX-License-Identifier: Apache-2.0
"""What this machine allows of routing in the kernel: nothing in; the reason against it, or the places it needs, out.

It loads no program: whether the privilege suffices is found by trying, in `attachment.py`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from dpfedge.errors import Unavailable

__all__ = ["KERNEL_LEAST", "cgroup_of", "cgroup_root", "check_machine", "object_bytes"]

KERNEL_LEAST = (5, 15)
"""The oldest kernel on which every part exists and cgroup memory, not RLIMIT_MEMLOCK, pays for maps."""

_FOLDER = Path(__file__).parent


def check_machine(release: str | None = None, byteorder: str = sys.byteorder) -> None:
    """Unavailable on a kernel before 5.15, or a big-endian one."""
    text = os.uname().release if release is None else release
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None or (int(match[1]), int(match[2])) < KERNEL_LEAST:
        allowed = "{}.{} or newer".format(*KERNEL_LEAST)
        raise Unavailable("the kernel is too old to route", found=text, allowed=allowed)
    if byteorder != "little":
        raise Unavailable("the programs are built for little-endian machines", found=f"a {byteorder}-endian one")


def object_bytes(name: str, folder: Path = _FOLDER) -> bytes:
    """A built eBPF object; Unavailable in a checkout where `make bpf` has not run."""
    path = folder / f"{name}.bpf.o"
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise Unavailable("the eBPF programs are not built", where=str(path), remedy="run `make bpf`") from error


def cgroup_root(mounts: Path = Path("/proc/self/mountinfo")) -> Path:
    """Where cgroup v2 is mounted, alone or beside v1; Unavailable where it is not."""
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError as error:
        raise Unavailable("what is mounted cannot be read", where=str(mounts), found=error.strerror) from error
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.split()[:1] == ["cgroup2"]:
            return Path(before.split()[4].replace("\\040", " "))
    raise Unavailable("no cgroup v2 is mounted", remedy="mount -t cgroup2 none /sys/fs/cgroup")


def cgroup_of(path: Path | None) -> Path:
    """The folder of a cgroup v2 to attach to: `path`, or the root, which is every process of the host."""
    place = cgroup_root() if path is None else path
    if not os.path.exists(place / "cgroup.controllers"):  # which v1 does not have; a folder that is shut is none either
        raise Unavailable("no cgroup v2 is there", where=str(place), remedy=f"a folder below {cgroup_root()}")
    return place
