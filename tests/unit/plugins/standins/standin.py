# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for vendors' libraries: a C file of this folder in, a shared library under the real one's name out.

They are no emulators: they return what the real library returns for a device, or the error a test asks for
(`standin.h`), so that everything up to the vendor's library is the real code.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

__all__ = ["build"]

HERE = Path(__file__).parent
_KEPT: list[Path] = []


def build(source: str, soname: str, *without: str) -> Path:
    """The folder that holds `soname`, compiled from `source`, for LD_LIBRARY_PATH or CDLL.

    `without`: functions it lacks, as an older library does. Compiled once for each process and set of functions.
    """
    return _build(source, soname, tuple(sorted(without)))


@cache
def _build(source: str, soname: str, without: tuple[str, ...]) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("stand-ins need a C compiler")
    folder = Path(mkdtemp(prefix="dpfedge-standin-"))
    _KEPT.append(folder)
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{soname}"]
    lacks = [f"-DWITHOUT_{name}" for name in without]
    subprocess.run([compiler, *flags, *lacks, "-o", str(folder / soname), str(HERE / source)], check=True, timeout=120)
    return folder


def remove_all() -> None:
    """Remove what was compiled; the session's end calls it."""
    for folder in _KEPT:
        shutil.rmtree(folder, ignore_errors=True)
    _KEPT.clear()
