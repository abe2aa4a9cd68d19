# SPDX-License-Identifier: Apache-2.0
"""Mapped files as one set of tensors, whatever their format."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import pytest

from dpfedge.compiler.importer.mapped import MappedTensors
from dpfedge.errors import ModelError


@dataclass(frozen=True)
class Toy:
    shape: tuple[int, ...]
    view: memoryview | None = None


class Toys(MappedTensors[Toy]):
    """Two files of no format."""

    missing = "make it again"


def opened(keep_view: bool = False) -> tuple[Toys, list[mmap.mmap]]:
    maps = [mmap.mmap(-1, 64) for _ in range(2)]
    view = memoryview(maps[1]) if keep_view else None
    return Toys(Path("m"), maps, {"a": Toy((2, 3), view)}), maps


def test_tensor__by_name_and_shape() -> None:
    """What is missing or of another shape is named, with the format's own remedy."""
    toys, _ = opened()
    assert toys.tensor("a", (2, 3)) is toys.tensors["a"]
    with pytest.raises(ModelError, match="m: tensor b is missing; make it again"):
        toys.tensor("b", (1,))
    with pytest.raises(ModelError, match=r"m: tensor a has another shape; found \(2, 3\); allowed \(3, 2\)"):
        toys.tensor("a", (3, 2))


def test_close__unmaps_every_file() -> None:
    """At the end of a block; after an error its traceback may still hold views."""
    toys, maps = opened()
    with toys:
        assert not maps[0].closed
    assert [one.closed for one in maps] == [True, True]

    toys, maps = opened()
    with pytest.raises(ZeroDivisionError), toys:
        raise ZeroDivisionError
    assert [one.closed for one in maps] == [False, False]


def test_close__refuses_while_a_view_is_alive() -> None:
    """Nobody reads memory that is gone."""
    toys, maps = opened(keep_view=True)
    kept = toys.tensors["a"]
    with pytest.raises(BufferError):
        toys.close()
    assert kept.view is not None
    kept.view.release()
    toys.close()
    assert maps[1].closed
