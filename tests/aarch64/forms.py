# SPDX-License-Identifier: Apache-2.0
"""The compiled operators of dpfedge-cpu in (or those that are installed); the form of products this CPU runs out.

Run by `check.sh` with those of the wheels, which another compiler made than those of the work tree: exit 1 unless the
form is the one that /proc/cpuinfo says.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Mapping
from pathlib import Path

NEEDS: Mapping[str, frozenset[str]] = {
    "avx512-vnni": frozenset({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}),
    "avx2": frozenset({"avx2", "fma", "f16c"}),
    "dotprod": frozenset({"asimd", "asimddp"}),
    "neon": frozenset({"asimd"}),
    "plain": frozenset(),
}
"""Form → words of /proc/cpuinfo, the fastest first."""


class Form(ctypes.Structure):
    """The beginning of a dpf_blocks_form."""

    _fields_ = (("name", ctypes.c_char_p),)


def chosen(library: Path) -> str:
    """What the operators choose."""
    best = ctypes.CDLL(str(library)).dpf_blocks_best
    best.restype = ctypes.POINTER(Form)
    return bytes(best().contents.name).decode()


def expected(cpuinfo: str) -> str:
    """What they should choose."""
    lines = re.findall(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    common = frozenset.intersection(*(frozenset(line.split()) for line in lines))
    return next(form for form, needs in NEEDS.items() if needs <= common)


def main(arguments: list[str]) -> int:
    """Exit code: 1 when the form is another one."""
    if arguments:
        path = Path(arguments[0])
    else:
        from dpfedge_cpu.kernels import library

        path = library()
    found, wanted = chosen(path), expected(Path("/proc/cpuinfo").read_text())
    print(f"form of products: {found}" + ("" if found == wanted else f", but /proc/cpuinfo says {wanted}"))
    return int(found != wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
