# SPDX-License-Identifier: Apache-2.0
"""A board's placement, as far as this process may follow it."""

from __future__ import annotations

import os

import pytest

from dpfedge.pipeline.placement import Place, loading_cores, place


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process may use cores 0 to 3."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, Place(1, (), 0, 0)),
        ({}, Place(1, (), 0, 0)),
        ({"threads": 3}, Place(3, (), 0, 0)),
        ({"threads": 9}, Place(4, (), 0, 0)),
        ({"threads": 0}, Place(1, (), 0, 0)),
        ({"threads": 4, "cores": [2, 3]}, Place(2, (2, 3), 0, 0)),
        ({"threads": 4, "cores": [3, 4, 5, 6]}, Place(1, (3,), 0, 0)),
        ({"threads": 2, "cores": [8, 9]}, Place(2, (), 0, 0)),
        ({"nice": 5, "spin_ns": 20000}, Place(1, (), 5, 20000)),
        ({"isolation": "thread", "fifo": 50}, Place(1, (), 0, 0, "thread", 50)),
    ],
)
def test_place__is_what_the_process_may_use_of_the_boards(wanted: dict[str, object] | None, found: Place) -> None:
    """Never more threads than cores; cores that are not ours are left out, and without any the kernel chooses."""
    assert place("llm", {} if wanted is None else {"llm": wanted, "voice": {"threads": 2}}) == found


@pytest.mark.usefixtures("cores")
def test_place__of_a_stage_with_a_name_of_its_own_is_its_kinds() -> None:
    """Boards know kinds; a pipeline may call a stage as it likes."""
    placement = {"llm": {"threads": 3}, "small": {"threads": 2}}

    assert place("answer", placement, "llm").threads == 3
    assert place("small", placement, "llm").threads == 2
    assert place("answer", placement, "camera").threads == 1


@pytest.mark.usefixtures("cores")
@pytest.mark.parametrize(
    ("name", "heaviest", "stages", "own", "found"),
    [
        ("voice", "llm", 5, (), (1, 2, 3)),
        ("llm", "llm", 5, (), ()),
        ("voice", "", 5, (), ()),
        ("voice", "llm", 4, (), ()),
        ("voice", "llm", 5, (2,), ()),
    ],
)
def test_loading_cores__leave_one_to_the_heaviest(
    name: str, heaviest: str, stages: int, own: tuple[int, ...], found: tuple[int, ...]
) -> None:
    """Only at the start of all, where cores are short, and where the board chose none."""
    assert loading_cores(name, heaviest, stages, own) == found


def test_loading_cores__of_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing to share out."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5})
    assert loading_cores("voice", "llm", 4, ()) == ()
