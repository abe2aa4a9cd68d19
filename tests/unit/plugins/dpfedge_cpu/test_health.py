# SPDX-License-Identifier: Apache-2.0
"""Looks at the machine: what its files say, what they do not, and descriptors that a fork took away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dpfedge_cpu.health import MachineHealth

from dpfedge.backend.api import Health
from dpfedge.errors import BackendError

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    {} kB\n" + "Other: 1 kB\n" * 40


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """`proc` below a root: half of the memory is free, nothing runs."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(MEMINFO.format(500))
    (tmp_path / "proc/loadavg").write_text("0.00 0.01 0.02 1/100 4242\n")
    return tmp_path / "proc"


def test_look__follows_its_files(proc: Path) -> None:
    """Without opening them again; more work than cores is all of them."""
    health = MachineHealth(proc.parent)
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
    health = MachineHealth(proc.parent)
    with pytest.raises(BackendError, match=f"/proc/{file}.*found {found}"):
        health.look()
    health.close()


def test_look__without_files(tmp_path: Path) -> None:
    """No `/proc` is an OSError, as the sampler takes it."""
    with pytest.raises(FileNotFoundError):
        MachineHealth(tmp_path).look()


def test_look__after_a_fork_that_closed_everything(proc: Path) -> None:
    """The child opens its own: a number it did not open can be anybody's file."""
    health = MachineHealth(proc.parent)
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


def test_look__in_a_container(proc: Path) -> None:
    """What its limits leave, where that is less than what the machine has."""
    box = proc.parent / "sys/fs/cgroup"
    box.mkdir(parents=True)
    (proc / "self").mkdir()
    (proc / "self/cgroup").write_text("0::/\n")
    files = {"cgroup.controllers": "", "cpu.max": "1000 100000", "cpu.stat": "usage_usec 1"}
    files |= {"memory.max": "1000", "memory.current": "950", "memory.stat": "inactive_file 150"}
    for name, text in files.items():
        (box / name).write_text(text)
    health = MachineHealth(proc.parent)

    assert health.look() == Health(0.0, pytest.approx(0.2))
    health._groups._last = (health._groups._last[0] - 1, *health._groups._last[1:])
    (box / "cpu.stat").write_text("usage_usec 999999999")
    (box / "memory.current").write_text("200")
    assert health.look() == Health(1.0, 0.5)
    health.close()


@pytest.fixture
def group() -> Iterator[list[Path]]:
    """A real cgroup of a fifth of a core and 256 MiB, of version 2 or 1: the files that move a process into it."""
    mount, limits = Path("/sys/fs/cgroup"), {"memory.max": "256M", "cpu.max": "20000 100000"}
    places = {"": limits}
    if not (mount / "cgroup.controllers").exists():
        places = {"cpu": {"cpu.cfs_quota_us": "20000"}, "cpuacct": {}, "memory": {"memory.limit_in_bytes": "256M"}}
    folders = [mount / place / f"dpfedge-health-{os.getpid()}" for place in places]
    made: list[Path] = []
    try:
        for folder, files in zip(folders, places.values(), strict=True):
            folder.mkdir()
            made.append(folder)
            for name, text in files.items():
                (folder / name).write_text(text)
        yield [folder / "cgroup.procs" for folder in folders]
    except OSError as error:
        pytest.skip(f"no cgroup with limits can be made here: {error}")
    finally:
        for folder in made:
            folder.rmdir()


IN_A_GROUP = """
import os, sys, time
from pathlib import Path
from dpfedge_cpu.health import MachineHealth
from dpfedge.backend.sensors import free_memory
for place in sys.argv[1:]:
    Path(place).write_text(str(os.getpid()))
kept = bytearray(b"1") * (200 << 20)
health = MachineHealth()
health.look()
until = time.monotonic() + 2.5
while time.monotonic() < until:
    pass
print(health.look().free_memory, health._groups.sample().utilisation, free_memory())
"""


def test_look__in_a_real_group(group: list[Path]) -> None:
    """200 of 256 MiB are used, and all of a quota; both are told, whatever the machine has."""
    told = subprocess.run([sys.executable, "-c", IN_A_GROUP, *map(str, group)], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    free, busy, contract = map(float, told.stdout.split())
    assert 0 < free < 56 / 256
    assert 0.5 < busy <= 1
    assert contract == pytest.approx(free, abs=0.02)
