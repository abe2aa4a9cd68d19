# SPDX-License-Identifier: Apache-2.0
"""When loans, leases, views and arrays end, and what a kept one shows."""

from __future__ import annotations

import gc
import os

import pytest

from dpfedge.errors import LeaseError, LinkError, WouldBlock
from dpfedge.link import Arena, Consumer, Producer

from .conftest import MakeArena


def ports(arena: Arena) -> tuple[Producer, Consumer]:
    return arena.producer("left.right", 1), arena.consumer("left.right", 2)


def test_lease__used_after_release(make_arena: MakeArena) -> None:
    """Every way to the bytes is closed; releasing again is allowed."""
    producer, consumer = ports(make_arena())
    producer.send(producer.loan(8), kind=1, request=1)
    lease = consumer.receive()
    assert lease is not None
    view = lease.view

    with lease:
        assert view.nbytes == 8
    lease.release()

    with pytest.raises(ValueError, match="released memoryview"):
        view[0]
    for use in (lambda: lease.view, lease.array, lambda: memoryview(lease), lease.__enter__):
        with pytest.raises(LeaseError, match=r"left\.right: lease was released"):
            use()


def test_lease__is_read_only(make_arena: MakeArena) -> None:
    """A consumer cannot write through what it was given."""
    producer, consumer = ports(make_arena())
    producer.send(producer.loan(8), kind=1, request=1)
    lease = consumer.receive()

    assert lease is not None
    assert lease.view.readonly
    assert not lease.array().flags.writeable


def test_lease__array_kept_past_release(make_arena: MakeArena) -> None:
    """A kept array goes on showing its message: the slot waits for it."""
    arena = make_arena(slots=2)
    producer, consumer = ports(arena)
    loan = producer.loan(8)
    loan.view[:] = b"original"
    producer.send(loan, kind=1, request=1)
    lease = consumer.receive()
    assert lease is not None
    kept = lease.array()[2:]
    lease.release()

    for _ in range(8):
        loan = producer.loan(8)
        loan.view[:] = b"XXXXXXXX"
        producer.send(loan, kind=1, request=2)
        other = consumer.receive()
        assert other is not None
        other.release()

    assert bytes(kept) == b"iginal"
    assert arena.stats()["left.right"].in_flight == 1
    del kept
    gc.collect()
    assert arena.stats()["left.right"].in_flight == 0


def test_loan__array_kept_past_send(make_arena: MakeArena) -> None:
    """A producer that kept an array cannot write into a later message: the slot is not lent again."""
    arena = make_arena(slots=1)
    producer, consumer = ports(arena)
    loan = producer.loan(8)
    kept = loan.array("u8", (8,))
    producer.send(loan, kind=1, request=1)
    lease = consumer.receive()
    assert lease is not None
    lease.release()

    with pytest.raises(WouldBlock):
        producer.loan(8)
    del kept
    assert not producer.loan(8).ended


def test_loan__used_after_send(make_arena: MakeArena) -> None:
    """A loan ends with its message."""
    producer, _ = ports(make_arena())
    loan = producer.loan(8)
    view = loan.view
    producer.send(loan, kind=1, request=1)

    with pytest.raises(ValueError, match="released memoryview"):
        view[0] = 1
    for use in (lambda: loan.view, lambda: loan.array("u8", (8,)), lambda: producer.send(loan, kind=1, request=1)):
        with pytest.raises(LeaseError, match="sent or abandoned"):
            use()


def test_loan__dropped_without_send(make_arena: MakeArena) -> None:
    """A forgotten loan or lease gives its slot back."""
    arena = make_arena(slots=1)
    producer, consumer = ports(arena)
    for _ in range(3):
        loan = producer.loan(8)
        del loan
    producer.send(producer.loan(8), kind=1, request=1)
    for _ in range(2):
        lease = consumer.receive()
        del lease

    assert not producer.loan(8).ended


def test_port__in_a_forked_child(make_arena: MakeArena) -> None:
    """A child cannot end its parent's rights, neither by use nor by dying."""
    arena = make_arena()
    producer, consumer = ports(arena)
    producer.send(producer.loan(1), kind=1, request=1)
    lease, loan = consumer.receive(), producer.loan(1)

    pid = os.fork()
    if pid == 0:
        code = 0
        for use in (lambda: producer.loan(1), consumer.receive, lambda: loan.view):  # type: ignore[union-attr]
            try:
                use()
                code = 1
            except LinkError:
                pass
        del lease, loan, producer, consumer
        gc.collect()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    stats = arena.stats()["left.right"]
    assert (stats.loaned, stats.in_flight) == (1, 1)
    assert lease is not None
    assert lease.view.nbytes == 1
    producer.abandon(loan)
