# SPDX-License-Identifier: Apache-2.0
"""Binding on recorded machines with the real CPU backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.binding import bind_here, look
from dpfedge.errors import BindError, BoardError
from dpfedge.package import Package

Build = Callable[..., Package]
Record = Callable[[str], Path]

TARGETS = (
    ("orin", "cpu", ["and", ["board", "orin", "orin-nano"], ["arch", "armv8.2-a"], ["feature", "dotprod"]]),
    ("arm", "cpu", ["and", ["class", "cpu.aarch64"], ["arch", "armv8.2-a"]]),
    ("x86-vnni", "cpu", ["and", ["class", "cpu.x86_64"], ["feature", "vnni"]]),
    ("x86", "cpu", ["and", ["class", "cpu.x86_64"], ["arch", "x86-64-v2"]]),
)


@pytest.mark.parametrize(
    ("machine", "board", "target"),
    [
        ("orin", "orin", "orin"), ("orin-nano", "orin-nano", "orin"), ("thor", "thor", "arm"),
        ("rk3588", "rk3588", "arm"), ("imx95", "imx95", "arm"), ("h100", "h100", "x86-vnni"),
        ("mi300x", "mi300x", "x86-vnni"), ("x86", "host", "x86"),
    ],
)  # fmt: skip
def test_here__binds_recorded_machines(
    build: Build, parts: Any, record: Record, machine: str, board: str, target: str
) -> None:
    """A fleet engineer sees what a machine that is not here would run."""
    package = build(*(parts.target(*item) for item in TARGETS))

    bound = bind_here(package, sysroot=record(machine))
    assert (bound.board.id, bound.targets[0].id, bound.devices["llm"].id) == (board, target, "cpu:0")


def test_here__old_cpu_says_which_instructions_it_lacks(build: Build, parts: Any, record: Record) -> None:
    """A CPU without the package's level is refused by name before an illegal instruction can run."""
    package = build(*(parts.target(*item) for item in TARGETS))

    with pytest.raises(BindError, match=r"target arm: arch: wanted arch armv8\.2-a; found armv8\.0-a \(cpu:0\)"):
        bind_here(package, sysroot=record("no-sys"))


def test_here__memory_of_the_cgroup_counts(build: Build, parts: Any, record: Record) -> None:
    """A container's limit is what a target may use."""
    package = build(parts.target("big", "cpu", ["class", "cpu.x86_64"], memory_bytes=65 << 30))

    with pytest.raises(BindError, match=r"wanted at least 65\.00 GiB; found 64\.00 GiB"):
        bind_here(package, sysroot=record("h100"))


def test_here__wrong_board(build: Build, parts: Any, record: Record) -> None:
    """The board is checked before any target is."""
    with pytest.raises(BoardError, match="this machine is not NVIDIA H100 server"):
        bind_here(build(parts.target(*TARGETS[0])), "h100", sysroot=record("x86"))


def test_look__keeps_machine_board_and_devices(record: Record) -> None:
    """One look gives everything later steps need."""
    here = look(sysroot=record("rk3588"))

    assert (here.machine.arch, here.board.id) == ("aarch64", "rk3588")
    assert [device.kind for device in here.found.devices][:1] == ["cpu.aarch64"]


def test_here__opens_no_socket_and_loads_no_engine(build: Build, parts: Any) -> None:
    """Package open, probe and choice start no process, open no socket and import no onnxruntime."""
    package = build(parts.target("any", "cpu", ["class", "cpu.x86_64", "cpu.aarch64"]))
    code = (
        "import sys\n"
        "banned = ('socket.', 'subprocess.', 'os.exec', 'os.fork', 'os.posix_spawn', 'os.system')\n"
        "def hook(name, args):\n"
        "    if name.startswith(banned): raise SystemExit(f'audit event {name}')\n"
        "sys.addaudithook(hook)\n"
        "from dpfedge.binding import bind_here\n"
        "from dpfedge.package import open_package\n"
        "print(bind_here(open_package(sys.argv[1], check='fast')).targets[0].id)\n"
        "heavy = {'onnxruntime', 'onnx', 'tokenizers', 'asyncio', 'jsonschema', 'yaml', 'numpy'} & set(sys.modules)\n"
        "raise SystemExit(f'imported {heavy}' if heavy else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", code, package.path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "any\n", "")
