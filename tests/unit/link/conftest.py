# SPDX-License-Identifier: Apache-2.0
"""Arenas for the link tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dpfedge.link import Arena, LinkSpec

MakeArena = Callable[..., Arena]


@pytest.fixture
def make_arena() -> Iterator[MakeArena]:
    """Makes an arena with one link `left.right`; keyword arguments are LinkSpec's."""
    arenas: list[Arena] = []

    def make(*, requests: int = 4, **spec: object) -> Arena:
        values = {"slots": 4, "slot_bytes": 4096, "policy": "fail"} | spec
        arenas.append(Arena.create([LinkSpec("left.right", "left", "right", **values)], requests=requests))  # type: ignore[arg-type]
        return arenas[-1]

    yield make
    for arena in arenas:
        arena.close()
