# SPDX-License-Identifier: Apache-2.0
"""Binding on a real or recorded machine: package, board name and root in, `Bound` out, with everything probed once.

It reads files only; no socket is opened, no device touched, no model loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dpfedge.backend.known import known_machine
from dpfedge.backend.registry import Registry
from dpfedge.binding.bind import bind
from dpfedge.binding.bound import Bound
from dpfedge.binding.devices import Found, find_devices
from dpfedge.binding.seal import Vouch, attach_seal
from dpfedge.binding.whitelist import for_board
from dpfedge.errors import FormatError
from dpfedge.hardware.board import AUTO, Board, find_board
from dpfedge.hardware.probe import Machine, probe
from dpfedge.hardware.sysroot import machine_root
from dpfedge.package.manifest import Target
from dpfedge.package.reader import Package
from dpfedge.plugin.manager import load_plugins
from dpfedge.records import dataclass

__all__ = ["Here", "bind_here", "look"]


@dataclass(frozen=True, slots=True)
class Here:
    """A machine, the board it is, and what can run something on it."""

    machine: Machine
    board: Board
    found: Found


def look(
    board: str = AUTO,
    *,
    sysroot: str | Path = "/",
    registry: Registry | None = None,
    targets: Sequence[Target] | None = None,
) -> Here:
    """Probe the machine below `sysroot` (a folder, or the tar file of a recording) and find its board and devices.

    With `targets`, devices of only those backends that one of them needs on this board. BoardError when it is not
    `board`.
    """
    with machine_root(sysroot) as root:
        machine = probe(root)
        chosen = find_board(board, machine)
        wanted = None if targets is None else _wanted(targets, chosen)
        with known_machine(root, machine):
            found = find_devices(load_plugins() if registry is None else registry, root, wanted)
            return Here(machine, chosen, found)


def _wanted(targets: Sequence[Target], board: Board) -> set[str]:
    return {target.backend for target in targets if for_board(target.whitelist, board.id)}


def bind_here(
    package: Package,
    board: str = AUTO,
    *,
    sysroot: str | Path = "/",
    registry: Registry | None = None,
    allow_fallback: Sequence[str] = (),
    check: Literal["fast", "full"] = "fast",
    vouch: Vouch | None = None,
    sidecar: bool = True,
) -> Bound:
    """Choose a target for each model of `package` on this machine, which must be `board`; or BoardError or BindError.

    On this very machine with the sidecar beside the package, when that passes `check` and `vouch` and fits.
    """
    if package.manifest.seal is not None:
        raise FormatError(
            "a sidecar, not a package", where=str(package.path), remedy="name the package that it lies beside"
        )
    here = look(board, sysroot=sysroot, registry=registry, targets=package.manifest.targets)
    bound = bind(package, here.board, here.found, allow_fallback=allow_fallback)
    return attach_seal(bound, check=check, vouch=vouch) if sidecar and str(sysroot) == "/" else bound
