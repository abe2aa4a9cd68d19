# SPDX-License-Identifier: Apache-2.0
"""Loans, leases and policies, in one process."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from dpfedge.errors import LeaseError, LinkError, LinkTimeout, PeerGone, UsageError, WouldBlock
from dpfedge.link import LAST, PARTIAL, Arena, Consumer, Producer
from dpfedge.tensors import DTYPE_CODES, DTYPES, TensorSpec

from .conftest import MakeArena

LEFT, RIGHT = 1, 2


def ports(arena: Arena) -> tuple[Producer, Consumer]:
    return arena.producer("left.right", LEFT), arena.consumer("left.right", RIGHT)


def test_send__arrives_with_every_field(make_arena: MakeArena) -> None:
    """What the producer says is what the consumer reads."""
    producer, consumer = ports(make_arena())
    loan = producer.loan(64)
    loan.array("i16", (2, 3), 4)[:] = [[1, 2, 3], [4, 5, 6]]

    producer.send(
        loan, kind=9, request=1 << 63, turn=7, dtype=DTYPE_CODES["i16"], shape=(2, 3), offset=4, captured_ns=11,
        deadline_ns=12, urgency=0, flags=LAST,
    )  # fmt: skip
    lease = consumer.receive()

    assert lease is not None
    assert (lease.kind, lease.request, lease.turn, lease.dtype, lease.shape) == (9, 1 << 63, 7, 7, (2, 3))
    assert (lease.offset, lease.nbytes, lease.captured_ns, lease.deadline_ns) == (4, 12, 11, 12)
    assert (lease.urgency, lease.flags, lease.sequence) == (0, LAST, 0)
    assert lease.array().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert consumer.receive() is None


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bf16"])
def test_array__has_the_dtype_of_every_code(make_arena: MakeArena, name: str) -> None:
    """The core's dtype table and `dpfedge.tensors` name the same things."""
    producer, consumer = ports(make_arena())
    loan = producer.loan(64)
    assert loan.array(name, (3,)).dtype == TensorSpec("x", name).numpy

    producer.send(loan, kind=1, request=1, dtype=DTYPE_CODES[name], shape=(3,))
    lease = consumer.receive()

    assert lease is not None
    assert lease.array().dtype == TensorSpec("x", name).numpy
    assert lease.nbytes == 3 * TensorSpec("x", name).numpy.itemsize


def test_array__of_a_dtype_numpy_lacks(make_arena: MakeArena) -> None:
    """bf16 travels, and its bytes are read through the view."""
    producer, consumer = ports(make_arena())
    producer.send(producer.loan(6), kind=1, request=1, dtype=DTYPE_CODES["bf16"], shape=(3,))
    lease = consumer.receive()

    assert lease is not None
    with pytest.raises(UsageError, match="bf16"):
        lease.array()
    assert lease.view.nbytes == 6


@pytest.mark.parametrize("shape", [(0,), (0, 5), (4, 0, 3)])
def test_array__without_elements(make_arena: MakeArena, shape: tuple[int, ...]) -> None:
    """A message of no bytes keeps its shape."""
    producer, consumer = ports(make_arena())
    producer.send(producer.loan(0), kind=1, request=1, dtype=DTYPE_CODES["f32"], shape=shape)
    lease = consumer.receive()

    assert lease is not None
    assert lease.array().shape == shape
    assert lease.view.nbytes == 0


def test_array__is_in_the_arena(make_arena: MakeArena) -> None:
    """Both sides' arrays are the same memory: nothing was copied, and the counters say so."""
    arena = make_arena()
    producer, consumer = ports(arena)
    loan = producer.loan(16)
    address = loan.array("u8", (16,)).ctypes.data
    producer.send(loan, kind=1, request=1)
    lease = consumer.receive()

    assert lease is not None
    assert lease.array().ctypes.data == address
    assert arena.stats()["left.right"].copies == 0


def test_copy_in__is_counted(make_arena: MakeArena) -> None:
    """The one copy there is has a name and a number."""
    arena = make_arena()
    producer, consumer = ports(arena)
    loan = producer.loan(40)

    producer.copy_in(loan, np.arange(10, dtype=np.float32))
    producer.send(loan, kind=1, request=1, dtype=1, shape=(10,))
    lease = consumer.receive()

    assert lease is not None
    assert lease.array()[9] == 9.0
    stats = arena.stats()["left.right"]
    assert (stats.copies, stats.copied_bytes) == (1, 40)


