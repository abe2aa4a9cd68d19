# SPDX-License-Identifier: Apache-2.0
"""Whether the loader can load a vendor's library: files in; why not, in its own words, out.

They are loaded in a child process with a time limit: one that hangs is killed, and one that crashes takes nothing of
this process with it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["load_error", "missing_library"]

_TIMEOUT_S = 30.0
_CODE = "import ctypes, sys\nfor path in sys.argv[1:]:\n    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)\n"
_MISSING = re.compile(r"(\S+): cannot open shared object file")


def load_error(files: Sequence[Path], folders: Sequence[Path] = ()) -> str:
    """Why the loader cannot load `files` in turn, with libraries in `folders` at hand; empty when it can."""
    paths = [*(str(folder) for folder in folders), os.environ.get("LD_LIBRARY_PATH", "")]
    environ = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths).strip(":")}
    command = [sys.executable, "-c", _CODE, *(str(file) for file in files if file.exists())]
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"loading it takes more than {_TIMEOUT_S:g} s"
    if done.returncode < 0:
        return f"loading it ends the process by signal {-done.returncode}"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it fails without a word"])[-1]


def missing_library(error: str) -> str | None:
    """The library that is missing, where `load_error` says one is."""
    match = _MISSING.search(error)
    return match[1] if match else None
