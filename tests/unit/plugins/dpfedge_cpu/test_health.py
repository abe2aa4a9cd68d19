# SPDX-License-Identifier: Apache-2.0
"""Looks at the machine: what two files say, what they do not, and descriptors that a fork took away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dpfedge_cpu.health import MachineHealth

from dpfedge.backend.api import Health
from dpfedge.errors import BackendError

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    {} kB\n" + "Other: 1 kB\n" * 40


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Half of the memory is free, nothing runs."""
    (tmp_path / "meminfo").write_text(MEMINFO.format(500))
    (tmp_path / "loadavg").write_text("0.00 0.01 0.02 1/100 4242\n")
    return tmp_path


def test_look__follows_its_files(proc: Path) -> None:
    """Without opening them again; more work than cores is all of them."""
    health = MachineHealth(proc)
    assert health.look() == Health(0.0, 0.5)
    (proc / "meminfo").write_text(MEMINFO.format(250))
    (proc / "loadavg").write_text("9999.00 0.01 0.02 1/100 4242\n")
    descriptors = set(os.listdir("/proc/self/fd"))
    assert health.look() == Health(0.0, 0.25)  # the load is that of the last second
    health._load_until = 0.0
    assert health.look() == Health(1.0, 0.25)
    assert set(os.listdir("/proc/self/fd")) == descriptors
    health.close()
    assert health.look() == Health(1.0, 0.25)
    health.close()


def test_look__is_the_machines() -> None:
    """Two shares of this machine."""
    health = MachineHealth()
    found = health.look()
    health.close()
    assert 0 <= found.utilisation <= 1
    assert 0 < found.free_memory <= 1


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("meminfo", "MemTotal: 5 kB\n", "no line MemAvailable:"),
        ("meminfo", "", "no line MemTotal:"),
        ("meminfo", "MemTotal: many kB\n", "MemTotal: without a number"),
        ("meminfo", "MemTotal: 5", "MemTotal: without a number"),
        ("loadavg", "", "no number"),
    ],
)
def test_look__what_the_kernel_does_not_tell(proc: Path, file: str, text: str, found: str) -> None:
    """It is an error with a name, as of any device that does not answer."""
    (proc / file).write_text(text)
    health = MachineHealth(proc)
    with pytest.raises(BackendError, match=f"/proc/{file}.*found {found}"):
        health.look()
    health.close()


def test_look__without_files(tmp_path: Path) -> None:
    """No `/proc` is an OSError, as the sampler takes it."""
    with pytest.raises(FileNotFoundError):
        MachineHealth(tmp_path).look()


def test_look__after_a_fork_that_closed_everything(proc: Path) -> None:
    """The child opens its own: a number it did not open can be anybody's file."""
    health = MachineHealth(proc)
    health.look()
    kept = dict(health._files)
    pid = os.fork()
    if pid == 0:
        good = False
        try:
            for fd in kept.values():
                os.dup2(os.open("/dev/zero", os.O_RDONLY), fd)
            good = health.look() == Health(0.0, 0.5)
        finally:
            os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    health.close()
