# SPDX-License-Identifier: Apache-2.0
"""Boards in, the distinct targets a package needs for them out; it lowers nothing and opens no device.

Each board gets a target for each accelerator that a model is placed on (`placing.py` says which), where an installed
plugin lowers for it, and one for its CPU. That one has every model: those that are placed there, and those that run
there where an operator allows it. Its decisions say why a device of the board is unused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from dpfedge.backend.registry import Registry
from dpfedge.compiler.placing import Chain, Spot, chain, cpu_of, cpu_spot, is_anywhere, split_boards
from dpfedge.hardware.board import Board, BoardDevice
from dpfedge.records import dataclass

__all__ = ["TargetPlan", "plan_targets"]

_ABOVE: Mapping[str, str] = {"x86-64-v3": "x86-64-v4"}
"""Level → the next one with wider vectors, on which blocked memory layouts are others."""


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
    chains: Mapping[str, Mapping[str, Chain]] = field(default_factory=dict)
    """Board it was planned for → model → the devices that may take the model, in order."""

    @property
    def spot(self) -> Spot:
        """What it is lowered for."""
        return Spot(self.backend, self.kind, self.arch, self.features)

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


def plan_targets(
    boards: Sequence[str], registry: Registry, models: Mapping[str, Sequence[str]] | None = None
) -> tuple[TargetPlan, ...]:
    """One plan per distinct (backend, class, architecture, features) and models asked for; accelerators come first.

    `boards` are ids, or `ID:DEVICE` for one where every model must go to that device; `models` has the names that a
    board's `placement` may have for each model (`placing.stages_of`). None plans for models without a stage.
    Unsupported names a board without a CPU, and a model whose devices no installed plugin lowers for.
    """
    groups: dict[_Key, list[_Member]] = {}
    for board, demanded in split_boards(boards):
        asked = {"": ()} if models is None else models
        chains = {model: chain(board, model, names, demanded, registry) for model, names in asked.items()}
        spots = dict.fromkeys(step.spot for steps in chains.values() for step in steps if not step.spot.cpu)
        used = {step.device for steps in chains.values() for step in steps} | {cpu_of(board).id}
        for spot in spots:
            device = next(step for steps in chains.values() for step in steps if step.spot == spot)
            notes = [(f"board {board.id}: {spot.backend} {spot.arch}", device.source)]
            groups.setdefault(_Key(False, spot, _asks(spot, chains)), []).append(_Member(board, notes, chains))
        spot, source = cpu_spot(board)
        notes = [*_unused(board, used, registry), (f"board {board.id}: cpu {spot.arch}", source)]
        groups.setdefault(_Key(is_anywhere(board), spot, ()), []).append(_Member(board, notes, chains))
    return tuple(_plan(key, members) for key, members in sorted(groups.items(), key=lambda item: item[0].order()))


@dataclass(frozen=True, slots=True)
class _Key:
    """What targets differ in."""

    generic: bool
    spot: Spot
    asks: tuple[tuple[str, tuple[str, ...], bool], ...]
    """(model, those asked before, whether it is the last that is asked): the same models come to lie in the target."""

    def order(self) -> tuple[object, ...]:
        spot = self.spot
        return spot.cpu, self.generic, spot.backend, spot.kind, spot.arch, sorted(spot.features), self.asks


@dataclass(frozen=True, slots=True)
class _Member:
    """One board of a target."""

    board: Board
    notes: Sequence[tuple[str, str]]
    chains: Mapping[str, Chain]


def _asks(spot: Spot, chains: Mapping[str, Chain]) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    found = []
    for model, steps in sorted(chains.items()):
        spots = [step.spot for step in steps]
        if spot in spots:
            place = spots.index(spot)
            found.append((model, tuple(one.title for one in spots[:place]), place == len(spots) - 1))
    return tuple(found)


def _plan(key: _Key, members: Sequence[_Member]) -> TargetPlan:
    spot, boards = key.spot, () if key.generic else tuple(sorted(one.board.id for one in members))
    id = "-".join([spot.backend, spot.arch, *sorted(spot.features), *boards])[:96]
    notes = tuple(note for one in members for note in one.notes)
    chains = {one.board.id: one.chains for one in members}
    return TargetPlan(id, spot.backend, spot.kind, spot.arch, spot.features, boards, notes, chains)


def _unused(board: Board, used: Collection[str], registry: Registry) -> Iterator[tuple[str, str]]:
    known = set(registry.names())
    for device in board.devices:
        if device.id not in used:
            yield f"board {board.id}: {device.id} unused", _why_unused(device, known)


def _why_unused(device: BoardDevice, known: Collection[str]) -> str:
    if any(name in known for name in device.backends):
        return "no model is placed on it"
    return f"no installed plugin lowers for {' or '.join(device.backends)}"
