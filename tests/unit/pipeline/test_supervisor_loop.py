# SPDX-License-Identifier: Apache-2.0
"""What is ready, what is due and what other threads ask for, one after the other."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from dpfedge.pipeline.supervisor_loop import Loop, readable

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def loop() -> Iterator[Loop]:
    """A loop with nothing to do."""
    one = Loop()
    yield one
    one.close()


def test_watch__calls_for_what_is_readable(loop: Loop) -> None:
    """Until it is forgotten."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        seen: list[bytes] = []
        loop.watch(ours, lambda: seen.append(ours.recv(1)))
        theirs.send(b"ab")
        loop.round(10)
        loop.round(10)
        theirs.send(b"c")
        assert loop.watches(ours)
        loop.forget(ours)
        loop.forget(ours)
        loop.round(0)
        assert not loop.watches(ours)

    assert seen == [b"a", b"b"]


def test_watch__of_what_another_handler_of_the_round_has_replaced(loop: Loop) -> None:
    """A new file with the old one's number is not taken for it."""
    (a, b), (c, d) = os.pipe(), os.pipe()
    seen: list[str] = []

    def swap(mine: int, other: int) -> None:
        seen.append("first")
        loop.forget(mine)
        loop.forget(other)
        loop.watch(other, lambda: seen.append("stale"))

    loop.watch(a, lambda: swap(a, c))
    loop.watch(c, lambda: swap(c, a))
    os.write(b, b"x")
    os.write(d, b"x")
    loop.round(10)
    for fd in (a, b, c, d):
        loop.forget(fd)
        os.close(fd)

    assert seen == ["first"]


def test_after__calls_what_is_due_once(loop: Loop) -> None:
    """In no more than the time it has; what is forgotten is not called."""
    seen: list[str] = []
    loop.after(0.0, lambda: seen.append("now"))
    loop.after(60.0, lambda: seen.append("later"))
    loop.round(10)
    loop.round(0)
    loop.forget_due()
    loop.round(0)

    assert seen == ["now"]


def test_call__of_another_thread_wakes_the_loop(loop: Loop) -> None:
    """In order, on the loop's own thread; also before it waits."""
    seen: list[tuple[int, int]] = []

    def ask() -> None:
        for number in range(3):
            loop.call(lambda number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]

    thread = threading.Thread(target=ask)
    thread.start()
    while len(seen) < 3:
        loop.round(10)
    thread.join()

    assert seen == [(number, threading.get_ident()) for number in range(3)]


def test_call__after_the_end_does_nothing() -> None:
    """Who asks need not know whether it ended."""
    loop = Loop()
    loop.close()
    loop.call(lambda: pytest.fail("called"))


def test_readable__knows_bytes_and_ends() -> None:
    """Both make a read return."""
    ours, theirs = socket.socketpair()
    with ours:
        assert not readable(ours)
        theirs.close()
        assert readable(ours)
