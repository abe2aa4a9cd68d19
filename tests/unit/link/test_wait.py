# SPDX-License-Identifier: Apache-2.0
"""Waiting for a message: what is there, what comes during the look, what comes during the sleep, and nothing."""

from __future__ import annotations

import threading
import time

import pytest

from dpfedge.errors import UsageError
from dpfedge.link import Producer

from .conftest import MakeArena

FOREVER_NS = 3600 * 1_000_000_000


def _send(producer: Producer, turn: int) -> None:
    producer.send(producer.loan(8), kind=1, request=1, turn=turn)


@pytest.mark.parametrize("spin_ns", [None, 0, 100_000, FOREVER_NS])
def test_wait__takes_what_is_there(make_arena: MakeArena, spin_ns: int | None) -> None:
    """In the order sent, without a sleep."""
    arena = make_arena()
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    for turn in (1, 2):
        _send(producer, turn)

    for turn in (1, 2):
        lease = consumer.wait(None, spin_ns)
        assert lease is not None
        assert lease.turn == turn
        lease.release()


@pytest.mark.parametrize("spin_ns", [None, 0, 1000, FOREVER_NS])
def test_wait__gets_what_another_thread_sends(make_arena: MakeArena, spin_ns: int | None) -> None:
    """The GIL is released while it looks and while it sleeps."""
    arena = make_arena()
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    thread = threading.Timer(0.02, _send, (producer, 7))
    thread.start()

    lease = consumer.wait(timeout_ns=FOREVER_NS, spin_ns=spin_ns)
    thread.join()

    assert lease is not None
    assert lease.turn == 7


@pytest.mark.parametrize("spin_ns", [None, 0, 1000, FOREVER_NS])
def test_wait__ends_with_its_timeout(make_arena: MakeArena, spin_ns: int | None) -> None:
    """None, never before the time; a long look does not outlast it."""
    consumer = make_arena().consumer("left.right", 2)
    for _ in range(4):  # looks, rests, looks
        start = time.monotonic_ns()
        assert consumer.wait(2_000_000, spin_ns=spin_ns) is None
        assert time.monotonic_ns() - start >= 2_000_000


def test_wait__finds_a_message_however_looks_went_before(make_arena: MakeArena) -> None:
    """Looks that found nothing, then some that did: no message is passed over."""
    arena = make_arena()
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    for turn in range(40):
        assert consumer.wait(1) is None
        _send(producer, turn)
        lease = consumer.wait(None)
        assert lease is not None
        assert lease.turn == turn
        lease.release()


def test_wait__refuses_what_it_does_not_know(make_arena: MakeArena) -> None:
    """Names, numbers and counts of arguments."""
    consumer = make_arena().consumer("left.right", 2)

    for arguments, names in (((), {}), ((1, 2, 3), {}), ((1,), {"timeout_ns": 1}), ((1,), {"spins": 1})):
        with pytest.raises(TypeError, match="wait"):
            consumer.wait(*arguments, **names)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="spin_ns"):
        consumer.wait(1, -1)
    with pytest.raises(UsageError, match="timeout_ns"):
        consumer.wait(-1)


@pytest.mark.parametrize("spin_ns", [None, 0, FOREVER_NS])
def test_bell__wait_ends_with_its_timeout(make_arena: MakeArena, spin_ns: int | None) -> None:
    """The same look, at a bell."""
    bell = make_arena().bell("left")
    for _ in range(4):
        start = time.monotonic_ns()
        assert bell.wait(bell.value(), 2_000_000, spin_ns) == bell.value()
        assert time.monotonic_ns() - start >= 2_000_000
