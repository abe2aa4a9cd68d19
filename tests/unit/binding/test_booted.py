# SPDX-License-Identifier: Apache-2.0
"""Binding on recordings that emulated machines took of themselves, on two page sizes (`make test-boards`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.binding import bind_here, look
from dpfedge.errors import BindError, BoardError
from dpfedge.hardware.probe import probe
from dpfedge.package import Package

Build = Callable[..., Package]
BOOTED = Path(__file__).parents[2] / "fixtures/booted"
MACHINES = BOOTED.parent / "machines"
BOARDS = {"orin-agx": "orin", "orin-nano": "orin-nano", "rk3588": "rk3588", "thor": "thor"}
PAGES = {"4k": 4096, "16k": 16384}
NAMES = [f"{machine}-{pages}" for machine in BOARDS for pages in PAGES]

each = pytest.mark.parametrize("name", NAMES)


def board_of(name: str) -> str:
    """The id of the board."""
    return BOARDS[name.rpartition("-")[0]]


def test_booted__every_board_on_every_page_size() -> None:
    """A new recording is tested here."""
    assert sorted(path.name for path in BOOTED.iterdir() if path.is_dir()) == sorted(NAMES)


@each
def test_probe__pages_and_device_tree(name: str) -> None:
    """The page size is the booted kernel's, names and accelerators are those of the machine written from documents."""
    machine, pages = probe(BOOTED / name), name.rpartition("-")[2]
    written = probe(MACHINES / name.rpartition("-")[0])

    assert machine.page_bytes == PAGES[pages]
    assert machine.notes == ()
    assert machine.device_tree == written.device_tree
    assert [(gpu.kind, gpu.arch, gpu.drivers) for gpu in machine.accelerators] == [
        (gpu.kind, gpu.arch, gpu.drivers) for gpu in written.accelerators
    ]


@each
def test_bind__auto_takes_the_board_and_its_target(build: Build, parts: Any, name: str) -> None:
    """The device tree of a running kernel names the board; Armv9 code runs where the kernel promises it."""
    package = build(
        parts.target("new", "cpu", ["and", ["class", "cpu.aarch64"], ["arch", "armv9.0-a"]]),
        parts.target("old", "cpu", ["and", ["class", "cpu.aarch64"], ["arch", "armv8.2-a"], ["feature", "int8_dot"]]),
    )

    assert look(sysroot=BOOTED / name).board.id == board_of(name)
    [target] = bind_here(package, sysroot=BOOTED / name).targets
    assert target.id == ("new" if board_of(name) == "thor" else "old")


@each
def test_bind__refuses_other_boards(build: Build, parts: Any, name: str) -> None:
    """By the board asked for, by the board a target is for, and by the architecture."""
    package = build(parts.target("t", "cpu", ["board", "imx95"]), parts.target("x", "cpu", ["class", "cpu.x86_64"]))

    with pytest.raises(BoardError):
        bind_here(package, "imx95", sysroot=BOOTED / name)
    with pytest.raises(BindError) as caught:
        bind_here(package, sysroot=BOOTED / name)
    assert [refusal.field for refusal in caught.value.refusals] == ["board", "class"]  # type: ignore[attr-defined]
