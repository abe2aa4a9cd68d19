# SPDX-License-Identifier: Apache-2.0
"""Boards: a board file or id goes in, a `Board`, and whether a machine is that board, come out.

Boards are data; nothing here knows one of them. It opens no device and probes nothing by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dpfedge.config.units import bytes_per_second, duration_ms, size_bytes
from dpfedge.errors import BoardError, ConfigError
from dpfedge.hardware.boardfile import board_data, match_terms, own_folder
from dpfedge.hardware.probe import Machine
from dpfedge.records import dataclass

__all__ = [
    "AUTO",
    "VARIABLE",
    "Board",
    "BoardDevice",
    "Match",
    "board_files",
    "boards",
    "find_board",
    "load_board",
    "match_board",
]

AUTO = "auto"
"""The name that stands for the most specific board that matches."""
VARIABLE = "DPFEDGE_BOARDS"
"""Environment variable with a folder of more board files; its boards win over installed ones of the same id."""


@dataclass(frozen=True, slots=True)
class BoardDevice:
    """A device the board has, by its documents. `memory_bytes` is None where it shares the board's memory."""

    id: str
    kind: str
    backends: tuple[str, ...]
    """The preferred one first."""
    name: str = ""
    arch: str | None = None
    features: frozenset[str] = frozenset()
    count: int = 1
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """A known machine."""

    id: str
    title: str
    vendor: str
    match: Mapping[str, Any]
    devices: tuple[BoardDevice, ...]
    placement: Mapping[str, Mapping[str, Any]]
    """Kind of stage → `threads`, `cores`, `nice`, `fifo`, `spin_ns`, `isolation`, as far as given; and `device`: ids of
    the devices that may take its model, the preferred one first."""
    memory_bytes: int | None
    """Main memory of the smallest module that matches."""
    bandwidth: int | None
    """Bytes per second of main memory at peak."""
    power: Mapping[str, Any]
    thermal: Mapping[str, Any]
    path: str


@dataclass(frozen=True, slots=True)
class Match:
    """Whether a machine is a board: what was looked for, what was found, and how specific the answer is."""

    ok: bool
    wanted: tuple[str, ...]
    found: tuple[str, ...]
    rank: tuple[int, int] = (0, 0)
    """Higher is more specific: the kind of evidence, then how much of the name a device tree pattern fixes."""


def board_files() -> Mapping[str, Path]:
    """Board id → its file, sorted by id: of $DPFEDGE_BOARDS, and of the installed package or else the source tree."""
    files: dict[str, Path] = {}
    for folder in (*_extra_folders(), own_folder()):
        for path in folder.glob("[!_.]*.yaml"):
            files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def _extra_folders() -> tuple[Path, ...]:
    folders = tuple(Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part)
    for folder in folders:
        if not folder.is_dir():
            raise BoardError("no such folder", where=f"${VARIABLE}", found=str(folder))
    return folders


def boards() -> list[Board]:
    """Every known board, by id; ConfigError when one of the files breaks the schema."""
    return [read_board(path) for path in board_files().values()]


def load_board(id: str) -> Board:
    """The board called `id`; BoardError lists the known ones and the nearest of them."""
    files = board_files()
    if id not in files:
        raise BoardError(
            "there is no such board",
            where=f"board {id}",
            allowed=", ".join([*files, AUTO]),
            remedy=_nearest(id, files) or f"put {id}.yaml into a folder named in ${VARIABLE}",
        )
    return read_board(files[id])


def _nearest(id: str, files: Mapping[str, Path]) -> str | None:
    from dpfedge.config import nearest  # with the YAML reader; only for this message

    return nearest(id, [*files, AUTO])


def read_board(path: Path) -> Board:
    """The board in one file, checked against `boards/_schema.yaml`."""
    data = board_data(path)
    ids = [item["id"] for item in data["devices"]]
    return Board(
        id=path.stem,
        title=data["title"],
        vendor=data["vendor"],
        match=data["match"],
        devices=tuple(_device(item) for item in data["devices"]),
        placement={stage: _place(item, ids, f"{path}: placement.{stage}") for stage, item in data["placement"].items()},
        memory_bytes=size_bytes(data["memory"]) if "memory" in data else None,
        bandwidth=bytes_per_second(data["bandwidth"]) if "bandwidth" in data else None,
        power=data.get("power", {}),
        thermal=data.get("thermal", {}),
        path=str(path),
    )