def test_copy_in__of_more_than_the_loan(make_arena: MakeArena) -> None:
    """Nothing is written when it does not fit."""
    arena = make_arena()
    producer, _ = ports(arena)
    loan = producer.loan(40)

    for offset, data in ((0, bytes(41)), (1, bytes(40)), (-1, b""), (41, b"")):
        with pytest.raises(UsageError, match="does not fit"):
            producer.copy_in(loan, data, offset)
    assert arena.stats()["left.right"].copies == 0


def test_loan__of_another_link(make_arena: MakeArena) -> None:
    """A loan is sent where it came from."""
    first, _ = ports(make_arena())
    second, _ = ports(make_arena())

    with pytest.raises(LeaseError, match="another port"):
        second.send(first.loan(8), kind=1, request=1)


def test_loan__larger_than_a_slot(make_arena: MakeArena) -> None:
    """The message names what was asked and what a slot holds."""
    producer, _ = ports(make_arena(slot_bytes=100))

    with pytest.raises(LinkError, match=r"found 101; allowed 0\.\.100 bytes"):
        producer.loan(101)
    assert producer.loan(100).nbytes == 100


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": 1, "shape": (17,)},
        {"dtype": 1, "shape": (2, 2), "nbytes": 15},
        {"dtype": 1, "shape": (1 << 16, 1 << 16, 1 << 16)},
        {"shape": (1, 1, 1, 1)},
        {"offset": 65},
        {"offset": 64, "nbytes": 1},
        {"dtype": 14},
        {"kind": 256},
        {"turn": -1},
        {"urgency": 8},
        {"flags": 16},
    ],
)
def test_send__of_a_message_that_does_not_fit(make_arena: MakeArena, fields: dict[str, object]) -> None:
    """Nothing is sent, and the loan stays usable."""
    producer, consumer = ports(make_arena())
    loan = producer.loan(64)

    with pytest.raises(UsageError):
        producer.send(loan, **({"kind": 1, "request": 1} | fields))  # type: ignore[arg-type]
    assert consumer.receive() is None
    producer.send(loan, kind=1, request=1)
    assert consumer.receive() is not None


@pytest.mark.parametrize(
    "fields", [{}, {"kind": 1}, {"kind": 1, "request": 1, "colour": 2}, {"kind": "1", "request": 1}]
)
def test_send__with_wrong_arguments(make_arena: MakeArena, fields: dict[str, object]) -> None:
    """Missing, unknown and mistyped arguments are TypeErrors."""
    producer, _ = ports(make_arena())
    loan = producer.loan(64)

    with pytest.raises(TypeError):
        producer.send(loan, **fields)  # type: ignore[arg-type]


def test_publish__shows_a_growing_slot(make_arena: MakeArena) -> None:
    """The consumer reads what is there while the producer writes on; the slot lives until both are done."""
    arena = make_arena(slots=1)
    producer, consumer = ports(arena)
    loan = producer.loan(8)
    samples = loan.array("i16", (4,))
    samples[:2] = [1, 2]
    producer.publish(loan, kind=1, request=1, dtype=7, shape=(2,))
    first = consumer.receive()
    samples[2:] = [3, 4]
    del samples
    producer.send(loan, kind=1, request=1, dtype=7, shape=(4,))
    second = consumer.receive()

    assert first is not None
    assert second is not None
    assert first.flags == PARTIAL
    assert second.flags == 0
    assert first.array().tolist() == [1, 2]
    assert second.array().tolist() == [1, 2, 3, 4]
    assert first.slot == second.slot
    first.release()
    with pytest.raises(WouldBlock):
        producer.loan(8)
    second.release()
    assert not producer.loan(8).ended


def test_publish__more_than_the_ring_holds(make_arena: MakeArena) -> None:
    """Unread partial messages are bounded; the final one always finds a place."""
    producer, consumer = ports(make_arena(slots=1))
    loan = producer.loan(8)
    published = 0

    def publish_until_refused() -> None:
        nonlocal published
        while published < 10_000:
            producer.publish(loan, kind=1, request=1)
            published += 1

    with pytest.raises(WouldBlock, match="partial"):
        publish_until_refused()

    producer.send(loan, kind=1, request=1)
    received = 0
    while (lease := consumer.receive()) is not None:
        lease.release()
        received += 1
    assert received == published + 1


