# SPDX-License-Identifier: Apache-2.0
"""Binding on a machine: a package and a board's name in, the bound package out; files are read, nothing is opened or run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpfedge.backend.registry import Registry
from dpfedge.binding.bind import bind
from dpfedge.binding.bound import Bound
from dpfedge.binding.devices import find_devices
from dpfedge.hardware.board import find_board
from dpfedge.hardware.probe import probe
from dpfedge.package import Package

__all__ = ["bind_here"]


def bind_here(package: Package, board: str, *, sysroot: str | Path = "/", allow_fallback: Sequence[str] = ()) -> Bound:
    """Probe the machine below `sysroot`, check that it is `board` (or find out, for `auto`), and choose a target.

    BoardError when the machine is another board, BindError with every refusal when no target fits.
    """
    chosen = find_board(board, probe(Path(sysroot)))
    return bind(package, chosen, find_devices(Registry.load(), sysroot), allow_fallback=allow_fallback)