def _device(item: Mapping[str, Any]) -> BoardDevice:
    return BoardDevice(
        id=item["id"],
        kind=item["kind"],
        backends=tuple(item["backends"]),
        name=item.get("name", ""),
        arch=item.get("arch"),
        features=frozenset(item.get("features", ())),
        count=item.get("count", 1),
        memory_bytes=size_bytes(item["memory"]) if "memory" in item else None,
    )


def _place(item: Mapping[str, Any], ids: Sequence[str], where: str) -> Mapping[str, Any]:
    place = {key: value for key, value in item.items() if key not in ("spin", "device")}
    if "spin" in item:
        place["spin_ns"] = round(duration_ms(item["spin"]) * 1e6)
    if "device" in item:
        place["device"] = tuple([item["device"]] if isinstance(item["device"], str) else item["device"])
        if unknown := [id for id in place["device"] if id not in ids]:
            raise ConfigError("the board has no such device", where=where, found=unknown[0], allowed=", ".join(ids))
    return place


def match_board(board: Board, machine: Machine) -> Match:
    """Compare a board's `match` with a machine; every key must hold."""
    return _match(board.match, machine)


def _match(terms: Mapping[str, Any], machine: Machine) -> Match:
    tests = {"device_tree": _match_tree, "device_tree_not": _match_tree_not, "pci": _match_pci, "arch": _match_arch}
    matches = [tests[key](wanted, machine) for key, wanted in terms.items() if key in tests]
    return Match(
        ok=all(match.ok for match in matches),
        wanted=tuple(text for match in matches for text in match.wanted) or ("any machine",),
        found=tuple(text for match in matches for text in match.found),
        rank=max((match.rank for match in matches), default=(0, 0)),
    )


def _match_tree(patterns: Sequence[str], machine: Machine) -> Match:
    hits = [_fixed(pattern) for pattern in patterns if _entries(pattern, machine)]
    found = f"device tree {', '.join(machine.compatible)}" if machine.compatible else "no device tree"
    return Match(bool(hits), (f"device tree compatible {' or '.join(patterns)}",), (found,), (3, max(hits, default=0)))


def _match_tree_not(patterns: Sequence[str], machine: Machine) -> Match:
    hits = [entry for pattern in patterns for entry in _entries(pattern, machine)]
    return Match(not hits, (f"no device tree entry {' or '.join(patterns)}",), tuple(hits))


def _fixed(pattern: str) -> int:
    # Twice the fixed characters, and one more for a pattern that leaves nothing open.
    return 2 * len(pattern.replace("*", "")) + ("*" not in pattern)


def _entries(pattern: str, machine: Machine) -> list[str]:
    return [entry for entry in machine.compatible if fnmatchcase(entry, pattern)]


def _match_pci(ids: Sequence[str], machine: Machine) -> Match:
    found = [f"{device.name} ({device.id})" for device in machine.displays] or ["no PCI display device"]
    ok = any(device.id in ids for device in machine.displays)
    return Match(ok, (f"PCI device {' or '.join(ids)}",), tuple(found), (2, 0))


def _match_arch(names: Sequence[str], machine: Machine) -> Match:
    return Match(machine.arch in names, (f"CPU architecture {' or '.join(names)}",), (machine.arch,), (1, 0))


def find_board(name: str, machine: Machine) -> Board:
    """The board called `name`, or for `auto` the most specific one the machine is.

    BoardError when the machine is not that board: it says what was looked for, what was found and what to do.
    """
    if name == AUTO:
        return _best(machine)
    board = load_board(name)
    match = match_board(board, machine)
    if match.ok:
        return board
    ways = f"--board {AUTO} (here: {_best(machine).id}) or --board host"
    raise BoardError(
        f"this machine is not {board.title}: looked for {', and '.join(match.wanted)}",
        wanted=match.wanted,
        where=f"board {board.id}",
        found=machine.describe(),
        remedy=f"run it on that board, or choose this machine with {ways}",
    )


def _best(machine: Machine) -> Board:
    # Choosing reads every board's `match`; the rest is checked of the chosen one alone, to stay within the bind time.
    found: list[tuple[tuple[int, int], Path]] = []
    for path in board_files().values():
        terms = match_terms(path)
        if "asked" not in terms and (match := _match(terms, machine)).ok:
            found.append((match.rank, path))
    if not found:
        raise BoardError(
            "no board matches", where=f"board {AUTO}", found=machine.describe(), remedy="install host.yaml"
        )
    return read_board(max(found, key=lambda item: item[0])[1])
