# SPDX-License-Identifier: Apache-2.0
"""Bells and the request table."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from dpfedge.errors import Busy, UsageError

from .conftest import MakeArena


def test_wait__returns_at_once_when_something_was_rung(make_arena: MakeArena) -> None:
    """Nothing rung between reading the value and sleeping is lost."""
    bell = make_arena().bell("left")
    seen = bell.value()
    bell.ring()

    assert bell.wait(seen, None) == seen + 1
    assert bell.value() == seen + 1


@pytest.mark.parametrize("spin_ns", [0, 100_000])
def test_wait__ends_with_its_timeout(make_arena: MakeArena, spin_ns: int) -> None:
    """The unchanged value says so; never before the time."""
    bell = make_arena().bell("left")
    start = time.monotonic_ns()

    assert bell.wait(bell.value(), 5_000_000, spin_ns) == bell.value()
    assert time.monotonic_ns() - start >= 5_000_000


def test_wait__sleeps_until_another_thread_rings(make_arena: MakeArena) -> None:
    """The GIL is released: the ringer runs while this thread sleeps."""
    bell = make_arena().bell("left")
    seen = bell.value()
    thread = threading.Timer(0.02, bell.ring)
    thread.start()

    assert bell.wait(seen, 30_000_000_000) == seen + 1
    thread.join()


def test_wait__several_sleepers(make_arena: MakeArena) -> None:
    """One ring wakes all of them."""
    bell = make_arena().bell("left")
    seen = bell.value()
    threads = [threading.Thread(target=bell.wait, args=(seen, 30_000_000_000)) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    bell.ring()

    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_wait__lets_signal_handlers_run(make_arena: MakeArena) -> None:
    """Ctrl-C works while a stage sleeps."""

    class Interrupted(Exception):
        pass

    def handler(number: int, frame: object) -> None:
        raise Interrupted

    bell = make_arena().bell("left")
    before = signal.signal(signal.SIGUSR1, handler)
    threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        with pytest.raises(Interrupted):
            bell.wait(bell.value(), None)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_send__rings_the_consumer(make_arena: MakeArena) -> None:
    """Each message counts on the consumer's bell and on no other."""
    arena = make_arena()
    left, right = arena.bell("left").value(), arena.bell("right").value()
    producer = arena.producer("left.right", 1)
    producer.send(producer.loan(1), kind=1, request=1)

    assert arena.bell("right").value() == right + 1
    assert arena.bell("left").value() == left


def test_requests__open_until_full(make_arena: MakeArena) -> None:
    """Busy when every place is taken; a closed place is used again under a new key."""
    table = make_arena(requests=2).requests
    first, second = table.open(), table.open(urgency=0)
    with pytest.raises(Busy) as refused:
        table.open()
    assert refused.value.retry_after_s == 1
    assert table.keys() == [first, second]
    assert table.info(second) is not None

    table.close(first)
    third = table.open()

    assert third != first
    assert third & 0xFFFF == first & 0xFFFF
    assert not table.live(first)
    assert table.live(third)
    assert table.info(first) is None


def test_requests__cancel_by_turn(make_arena: MakeArena) -> None:
    """Turns below the bound are cancelled, and the bound never sinks."""
    table = make_arena().requests
    key, other = table.open(), table.open()

    table.cancel(key, 5)
    table.cancel(key, 3)

    assert [table.cancelled(key, turn) for turn in (0, 4, 5, 6)] == [True, True, False, False]
    assert not table.cancelled(other, 0)
    table.cancel(key)
    assert table.cancelled(key, 0xFFFFFFFF)


def test_requests__a_stale_key_is_cancelled(make_arena: MakeArena) -> None:
    """Whoever still works for a closed request finds out; the next request is not touched."""
    table = make_arena(requests=1).requests
    old = table.open()
    table.cancel(old)
    table.close(old)
    table.close(old)
    new = table.open()
    table.cancel(old)

    assert table.cancelled(old, 0)
    assert not table.cancelled(new, 0)
    for nonsense in (0, 1, 0xFFFF, (1 << 64) - 1):
        assert table.cancelled(nonsense, 0)
        assert not table.live(nonsense)


def test_requests__cancel_rings_every_bell(make_arena: MakeArena) -> None:
    """A stage that sleeps learns of it."""
    arena = make_arena()
    bells = [arena.bell(name) for name in arena.stages]
    seen = [bell.value() for bell in bells]
    arena.requests.cancel(arena.requests.open())

    assert all(bell.value() != value for bell, value in zip(bells, seen, strict=True))


def test_requests__wrong_arguments(make_arena: MakeArena) -> None:
    """Numbers out of range are UsageErrors, other types TypeErrors."""
    table = make_arena().requests
    for call in (lambda: table.open(8), lambda: table.cancelled(-1, 0), lambda: table.cancel(1, 1 << 32)):
        with pytest.raises(UsageError, match="out of range"):
            call()
    with pytest.raises(TypeError):
        table.cancelled("x", 0)  # type: ignore[arg-type]
