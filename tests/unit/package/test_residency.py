# SPDX-License-Identifier: Apache-2.0
"""What a process holds of a package, by section kind."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpfedge.errors import Unavailable
from dpfedge.package import Package, PackageWriter, open_package
from dpfedge.package.residency import Resident, anonymous_bytes, file_mappings, residency

WEIGHTS, ASSET = 64 * mmap.PAGESIZE, 16 * mmap.PAGESIZE


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """Weights and an asset, under a name with a space and letters beyond ASCII."""
    path = tmp_path / "klein, größe 1.dpfbin"
    with PackageWriter(path, name="small", version="1") as writer:
        writer.add("weights", "weights", os.urandom(WEIGHTS))
        writer.add("words", "asset", os.urandom(ASSET))
        writer.finish({})
    return open_package(path, check="fast")


def touch(package: Package, name: str) -> int:
    return sum(package.section(name)[:: mmap.PAGESIZE])


def test_residency__counts_what_was_read(package: Package) -> None:
    """Nothing of a section is resident until it is read; then all of its pages are, under its kind."""
    before = residency(os.getpid(), package)
    touch(package, "words")
    after = residency(os.getpid(), package)

    assert (before["weights"].mapped, before["weights"].rss) == (WEIGHTS, 0)
    assert after["weights"].rss <= 65536  # the kernel maps pages around the one that is read
    assert after["asset"] == Resident(ASSET, ASSET, ASSET, ASSET)
    assert sum(item.mapped for item in after.values()) == -(-package.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def test_residency__shared_with_a_second_process(package: Path | Package) -> None:
    """A page that two processes map is nobody's own, and each has half of it."""
    assert isinstance(package, Package)
    touch(package, "weights")
    code = (
        "import sys; from dpfedge.package import open_package; p = open_package(sys.argv[1], check='fast');"
        "sum(p.section('weights')[::512]); print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(package.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"ready\n"
        found = residency(child.pid, package)["weights"]
        child.stdin.close()

    assert (found.rss, found.private) == (WEIGHTS, 0)
    assert found.pss == pytest.approx(WEIGHTS / 2, rel=0.05)


def test_residency__another_file(package: Package, tmp_path: Path) -> None:
    """A file that took the package's name is not the one that is mapped."""
    touch(package, "words")
    os.replace(package.path, tmp_path / "old")
    package.path.write_bytes(b"new")

    assert residency(os.getpid(), package) == {}
    assert file_mappings(os.getpid(), tmp_path / "old") != []


def test_residency__no_such_process(package: Package) -> None:
    """The process is named."""
    with pytest.raises(
        Unavailable, match="process 999999999: memory of the process cannot be read; found No such file"
    ):
        residency(999999999, package)


def test_anonymous_bytes__grows_with_copies() -> None:
    """A copy of a megabyte shows."""
    before = anonymous_bytes(os.getpid())
    memory = mmap.mmap(-1, 4 << 20)
    memory.write(b"x" * (4 << 20))

    # an anonymous shared mapping belongs to the kernel's own file; a private one is the process's
    private = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    private.write(b"x" * (4 << 20))
    assert anonymous_bytes(os.getpid()) - before >= 4 << 20


def test_resident__adds() -> None:
    """Two mappings of one kind are one sum."""
    assert Resident(1, 2, 3.0, 4) + Resident(1, 1, 1.0, 1) == Resident(2, 3, 4.0, 5)
