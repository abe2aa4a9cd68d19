# SPDX-License-Identifier: Apache-2.0
"""Device nodes: a root and a user in, the nodes that user may not open, with the group that may, out.

Nothing is opened: modes and groups tell, so that a recording's nodes can be judged for another user.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from dpfedge.doctor.surroundings import Finding, Surroundings, User
from dpfedge.hardware.source.root import Root, label, whole
from dpfedge.records import dataclass

__all__ = ["Node", "check_nodes", "nodes"]

_NODES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("dev", r"mali[0-9]", ("opencl",)),
    ("dev", r"kgsl-3d0", ("opencl",)),
    ("dev", r"kfd", ("rocm",)),
    ("dev", r"nvidia[0-9]+|nvidiactl|nvidia-uvm", ("cuda",)),
    ("dev", r"nvmap|nvhost-(gpu|ctrl|ctrl-gpu|nvdla[0-9])", ("jetson",)),
    ("dev/dri", r"renderD[0-9]+", ("opencl", "rocm")),
)


@dataclass(frozen=True, slots=True)
class Node:
    """One device node as far as opening it goes."""

    path: str
    mode: int
    uid: int
    gid: int
    group: str
    backends: tuple[str, ...]

    def open_to(self, user: User) -> bool:
        """Whether `user` may read and write it."""
        if user.uid == 0:
            return True
        if user.uid == self.uid:
            return self.mode & 0o600 == 0o600
        shift = 0o060 if self.gid in user.groups else 0o006
        return self.mode & shift == shift


def nodes(root: Root) -> Iterator[Node]:
    """The nodes of GPUs and the like below a root."""
    groups = _groups(root)
    for folder, pattern, backends in _NODES:
        for name in root.names(folder):
            if re.fullmatch(pattern, name):
                try:
                    found = os.lstat(os.path.join(root.path, folder, name))
                except OSError:  # it went away
                    continue
                mode, gid = stat.S_IMODE(found.st_mode), found.st_gid
                group = groups.get(gid, f"with number {gid}")
                yield Node(f"/{folder}/{name}", mode, found.st_uid, gid, group, backends)


def _groups(root: Root) -> dict[int, str]:
    rows = (line.split(":") for line in (root.text("etc/group") or "").splitlines())
    named = ((whole(row[2]), label(row[0])) for row in rows if len(row) >= 3)
    return {number: name for number, name in named if number is not None}


def check_nodes(surroundings: Surroundings) -> Iterator[Finding]:
    """A node that is there and cannot be opened: drivers report it as no device, or as no memory."""
    for node in nodes(surroundings.root):
        if node.open_to(surroundings.user):
            continue
        if node.mode & 0o060 == 0o060:
            remedy = f'sudo usermod -aG {node.group} "$USER", then log in anew'
        else:
            remedy = f'a udev rule that gives it to a group: KERNEL=="{node.path[5:]}", GROUP="render", MODE="0660"'
        what = f"may not be opened by this user: mode {node.mode:04o}, group {node.group}"
        yield Finding("nodes", "fault", node.path, what, remedy, node.backends)
