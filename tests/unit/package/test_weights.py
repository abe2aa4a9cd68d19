# SPDX-License-Identifier: Apache-2.0
"""The weight pool: alignment, one copy of equal tensors in the whole package, places that hold the bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpfedge.errors import UsageError
from dpfedge.package import PackageWriter, WeightPool, open_package


def test_add__aligned_and_stored_once(tmp_path: Path) -> None:
    """Large tensors start on a page, small ones on a cache line, equal bytes have one place whatever their dtype."""
    large, small = np.arange(1024, dtype=np.float32), np.arange(5, dtype=np.int8)
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer:
        with WeightPool(writer, "w") as pool:
            arrays = (small, small + 1, large, small.view(np.uint8), large.reshape(32, 32))
            places = [pool.add(array) for array in arrays]
        writer.finish({})

    assert places == [("w", 0, 5), ("w", 64, 5), ("w", 4096, 4096), ("w", 0, 5), ("w", 4096, 4096)]
    with open_package(tmp_path / "p") as package:
        section = package.section("w")
        for array, (_, offset, size) in zip((small, small + 1, large), places, strict=False):
            assert section[offset : offset + size] == array.tobytes()


def test_add__deduplicates_over_pools(tmp_path: Path) -> None:
    """A second model gets the first one's place for equal tensors; a pool without new tensors leaves no section."""
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer:
        with WeightPool(writer, "one") as pool:
            pool.add(b"abc")
        second = WeightPool(writer, "two")
        assert second.add(np.frombuffer(b"abc", np.uint8)) == ("one", 0, 3)
        assert second.close() is None
        writer.add("a", "asset", b"")
        writer.finish({})

    assert [s.name for s in open_package(tmp_path / "p").manifest.sections] == ["one", "a"]


def test_add__empty_tensor(tmp_path: Path) -> None:
    """A tensor without elements has a place of size 0."""
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer, WeightPool(writer, "w") as pool:
        assert pool.add(np.zeros((0, 4), np.float32)) == ("w", 0, 0)


def test_add__after_close(tmp_path: Path) -> None:
    """A closed pool takes nothing more."""
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer:
        pool = WeightPool(writer, "w")
        pool.close()
        with pytest.raises(UsageError, match="closed"):
            pool.add(b"x")
