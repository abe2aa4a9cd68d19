# SPDX-License-Identifier: Apache-2.0
"""A process of its own for each test of a vendor's library: the loader's path and a stuck call end with it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import standin

PLUGINS = Path(__file__).parents[4] / "plugins"
Child = Callable[..., str]


@pytest.fixture
def child() -> Child:
    """`child(code, "hip.c", …, NAME=value)`: what code prints, or the last line of its error."""
    return _child


def _child(code: str, *sources: str, without: tuple[str, ...] = (), **environ: str) -> str:
    names = {"hip.c": "libamdhip64.so.7", "amdsmi.c": "libamd_smi.so"}
    folders = [str(standin.build(source, names[source], *without)) for source in sources]
    path = os.pathsep.join([str(PLUGINS / "dpfedge-rocm"), str(PLUGINS / "dpfedge-cpu")])
    whole = {**os.environ, "PYTHONPATH": path, "LD_LIBRARY_PATH": os.pathsep.join(folders), **environ}
    for name in ("ROCM_HOME", "ROCM_PATH"):
        whole.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=whole, capture_output=True, text=True, timeout=120
    )
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
