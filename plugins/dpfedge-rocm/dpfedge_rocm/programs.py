# SPDX-License-Identifier: Apache-2.0
"""Compiled programs of MIGraphX (`.mxr`): a session that compiles in, its programs out for the seal; and back.

The provider keeps programs in a folder, under names it makes of its own version, the graph, the sizes and the GPU's
target. It compiles anew, without a word, when a file is not there, is called otherwise or cannot be read; so the folder
is looked at before and after, and a sealed program that was not used is an error. Without a seal a graph is compiled
each time it is loaded, which takes seconds to minutes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np

from dpfedge.backend.api import Array, SealedView
from dpfedge.errors import BackendError

__all__ = ["FOLDER", "collect", "sealed_folder"]

FOLDER = "migraphx_model_cache_dir"
"""The provider's option."""
_SUFFIX = ".mxr"
Opened = TypeVar("Opened")


def collect(name: str, open_at: Callable[[str], object]) -> Mapping[str, Sequence[Array]]:
    """File name → bytes of the programs that opening graph `name` with a folder compiles into it."""
    with _folder() as folder:
        open_at(str(folder))
        files = sorted(folder.glob(f"*{_SUFFIX}"))
        if not files:
            raise BackendError(
                "MIGraphX compiled the graph and kept no program", where=f"graph {name}",
                remedy=f"the provider needs the option {FOLDER} (ROCm 6.4 and newer)",
            )  # fmt: skip
        return {file.name: [np.frombuffer(file.read_bytes(), np.uint8)] for file in files}


def sealed_folder(name: str, sealed: Mapping[str, SealedView], open_at: Callable[[str], Opened]) -> Opened:
    """`open_at(folder)` with the sealed programs in it; BackendError when one was compiled anew all the same."""
    with _folder() as folder:
        for file, view in sealed.items():
            if Path(file).name != file or not file.endswith(_SUFFIX):
                raise _unfit(name, f"{file[:80]!r} is no program's name")
            (folder / file).write_bytes(view.data)
        before = _state(folder)
        opened = open_at(str(folder))
        if changed := sorted(set(_state(folder).items()) ^ set(before.items())):
            raise _unfit(name, f"{changed[0][0]} was compiled anew")
        return opened


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {entry.name: entry.stat() for entry in os.scandir(folder)}
    return {file: (stat.st_ino, stat.st_size, stat.st_mtime_ns) for file, stat in found.items()}


def _unfit(name: str, found: str) -> BackendError:
    return BackendError(
        "the sealed programs are not those of this graph, GPU and ROCm", where=f"graph {name}", found=found,
        remedy="run `dpfedge seal` again",
    )  # fmt: skip


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dpfedge-mxr-") as folder:
        yield Path(folder)
