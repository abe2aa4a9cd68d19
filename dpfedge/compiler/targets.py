# SPDX-License-Identifier: Apache-2.0
"""Board ids in, the distinct targets a package needs for them out; it lowers nothing and opens no device.

Each board gets a target for its accelerator, where an installed plugin lowers for it, and one for its CPU, which runs
where an operator allows it instead; the CPU's decisions say why a device of the board is unused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.registry import Registry
from dpfedge.errors import Unsupported
from dpfedge.hardware.board import Board, BoardDevice, load_board

__all__ = ["TargetPlan", "plan_targets"]

_ANYWHERE = frozenset({"always", "asked"})
"""Keys of `match` that hold on every machine: such a board is the one that compiles. Its CPU's target is bound to
architecture and features only, not to a board."""
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
    """One plan per distinct (backend, class, architecture, features); Unsupported names a board without a CPU.

    Of each board: the first device, in the file's order, that an installed plugin other than `cpu` lowers for, and the
    CPU. Targets of accelerators come first, since binding takes the first one that fits.
    """
    groups: dict[_Key, list[tuple[Board, Sequence[tuple[str, str]]]]] = {}
    for id in sorted(set(boards)):
        board = load_board(id)
        _cpu(board)
        for device, backend in _used(board, registry):
            kind, arch, features, rule = _facts(board, device, backend)
            notes = [(f"board {id}: {backend} {arch}", rule)]
            notes = [*_without_backend(board, registry), *notes] if backend == "cpu" else notes
            key = _Key(backend == "cpu", backend == "cpu" and _anywhere(board), backend, kind, arch, features)
            groups.setdefault(key, []).append((board, notes))
    return tuple(_plan(key, members) for key, members in sorted(groups.items(), key=lambda item: item[0].order()))


@dataclass(frozen=True, slots=True)
class _Key:
    """What targets differ in."""

    cpu: bool
    generic: bool
    backend: str
    kind: str
    arch: str
    features: frozenset[str]

    def order(self) -> tuple[object, ...]:
        return self.cpu, self.generic, self.backend, self.kind, self.arch, sorted(self.features)


def _plan(key: _Key, members: Sequence[tuple[Board, Sequence[tuple[str, str]]]]) -> TargetPlan:
    boards = () if key.generic else tuple(sorted(board.id for board, _ in members))
    id = "-".join([key.backend, key.arch, *sorted(key.features), *boards])[:96]
    notes = tuple(note for _, notes in members for note in notes)
    return TargetPlan(id, key.backend, key.kind, key.arch, key.features, boards, notes)


def _used(board: Board, registry: Registry) -> Iterator[tuple[BoardDevice, str]]:
    """The board's preferred accelerator that some plugin lowers for, and its CPU, each with its backend."""
    known = registry.names()
    for device in board.devices:
        if (found := next((name for name in device.backends if name != "cpu" and name in known), None)) is not None:
            yield device, found
            break
    yield _cpu(board), "cpu"


def _anywhere(board: Board) -> bool:
    return board.match.keys() <= _ANYWHERE


def _cpu(board: Board) -> BoardDevice:
    for device in board.devices:
        if "cpu" in device.backends:
            return device
    raise Unsupported("the board has no device the CPU backend can use", where=f"board {board.id}")


def _facts(board: Board, device: BoardDevice, backend: str) -> tuple[str, str, frozenset[str], str]:
    """Class, architecture, features that kernels are chosen by, and where they are known from."""
    wanted = _KERNEL_FEATURES if backend == "cpu" else device.features
    if _anywhere(board):
        facts = cpu_facts("/")
        return f"cpu.{facts.arch}", facts.level, facts.features & wanted, "this machine"
    kind = "cpu.x86_64" if device.kind == "cpu" else device.kind
    if device.arch is not None:
        return kind, device.arch, device.features & wanted, "board file"
    if kind not in _LEAST:
        raise Unsupported(
            "the board file names no architecture", where=f"board {board.id}: {device.id}", found=kind,
            remedy="give the device an `arch`",
        )  # fmt: skip
    return kind, _LEAST[kind], frozenset(), "the board file names no level; the least of such boards is taken"


def _without_backend(board: Board, registry: Registry) -> list[tuple[str, str]]:
    used = [device for device, _ in _used(board, registry)]
    known = set(registry.names())
    return [
        (f"board {board.id}: {device.id} unused", _why_unused(device, known))
        for device in board.devices
        if device not in used
    ]


def _why_unused(device: BoardDevice, known: Collection[str]) -> str:
    if any(name in known for name in device.backends):
        return "a package has one target per accelerator of a board, the preferred one"
    return f"no installed plugin lowers for {' or '.join(device.backends)}"
