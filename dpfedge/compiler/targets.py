# SPDX-License-Identifier: Apache-2.0
"""Board ids in, the distinct targets a package needs for them out; it lowers nothing and opens no device.

A board that has an accelerator without a backend that lowers for it gets its CPU's target, and the target's decisions
say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.registry import Registry
from dpfedge.errors import Unsupported
from dpfedge.hardware.board import Board, BoardDevice, load_board

__all__ = ["TargetPlan", "plan_targets"]

GENERIC = "host"
"""The board that is any machine: its target is bound to architecture and features only, not to a board."""
_KERNEL_FEATURES = frozenset({"vnni"})
"""Features that lowering relies on; a target demands those it was lowered with."""
_ABOVE: Mapping[str, str] = {"x86-64-v3": "x86-64-v4"}
"""Level → the next one with wider vectors, on which blocked memory layouts are others."""
_LEAST: Mapping[str, str] = {"cpu.x86_64": "x86-64-v3", "cpu.aarch64": "armv8.0-a"}
"""The level taken for a board file that names none: onnxruntime chooses kernels when it runs, so little is lost."""


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """One target to be compiled."""

    id: str
    backend: str
    kind: str
    arch: str
    features: frozenset[str]
    boards: tuple[str, ...]
    decisions: tuple[tuple[str, str], ...]

    def whitelist(self, *, exact: bool = False) -> list[Any]:
        """The match expression of the target; `exact`: its graphs fit this level only, not the ones above it."""
        terms: list[Any] = [["class", self.kind], ["arch", self.arch]]
        if exact and self.arch in _ABOVE:
            terms.append(["not", ["arch", _ABOVE[self.arch]]])
        if self.features:
            terms.append(["feature", *sorted(self.features)])
        if self.boards:
            terms.insert(0, ["board", *self.boards])
        return ["and", *terms]


def plan_targets(boards: Sequence[str], registry: Registry) -> tuple[TargetPlan, ...]:
    """One plan per distinct (class, architecture, features), `host` apart; Unsupported names a board without a CPU."""
    groups: dict[tuple[bool, str, str, frozenset[str]], list[tuple[Board, tuple[tuple[str, str], ...]]]] = {}
    for id in sorted(set(boards)):
        board = load_board(id)
        device = _cpu(board)
        kind, arch, features, rule = _facts(board, device)
        notes = (*_without_backend(board, registry), (f"board {id}: cpu {arch}", rule))
        groups.setdefault((id == GENERIC, kind, arch, features), []).append((board, notes))
    return tuple(
        _plan(key, members)
        for key, members in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1:3], sorted(item[0][3])))
    )


def _plan(
    key: tuple[bool, str, str, frozenset[str]], members: Sequence[tuple[Board, tuple[tuple[str, str], ...]]]
) -> TargetPlan:
    generic, kind, arch, features = key
    boards = () if generic else tuple(sorted(board.id for board, _ in members))
    id = "-".join(["cpu", arch, *sorted(features), *boards])[:96]
    return TargetPlan(id, "cpu", kind, arch, features, boards, tuple(note for _, notes in members for note in notes))


def _cpu(board: Board) -> BoardDevice:
    for device in board.devices:
        if "cpu" in device.backends:
            return device
    raise Unsupported("the board has no device the CPU backend can use", where=f"board {board.id}")


def _facts(board: Board, device: BoardDevice) -> tuple[str, str, frozenset[str], str]:
    if board.id == GENERIC:
        facts = cpu_facts("/")
        return f"cpu.{facts.arch}", facts.level, facts.features & _KERNEL_FEATURES, "this machine"
    kind = "cpu.x86_64" if device.kind == "cpu" else device.kind
    if device.arch is None:
        return kind, _LEAST[kind], frozenset(), "the board file names no level; the least of such boards is taken"
    return kind, device.arch, device.features & _KERNEL_FEATURES, "board file"


def _without_backend(board: Board, registry: Registry) -> list[tuple[str, str]]:
    known: Mapping[str, None] = dict.fromkeys(registry.names())
    return [
        (
            f"board {board.id}: {device.id} unused",
            f"no installed plugin lowers for {' or '.join(device.backends) or device.kind}",
        )
        for device in board.devices
        if "cpu" not in device.backends and not known.keys() & set(device.backends)
    ]
