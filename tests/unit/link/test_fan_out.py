# SPDX-License-Identifier: Apache-2.0
"""One producer, several consumers: each gets every message, in the same memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dpfedge.errors import LinkError, PeerGone, UsageError, WouldBlock
from dpfedge.link import Arena, Consumer, LinkSpec, Producer

MakeArena = Callable[..., Arena]
OTHERS = ("second", "third")


def send(producer: Producer, text: bytes) -> None:
    loan = producer.loan(len(text))
    loan.view[:] = text
    producer.send(loan, kind=1, request=7)


def take(consumer: Consumer) -> bytes | None:
    lease = consumer.receive()
    if lease is None:
        return None
    with lease:
        return bytes(lease.view)


def test_every_consumer__gets_every_message_in_place(make_arena: MakeArena) -> None:
    """Three leases on one slot show the same bytes; the slot is free when the last one ended."""
    arena = make_arena(slots=1, others=OTHERS)
    assert arena.links["left.right"].consumers == ("right", *OTHERS)
    assert arena.stages == ("left", "right", *OTHERS)
    producer = arena.producer("left.right", 1)
    consumers = [arena.consumer("left.right", 2 + index, name) for index, name in enumerate(("right", *OTHERS))]

    send(producer, b"hello")
    leases = [consumer.receive() for consumer in consumers]
    assert [lease and bytes(lease.view) for lease in leases] == [b"hello"] * 3
    for lease in leases:
        with pytest.raises(WouldBlock):
            producer.loan(1)
        assert lease is not None
        lease.release()
    send(producer, b"again")
    assert [take(consumer) for consumer in consumers] == [b"again"] * 3
    stats = arena.stats()["left.right"]
    assert (stats.sent, stats.received, stats.depth, stats.in_flight) == (2, 6, 0, 0)


def test_depth__is_each_consumer_s_own(make_arena: MakeArena) -> None:
    """A producer sees the slowest."""
    arena = make_arena(others=OTHERS)
    producer = arena.producer("left.right", 1)
    quick, slow = arena.consumer("left.right", 2, "right"), arena.consumer("left.right", 3, "third")
    send(producer, b"a")
    send(producer, b"b")

    assert take(quick) == b"a"
    assert take(quick) == b"b"
    assert take(slow) == b"a"
    assert (quick.depth, slow.depth, producer.depth) == (0, 1, 2)


def test_newest__drops_only_for_who_is_slow(make_arena: MakeArena) -> None:
    """A camera's frames: the quick consumer sees each, the slow one the newest."""
    arena = make_arena(slots=1, policy="newest", others=("second",))
    producer = arena.producer("left.right", 1)
    quick, slow = arena.consumer("left.right", 2, "right"), arena.consumer("left.right", 3, "second")
    seen = []
    for text in (b"1", b"2", b"3"):
        send(producer, text)
        seen.append(take(quick))

    assert seen == [b"1", b"2", b"3"]
    assert take(slow) == b"3"
    assert arena.stats()["left.right"].dropped == 2


def test_bells__of_all_consumers_ring(make_arena: MakeArena) -> None:
    """Every stage that receives is woken."""
    arena = make_arena(others=OTHERS)
    before = [arena.bell(stage).value() for stage in ("right", *OTHERS)]
    send(arena.producer("left.right", 1), b"x")
    assert [arena.bell(stage).value() for stage in ("right", *OTHERS)] == [value + 1 for value in before]


def test_reclaim__of_one_consumer_leaves_the_others(make_arena: MakeArena) -> None:
    """What the dead one held is free; its successor gets what it had not received."""
    arena = make_arena(others=("second",))
    producer = arena.producer("left.right", 1)
    first, second = arena.consumer("left.right", 2, "right"), arena.consumer("left.right", 3, "second")
    for text in (b"a", b"b"):
        send(producer, text)
    held, lost = first.receive(), second.receive()

    assert arena.reclaim(3) == {"left.right": 1}
    assert held is not None
    assert bytes(held.view) == b"a"
    assert take(arena.consumer("left.right", 4, "second")) == b"b"
    assert lost is not None


def test_block__names_a_consumer_that_is_gone(make_arena: MakeArena) -> None:
    """One empty seat is enough to stop a link that may not drop."""
    arena = make_arena(slots=1, policy="block", block_ns=1000, others=("second",))
    producer = arena.producer("left.right", 1)
    arena.consumer("left.right", 2, "right")
    send(producer, b"x")
    with pytest.raises(PeerGone, match="a consumer is gone"):
        producer.loan(1)
    assert producer.peer == 0


def test_consumer__must_be_named_and_known(make_arena: MakeArena) -> None:
    """Which seat? A link with one consumer need not ask."""
    arena = make_arena(others=OTHERS)
    for stage in (None, "nobody"):
        with pytest.raises(UsageError, match=r"link left\.right: which consumer's port\?.*right, second, third"):
            arena.consumer("left.right", 2, stage)
    seated = arena.consumer("left.right", 2, "second")
    with pytest.raises(LinkError, match="already has a consumer; found owner 2"):
        arena.consumer("left.right", 3, "second")
    assert seated.owner == 2
    assert make_arena().consumer("left.right", 2, "right").peer == 0


@pytest.mark.parametrize("others", [("right",), ("a", "a"), ("a", "b", "c", "d", "e", "f")])
def test_create__refuses_impossible_consumers(others: tuple[str, ...]) -> None:
    """Each once, at most six."""
    with pytest.raises(UsageError, match="cannot have these consumers"):
        Arena.create([LinkSpec("l", "left", "right", 1, 1, others=others)], requests=1)