def test_fail__says_that_no_slot_is_free(make_arena: MakeArena) -> None:
    """WouldBlock at once, counted, and over when the consumer released one."""
    arena = make_arena(slots=2)
    producer, consumer = ports(arena)
    for _ in range(2):
        producer.send(producer.loan(1), kind=1, request=1)
    with pytest.raises(WouldBlock, match="all 2 slots"):
        producer.loan(1)
    assert arena.stats()["left.right"].refused == 1

    bell = arena.bell("left")
    seen = bell.value()
    lease = consumer.receive()
    assert lease is not None
    lease.release()

    assert bell.value() != seen  # the producer's stage is told that there is space
    producer.abandon(producer.loan(1))
    assert arena.stats()["left.right"].abandoned == 1


def test_block__waits_for_the_consumer(make_arena: MakeArena) -> None:
    """`loan` sleeps until a slot is released."""
    producer, consumer = ports(make_arena(slots=1, policy="block", block_ns=30_000_000_000))
    producer.send(producer.loan(1), kind=1, request=1)

    def release() -> None:
        time.sleep(0.02)
        lease = consumer.receive()
        assert lease is not None
        lease.release()

    thread = threading.Thread(target=release)
    thread.start()
    loan = producer.loan(1)
    thread.join()
    assert not loan.ended


def test_block__ends_after_its_bound(make_arena: MakeArena) -> None:
    """LinkTimeout when the consumer is there, PeerGone when nobody is."""
    producer, consumer = ports(make_arena(slots=1, policy="block", block_ns=1_000_000))
    loan = producer.loan(1)

    with pytest.raises(LinkTimeout):
        producer.loan(1)
    with pytest.raises(LinkTimeout):
        producer.loan(1, timeout_ns=0)
    consumer.close()
    with pytest.raises(PeerGone):
        producer.loan(1)
    assert not loan.ended


def test_newest__drops_the_oldest_unread(make_arena: MakeArena) -> None:
    """A camera's producer never waits, and every drop is counted."""
    arena = make_arena(slots=3, policy="newest")
    producer, consumer = ports(arena)
    for turn in range(10):
        producer.send(producer.loan(1), kind=1, request=1, turn=turn)

    turns = []
    while (lease := consumer.receive()) is not None:
        turns.append(lease.turn)
        lease.release()
    assert turns == [7, 8, 9]
    assert arena.stats()["left.right"].dropped == 7


def test_newest__leaves_what_is_being_read(make_arena: MakeArena) -> None:
    """A leased frame is not dropped: with every slot leased there is nothing to drop."""
    producer, consumer = ports(make_arena(slots=2, policy="newest"))
    for turn in range(2):
        producer.send(producer.loan(1), kind=1, request=1, turn=turn)
    leases = [consumer.receive(), consumer.receive()]

    with pytest.raises(WouldBlock):
        producer.loan(1)
    assert [lease.turn for lease in leases if lease is not None] == [0, 1]


def test_port__is_exclusive(make_arena: MakeArena) -> None:
    """A second owner is refused until the first closed its port and its rights ended."""
    arena = make_arena()
    producer, consumer = ports(arena)
    with pytest.raises(LinkError, match=r"already has a producer; found owner 1"):
        arena.producer("left.right", 9)
    with pytest.raises(LinkError, match="already has a consumer"):
        arena.consumer("left.right", 9)
    assert (producer.peer, consumer.peer) == (RIGHT, LEFT)

    loan = producer.loan(1)
    producer.close()
    with pytest.raises(LinkError, match="already has a producer"):
        arena.producer("left.right", 9)
    del loan
    assert arena.producer("left.right", 9).owner == 9
    with pytest.raises(LinkError, match="closed"):
        producer.loan(1)


def test_port__second_object_of_one_owner(make_arena: MakeArena) -> None:
    """Dropping one of two port objects of an owner leaves the port taken."""
    arena = make_arena()
    first = arena.producer("left.right", LEFT)
    second = arena.producer("left.right", LEFT)
    del first

    with pytest.raises(LinkError, match="already has a producer"):
        arena.producer("left.right", 9)
    producer_loan = second.loan(1)
    assert not producer_loan.ended
