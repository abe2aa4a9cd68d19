# SPDX-License-Identifier: Apache-2.0
"""GPU code inside a library: a file with NVIDIA's fat binaries in, the compute capabilities it has code for out.

The layout is what NVIDIA's compilers write and no document says; a container that does not fit it is passed over. No
library is loaded.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

from dpfedge.records import dataclass

__all__ = ["Kernels", "read_kernels"]

_MAGIC = b"\x50\xed\x55\xba"
_HEAD = struct.Struct("<4sHHQ")  # magic, version, size of this, size of all entries
_ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, size of this, size of the code, compute capability
_PTX, _CUBIN = 1, 2


@dataclass(frozen=True, slots=True)
class Kernels:
    """Compute capabilities as numbers: 90 for 9.0."""

    cubins: frozenset[int]
    """Code that runs on its own major version, at an equal or higher minor."""
    ptx: frozenset[int]
    """Code the driver compiles for its own and any later GPU, when it is first used."""

    def run_on(self, capability: int) -> bool:
        """Whether there is code that a GPU of this capability can run."""
        same = any(code // 10 == capability // 10 and code % 10 <= capability % 10 for code in self.cubins)
        return same or any(code <= capability for code in self.ptx)


def read_kernels(library: Path) -> Kernels | None:
    """What a library has code for; None when it cannot be read or has no GPU code."""
    if not library.is_file():  # a pipe would be waited for
        return None
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = set(_codes(data))
    except (OSError, ValueError):  # missing, unreadable, or empty
        return None
    if not found:
        return None
    return Kernels(*(frozenset(arch for kind, arch in found if kind == wanted) for wanted in (_CUBIN, _PTX)))


def _codes(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """(kind, compute capability) of every entry of every container."""
    at = data.find(_MAGIC)
    while 0 <= at <= len(data) - _HEAD.size:
        _, version, head, size = _HEAD.unpack_from(data, at)
        end = at + head + size
        if version != 1 or head < _HEAD.size or end > len(data):
            end = at  # the four bytes stand there by chance
        entry = at + head
        while entry + _ENTRY.size <= end:
            kind, _, own, length, arch = _ENTRY.unpack_from(data, entry)
            if kind not in (_PTX, _CUBIN) or own < _ENTRY.size:
                break
            yield kind, arch
            entry += own + length
        at = data.find(_MAGIC, max(end, at + len(_MAGIC)))
