# SPDX-License-Identifier: Apache-2.0
"""Whether the loader can load a vendor's library: files in; why not, in its own words, out.

They are loaded in a child process with a time limit: one that hangs is killed, and one that crashes takes nothing of
this process with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["load_error", "missing_library"]

_TIMEOUT_S = 30.0
_LOADED = 86  # a library may end the process with status 0
_CODE = f"""import ctypes, os, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
os._exit({_LOADED})
"""
_WORDS_BYTES = 1 << 16
_REAPED_S = 0.5
_MISSING = re.compile(r"(\S+): cannot open shared object file")


def load_error(files: Sequence[Path | str], folders: Sequence[Path] = ()) -> str:
    """Why the loader cannot load the last of `files`, after those before it that are there; empty when it can.

    Libraries in `folders` are at hand. A name without a folder is looked for as the loader does.
    """
    paths = [*(str(folder) for folder in folders), os.environ.get("LD_LIBRARY_PATH", "")]
    environ = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths).strip(":")}
    there = [str(file) for file in files if os.sep not in str(file) or Path(file).exists()]
    if str(files[-1]) not in there:
        return f"{files[-1]} is not there"
    with tempfile.TemporaryFile(prefix="dpfedge-load-") as words:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE, *there], env=environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=words, start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):  # nothing that it started is left
            os.killpg(child.pid, signal.SIGKILL)
        if code is None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, and is left behind
                child.wait(_REAPED_S)
            return f"loading it takes more than {_TIMEOUT_S:g} s"
        words.seek(max(0, words.seek(0, os.SEEK_END) - _WORDS_BYTES))
        said = words.read().decode("utf-8", "replace").strip().splitlines()
    if code == _LOADED:
        return ""
    if code == 1 and said:  # Python's, of the loader's error
        return said[-1].removeprefix("OSError: ")
    return f"loading it ends the process by signal {-code}" if code < 0 else f"loading it ends the process ({code})"


def missing_library(error: str) -> str | None:
    """The library that is missing, where `load_error` says one is."""
    match = _MISSING.search(error)
    return match[1] if match else None
