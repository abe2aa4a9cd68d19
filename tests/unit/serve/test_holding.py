# SPDX-License-Identifier: Apache-2.0
"""What a process holds of the packages it maps."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dpfedge.errors import Unavailable
from dpfedge.package import Package, PackageWriter, WeightPool, open_package
from dpfedge.serve.holding import holdings

SIZE = 1 << 20


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package with a mebibyte of weights, opened, none of it touched."""
    path = tmp_path / "a package.dpfbin"
    with PackageWriter(path, name="small", version="1.2") as writer:
        with WeightPool(writer, "weights") as pool:
            pool.add(np.arange(SIZE, dtype=np.uint8))
        writer.finish({})
    return open_package(path, check="fast")


def test_holdings__of_this_process(package: Package) -> None:
    """The package is named; its weights count once they are read."""
    path = str(package.path)
    sum(package.section("weights")[::4096])

    held = holdings(os.getpid())[path]
    assert (held["name"], held["replaced"]) == ("small 1.2", False)
    assert held["sections"]["weights"]["mapped"] >= SIZE
    assert held["sections"]["weights"]["rss"] >= SIZE


def test_holdings__of_a_package_that_was_replaced(package: Package) -> None:
    """The process keeps what it opened; the file of that name is another one."""
    with package:
        package.path.unlink()

        assert holdings(os.getpid())[str(package.path)] == {"name": None, "replaced": True, "sections": {}}


def test_holdings__of_a_damaged_package(package: Package) -> None:
    """A file that only begins like a package is passed over."""
    with package:
        package.path.chmod(0o644)
        with package.path.open("r+b") as file:
            file.seek(20)
            file.write(b"damage")

        assert str(package.path) not in holdings(os.getpid())


def test_holdings__of_a_process_that_ended() -> None:
    """Nobody has the largest process id."""
    with pytest.raises(Unavailable, match="memory of the process cannot be read"):
        holdings(1 << 22)
