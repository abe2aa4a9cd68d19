# SPDX-License-Identifier: Apache-2.0
"""A port whose other end was killed, with nobody to supervise: PeerGone instead of an endless wait."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from dpfedge import _core
from dpfedge.errors import LinkTimeout, PeerGone
from dpfedge.link import Arena, LinkSpec

from .conftest import MakeArena

FOREVER_NS = 3600 * 1_000_000_000  # far beyond the test's own watchdog
LAYOUT = _core.layout()


class Peer:
    """A child process that runs `body` and then sleeps; `kill` waits until it is dead, and reaps it or not."""

    def __init__(self, body: Callable[[], object]) -> None:
        ready, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            kept = body()
            os.write(theirs, b"x")
            while kept is not None:
                signal.pause()
            os._exit(1)
        os.close(theirs)
        assert os.read(ready, 1) == b"x"
        os.close(ready)
        self.reaped = False

    def kill(self, *, reap: bool = True) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        if reap:
            self.end()

    def end(self) -> None:
        if not self.reaped:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.reaped = True


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[], object]], Peer]]:
    """Starts peers that are gone at the end."""
    made: list[Peer] = []

    def start(body: Callable[[], object]) -> Peer:
        made.append(Peer(body))
        return made[-1]

    yield start
    for one in made:
        one.end()


MakePeer = Callable[[Callable[[], object]], Peer]


@pytest.mark.parametrize("reap", [True, False])
def test_wait__dead_producer(make_arena: MakeArena, peer: MakePeer, reap: bool) -> None:
    """What it had sent arrives, then PeerGone; whether its parent has collected it does not matter."""
    arena = make_arena()

    def produce() -> object:
        producer = arena.producer("left.right", 1)
        producer.send(producer.loan(8), kind=1, request=7)
        return producer

    other, consumer = peer(produce), arena.consumer("left.right", 2)
    assert not consumer.gone
    other.kill(reap=reap)
    lease = consumer.wait(None)
    assert lease is not None
    assert (lease.request, consumer.gone) == (7, True)

    with pytest.raises(
        PeerGone, match=r"left\.right: the producer's process is dead; found owner 1; reclaim that owner"
    ):
        consumer.wait(None)


def test_wait__in_short_pieces(make_arena: MakeArena, peer: MakePeer) -> None:
    """A caller that looks at other things in between hears of it as well."""
    arena = make_arena()
    other, consumer = peer(lambda: arena.producer("left.right", 1)), arena.consumer("left.right", 2)
    other.kill()

    def wait() -> None:
        while True:
            assert consumer.wait(7_000_000) is None

    with pytest.raises(PeerGone):
        wait()


def test_wait__producer_dies_meanwhile(make_arena: MakeArena, peer: MakePeer) -> None:
    """In the middle of the sleep."""
    arena = make_arena()
    other, consumer = peer(lambda: arena.producer("left.right", 1)), arena.consumer("left.right", 2)
    threading.Timer(0.2, other.kill).start()

    with pytest.raises(PeerGone):
        consumer.wait(None)


@pytest.mark.parametrize("places", [1, 2])
def test_loan__dead_consumer(peer: MakePeer, places: int) -> None:
    """Any of them: the slowest one holds every slot."""
    others = ("third",) * (places - 1)
    with Arena.create(
        [LinkSpec("left.right", "left", "right", 1, 8, "block", FOREVER_NS, others)], requests=1
    ) as arena:
        producer, stage = arena.producer("left.right", 1), ("right", "third")[places - 1]
        others_seat = [arena.consumer("left.right", 2, "right")] if places == 2 else []
        other = peer(lambda: arena.consumer("left.right", 5, stage))
        producer.send(producer.loan(8), kind=1, request=7)
        threading.Timer(0.1, other.kill).start()
        with pytest.raises(PeerGone, match="the consumer's process is dead; found owner 5"):
            producer.loan(8)
        assert producer.gone
        with pytest.raises(PeerGone):  # also when the time is up before the bound
            producer.loan(8, timeout_ns=1)
        del others_seat

        arena.reclaim(5)
        assert not producer.gone
        lease = arena.consumer("left.right", 6, stage).receive()
        assert lease is not None


def test_loan__dead_consumer_that_is_replaced(make_arena: MakeArena, peer: MakePeer) -> None:
    """A supervisor that reclaims is quicker than the second look: the wait goes on to the successor."""
    arena = make_arena(slots=1, policy="block", block_ns=FOREVER_NS)
    producer = arena.producer("left.right", 1)
    other = peer(lambda: arena.consumer("left.right", 2))
    producer.send(producer.loan(8), kind=1, request=7)

    def supervise() -> None:
        other.kill()
        arena.reclaim(2)
        time.sleep(0.3)
        lease = arena.consumer("left.right", 3).receive()
        assert lease is not None
        lease.release()

    thread = threading.Thread(target=supervise)
    thread.start()
    assert producer.loan(8).slot == 0
    thread.join()


def test_wait__of_the_living(make_arena: MakeArena, peer: MakePeer) -> None:
    """A peer that sleeps, is stopped, or has not come yet is not dead."""
    arena = make_arena(slots=1, policy="block")
    consumer = arena.consumer("left.right", 2)
    assert consumer.wait(300_000_000) is None
    assert not consumer.gone
    other = peer(lambda: arena.producer("left.right", 1))
    os.kill(other.pid, signal.SIGSTOP)
    assert consumer.wait(300_000_000) is None
    assert not consumer.gone


def test_wait__ends_with_a_message(make_arena: MakeArena) -> None:
    """Within one process, after a pause longer than several looks."""
    arena = make_arena()
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    threading.Timer(0.2, lambda: producer.send(producer.loan(1), kind=1, request=9)).start()
    lease = consumer.wait(None, spin_ns=1000)

    assert lease is not None
    assert lease.request == 9


def test_wait__lets_signal_handlers_run(make_arena: MakeArena) -> None:
    """Ctrl-C ends it."""
    consumer = make_arena().consumer("left.right", 2)
    before = signal.signal(signal.SIGUSR1, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            consumer.wait(None)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_loan__of_the_living_times_out(make_arena: MakeArena, peer: MakePeer) -> None:
    """LinkTimeout is for those who live and are slow."""
    arena = make_arena(slots=1, policy="block", block_ns=200_000_000)
    producer = arena.producer("left.right", 1)
    peer(lambda: arena.consumer("left.right", 2))
    producer.send(producer.loan(8), kind=1, request=7)

    with pytest.raises(LinkTimeout):
        producer.loan(8)


PROCESS = LAYOUT["dpf_control.process"]
FIELDS = {name: PROCESS + LAYOUT[f"dpf_process.{name}"] for name in ("owner", "pid", "start", "space")}


@pytest.mark.parametrize(
    ("field", "form", "value", "gone"),
    [
        ("owner", "<I", 9, False),  # signed for another owner: nobody knows
        ("pid", "<I", 0, False),
        ("pid", "<I", 0xFFFFFFFF, False),
        ("start", "<Q", 0, False),
        ("start", "<Q", 1, True),  # the process id came again: another process
        ("space", "<Q", 0, False),
        ("space", "<Q", 12345, False),  # of another container
    ],
)
def test_gone__what_cannot_be_known(make_arena: MakeArena, field: str, form: str, value: int, gone: bool) -> None:
    """Nobody is declared dead by words that do not fit, whoever wrote them."""
    arena = make_arena()
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    with mmap.mmap(arena.fd, arena.nbytes) as memory:
        ring = LAYOUT["dpf_arena_header"] + 2 * LAYOUT["dpf_bell"]
        (control,) = struct.unpack_from("<Q", memory, ring + LAYOUT["dpf_ring_header.control_at"])
        assert struct.unpack_from("<II", memory, control + PROCESS) == (1, os.getpid())
        struct.pack_into(form, memory, control + FIELDS[field], value)

    assert consumer.gone is gone
    del producer
