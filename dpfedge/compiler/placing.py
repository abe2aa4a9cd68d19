# SPDX-License-Identifier: Apache-2.0
"""A board and a model's stages in, the devices that may take the model, in order, out; and what each answered.

The rule is in `boards/README.md`: what a board file or `--board ID:DEVICE` names is all that may take a model; where it
names nothing, the board's first device that a plugin lowers for, and the CPU where that plugin refuses the model. It
lowers nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.registry import Registry
from dpfedge.errors import BoardError, Unsupported, UsageError
from dpfedge.hardware.board import Board, BoardDevice, load_board
from dpfedge.records import dataclass

__all__ = [
    "Chain", "Placing", "Spot", "Step", "chain", "cpu_of", "cpu_spot", "is_anywhere", "split_boards", "stages_of",
]  # fmt: skip

_ANYWHERE = frozenset({"always", "asked"})
"""Keys of `match` that hold on every machine: such a board is the one that compiles. Its CPU's target is bound to
architecture and features only, not to a board."""
_KERNEL_FEATURES = frozenset({"vnni"})
"""Features that lowering relies on; a target demands those it was lowered with."""
_LEAST: Mapping[str, str] = {"cpu.x86_64": "x86-64-v3", "cpu.aarch64": "armv8.0-a"}
"""The level taken for a board file that names none: onnxruntime chooses kernels when it runs, so little is lost."""
_REASON_MAX = 1000  # letters of a refusal in a decision; some name hundreds of nodes


@dataclass(frozen=True, slots=True)
class Spot:
    """What models are lowered for: a class of device through a backend."""

    backend: str
    kind: str
    arch: str
    features: frozenset[str]

    @property
    def cpu(self) -> bool:
        """Whether it is the CPU backend's."""
        return self.backend == "cpu"

    @property
    def title(self) -> str:
        """All of it as one word."""
        return "-".join([self.backend, self.kind, self.arch, *sorted(self.features)])


@dataclass(frozen=True, slots=True)
class Step:
    """One device that may take a model."""

    spot: Spot
    source: str
    """Where its architecture is known from."""
    device: str
    """The device's id in the board file."""
    why: str
    """Why the model is placed on it."""
    chosen: bool
    """Whether somebody named it, rather than the rule for models that nobody places."""


Chain: TypeAlias = tuple[Step, ...]
"""The devices that may take a model, the preferred one first."""


