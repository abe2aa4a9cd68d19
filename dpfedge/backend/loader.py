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
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["import_error", "load_error", "missing_library"]

_TIMEOUT_S = 30.0
_LOADED = 86  # a library may end the process with status 0
_CODE = f"""import ctypes, os, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
os._exit({_LOADED})
"""
_IMPORT = f"""import importlib, os, sys
sys.path[:] = sys.argv[2:]
importlib.import_module(sys.argv[1])
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
    there = [str(file) for file in files if os.sep not in str(file) or Path(file).exists()]
    if str(files[-1]) not in there:
        return f"{files[-1]} is not there"
    return _tried(_CODE, there, {**os.environ, "LD_LIBRARY_PATH": ":".join(paths).strip(":")})


def import_error(module: str) -> str:
    """Why a module, with a vendor's libraries behind it, cannot be imported by this interpreter; empty when it can."""
    return _tried(_IMPORT, [module, *sys.path], os.environ)


def _tried(code: str, arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Why a child that runs `code` did not come to its end; empty when it did."""
    with tempfile.TemporaryFile(prefix="dpfedge-load-") as words:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *arguments], env=environ, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=words, start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        with contextlib.suppress(ProcessLookupError):  # nothing that it started is left
            os.killpg(child.pid, signal.SIGKILL)
        if status is None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, and is left behind
                child.wait(_REAPED_S)
            return f"loading it takes more than {_TIMEOUT_S:g} s"
        words.seek(max(0, words.seek(0, os.SEEK_END) - _WORDS_BYTES))
        said = words.read().decode("utf-8", "replace").strip().splitlines()
    if status == _LOADED:
        return ""
    if status == 1 and said:  # Python's, of the loader's error
        return said[-1].removeprefix("OSError: ")
    return f"loading it ends the process {f'by signal {-status}' if status < 0 else f'({status})'}"


def missing_library(error: str) -> str | None:
    """The library that is missing, where `load_error` says one is."""
    match = _MISSING.search(error)
    return match[1] if match else None
