# SPDX-License-Identifier: Apache-2.0
"""A lock that many share or one has alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from dpfedge_cuda.turns import Turns


def test_shared__beside_each_other() -> None:
    """Two are inside at once."""
    turns, both = Turns(), threading.Barrier(2)

    def inside() -> bool:
        with turns.shared:
            return both.wait(60) >= 0

    with ThreadPoolExecutor(2) as pool:
        assert [one.result() for one in [pool.submit(inside) for _ in range(2)]] == [True, True]


def test_alone__with_nobody_inside() -> None:
    """It waits for those inside, and those that come later wait for it."""
    turns, order = Turns(), list[str]()
    inside, leave, wanted = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        with turns.shared:
            inside.set()
            leave.wait(60)
            order.append("shared")

    def alone() -> None:
        inside.wait(60)
        wanted.set()
        assert turns.claim()
        with turns.alone:
            order.append("alone")

    def later() -> None:
        wanted.wait(60)
        while not turns._wanting:
            pass
        leave.set()
        with turns.shared:
            order.append("later")

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(act) for act in (first, alone, later)]:
            done.result(60)
    assert order == ["shared", "alone", "later"]


def test_claim__not_while_something_loads() -> None:
    """A load may take minutes: no capture waits for it, and runs go on; a load waits for a capture."""
    turns, order = Turns(), list[str]()
    with turns.loading:
        assert not turns.claim()
        with turns.shared:
            order.append("run")
    assert turns.claim()
    with ThreadPoolExecutor(1) as pool:

        def load() -> None:
            with turns.loading:
                order.append("load")

        with turns.alone:
            done = pool.submit(load)
            order.append("capture")
        done.result(60)
    assert order == ["run", "capture", "load"]


def test_alone__that_an_interrupt_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim ends with it."""
    turns = Turns()
    inside, leave = threading.Event(), threading.Event()

    def run() -> None:
        with turns.shared:
            inside.set()
            leave.wait(60)

    def interrupted(*args: object) -> bool:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        assert inside.wait(60)
        assert turns.claim()
        monkeypatch.setattr(turns._changed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), turns.alone:
            pass
        monkeypatch.undo()
        leave.set()
        done.result(60)
    with turns.shared:
        pass