def stages_of(models: Collection[str], pipeline: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Model → names that a board's `placement` may have for it: of each stage that owns it, its name and its kind."""
    found: dict[str, dict[str, None]] = {model: {} for model in models}
    for name, stage in pipeline.get("stages", {}).items():
        if (names := found.get(stage.get("model", ""))) is not None:
            names |= dict.fromkeys([name, str(stage.get("kind", name))])
    return {model: tuple(names) for model, names in found.items()}


def split_boards(boards: Sequence[str]) -> list[tuple[Board, str | None]]:
    """`ID` or `ID:DEVICE` → board and device, by id; UsageError for a board that is asked for in two ways."""
    asked: dict[str, str] = {}
    for text in sorted(set(boards)):
        id = text.partition(":")[0]
        if asked.setdefault(id, text) != text:
            raise UsageError("one board is asked for in two ways", where="--board", found=f"{asked[id]}, {text}")
    return [(load_board(id), text.partition(":")[2] or None) for id, text in asked.items()]


def chain(board: Board, model: str, names: Sequence[str], demanded: str | None, registry: Registry) -> Chain:
    """The devices that may take a model whose stages `placement` knows by `names`; `demanded`: this one and no other.

    BoardError for a device the board has not; Unsupported when no installed plugin lowers for any of them.
    """
    known, devices = {*registry.names(), "cpu"}, {device.id: device for device in board.devices}
    ids, why, chosen = _wanted(board, names, demanded, known)
    if unknown := [id for id in ids if id not in devices]:
        allowed = ", ".join(devices)
        raise BoardError("there is no such device", where=f"board {board.id}", found=unknown[0], allowed=allowed)
    usable = [(devices[id], backend) for id in ids if (backend := _backend(devices[id], known)) is not None]
    if not usable:
        plugins = dict.fromkeys(f"dpfedge-{name}" for id in ids for name in devices[id].backends)
        raise Unsupported(
            f"no installed plugin lowers for {' or '.join(ids)}, and nothing else may take it ({why})",
            where=f"board {board.id}: model {model}", found=", ".join(sorted(known)),
            remedy=f"pip install {' or '.join(plugins)}",
        )  # fmt: skip
    return tuple(Step(*_spot(board, device, backend), device.id, why, chosen) for device, backend in usable)


def _wanted(
    board: Board, names: Sequence[str], demanded: str | None, known: Collection[str]
) -> tuple[tuple[str, ...], str, bool]:
    """Ids of devices, why these, and whether somebody named them."""
    if demanded is not None:
        return (demanded,), f"--board {board.id}:{demanded}", True
    for name in names:
        if "device" in board.placement.get(name, {}):
            return board.placement[name]["device"], f"the board file places {name} there", True
    return _preferred(board, known), "the first device of the board that a plugin lowers for", False


def _preferred(board: Board, known: Collection[str]) -> tuple[str, ...]:
    """The first device that a plugin other than `cpu` lowers for, and the CPU."""
    cpu = cpu_of(board).id
    found = next((device.id for device in board.devices if _backend(device, known) not in (None, "cpu")), None)
    return (cpu,) if found is None else (found, cpu)


def _backend(device: BoardDevice, known: Collection[str]) -> str | None:
    return next((name for name in device.backends if name in known), None)


def is_anywhere(board: Board) -> bool:
    """Whether every machine may be the board."""
    return board.match.keys() <= _ANYWHERE


def cpu_of(board: Board) -> BoardDevice:
    """The board's CPU; Unsupported when it has none."""
    for device in board.devices:
        if "cpu" in device.backends:
            return device
    raise Unsupported("the board has no device the CPU backend can use", where=f"board {board.id}")


def cpu_spot(board: Board) -> tuple[Spot, str]:
    """What models are lowered for on the board's CPU, and where that is known from."""
    return _spot(board, cpu_of(board), "cpu")


def _spot(board: Board, device: BoardDevice, backend: str) -> tuple[Spot, str]:
    """Class, architecture, features that kernels are chosen by, and where they are known from."""
    wanted = _KERNEL_FEATURES if backend == "cpu" else device.features
    if is_anywhere(board):
        facts = cpu_facts("/")
        return Spot(backend, f"cpu.{facts.arch}", facts.level, facts.features & wanted), "this machine"
    kind = "cpu.x86_64" if device.kind == "cpu" else device.kind
    if device.arch is not None:
        return Spot(backend, kind, device.arch, device.features & wanted), "board file"
    if kind not in _LEAST:
        raise Unsupported(
            "the board file names no architecture", where=f"board {board.id}: {device.id}", found=kind,
            remedy="give the device an `arch`",
        )  # fmt: skip
    level = "the board file names no level; the least of such boards is taken"
    return Spot(backend, kind, _LEAST[kind], frozenset()), level


class Placing:
    """One model while it is offered to targets."""

    def __init__(self, model: str, where: str) -> None:
        """`where`: where the recipe names the model; left out of what a package keeps."""
        self.model, self._where = model, where
        self._refused: dict[Spot, str] = {}
        self._taken: set[Spot] = set()

    def depth(self, spot: Spot, chains: Mapping[str, Mapping[str, Chain]]) -> tuple[bool, int]:
        """Targets are asked in this order: accelerators before CPUs, each behind those that are preferred to it."""
        places = [one.index(spot) for one in self._spots(chains) if spot in one]
        return spot.cpu, min(places, default=0)

    def asks(self, spot: Spot, chains: Mapping[str, Mapping[str, Chain]]) -> bool:
        """Whether a target for `spot` is offered the model: a CPU's always, another one when all before it refused."""
        rows = [one for one in self._spots(chains) if spot in one]
        return spot.cpu or any(all(before in self._refused for before in one[: one.index(spot)]) for one in rows)

    def take(self, spot: Spot) -> None:
        """It lowered the model."""
        self._taken.add(spot)

    def refuse(self, spot: Spot, chains: Mapping[str, Mapping[str, Chain]], error: Unsupported) -> None:
        """It cannot lower the model; raises when nothing else of some board may take it."""
        for board, spots in zip(chains, self._spots(chains), strict=True):
            if spot.cpu and not self._taken.intersection(spots):
                raise error
            if not spot.cpu and spots[-1:] == [spot]:
                step = chains[board][self.model][-1]
                other = f"or place it on [{step.device}, cpu]"
                raise Unsupported(
                    f"{step.device} cannot take the model, and nothing else may ({step.why}): {error.what}",
                    where=f"board {board}: {error.where}", found=error.found, allowed=error.allowed,
                    remedy=f"{error.remedy}; {other}" if error.remedy else other,
                ) from error  # fmt: skip
        self._refused[spot] = self._reason(error)

    def decisions(self, spot: Spot, chains: Mapping[str, Mapping[str, Chain]]) -> Iterator[tuple[str, str]]:
        """What brought the model to a target that took it, and what was asked before, for the boards that differ."""
        found: dict[tuple[str, str], list[str]] = {}
        for board, models in chains.items():
            for decision in self._decision(spot, models[self.model]):
                found.setdefault(decision, []).append(board)
        for (choice, rule), boards in found.items():
            yield choice, f"board {', '.join(boards)}: {rule}"

    def _decision(self, spot: Spot, steps: Chain) -> Iterator[tuple[str, str]]:
        mine = next((step for step in steps if step.spot == spot), None)
        if mine is None or self._taken.intersection(step.spot for step in steps[: steps.index(mine)]):
            return  # a CPU's copy of what another device has
        before = steps[: steps.index(mine)]
        if before:
            names = " or ".join(step.device for step in before)
            rule = "; ".join(f"{step.spot.backend} refuses it: {self._refused[step.spot]}" for step in before)
            yield f"device={mine.device}, not {names}", rule
        elif mine.chosen or not spot.cpu:
            yield f"device={mine.device}", mine.why

    def _spots(self, chains: Mapping[str, Mapping[str, Chain]]) -> list[list[Spot]]:
        return [[step.spot for step in models[self.model]] for models in chains.values()]

    def _reason(self, error: Unsupported) -> str:
        lines = str(error).replace(f"{self._where}: ", "").splitlines()
        return "; ".join(line.strip() for line in lines)[:_REASON_MAX]
