# SPDX-License-Identifier: Apache-2.0
"""Arenas: making, attaching, reclaiming, and what is refused."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import struct
from pathlib import Path

import pytest

from dpfedge import _core
from dpfedge.errors import LeaseError, LinkError, UsageError
from dpfedge.link import Arena, LinkSpec

from .conftest import MakeArena

LINK = LinkSpec("left.right", "left", "right", 2, 64)


def test_create__lays_out_what_was_asked() -> None:
    """Another mapping of the same memory finds the same links, stages and messages."""
    specs = [
        LINK,
        LinkSpec("right.sink", "right", "sink", 3, 5000, "newest"),
        LinkSpec("b", "sink", "left", 1, 1, "block", 7),
    ]
    with Arena.create(specs, requests=9) as arena, Arena.attach(arena.fd) as other:
        assert list(other.links.values()) == specs
        assert other.stages == ("left", "right", "sink")
        assert len(other.requests) == 9
        assert other.nbytes == arena.nbytes
        assert arena.nbytes % mmap.PAGESIZE == 0

        producer = arena.producer("left.right", 1)
        loan = producer.loan(5)
        loan.view[:] = b"hello"
        producer.send(loan, kind=1, request=1)
        lease = other.consumer("left.right", 2).receive()
        assert lease is not None
        assert bytes(lease.view) == b"hello"


def test_create__reserves_and_seals() -> None:
    """Every page exists, and nobody can take one away."""
    with Arena.create([LINK], requests=1) as arena:
        info = os.fstat(arena.fd)
        assert arena.sealed
        assert info.st_blocks * 512 >= info.st_size == arena.nbytes
        seals = fcntl.fcntl(arena.fd, fcntl.F_GET_SEALS)
        assert seals & (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(arena.fd, 0)


def test_create__slots_on_pages() -> None:
    """A slot larger than a page begins on one; smaller ones begin on a cache line."""
    specs = [LinkSpec("small", "a", "b", 3, 100), LinkSpec("large", "a", "b", 3, mmap.PAGESIZE + 904)]
    with Arena.create(specs, requests=1) as arena:
        for name, unit in (("small", 64), ("large", mmap.PAGESIZE)):
            producer = arena.producer(name, 1)
            loans = [producer.loan(producer.slot_bytes) for _ in range(3)]
            addresses = [loan.array("u8", (loan.nbytes,)).ctypes.data for loan in loans]
            assert all(address % unit == 0 for address in addresses)


def test_create__more_than_there_is() -> None:
    """The error says how much is needed and how much is free; nothing was touched."""
    huge = LinkSpec("left.right", "left", "right", 1 << 14, 1 << 30)
    with pytest.raises(
        LinkError, match=r"arena: not enough memory; found \d+ bytes free; allowed at least 17592\d+ bytes"
    ):
        Arena.create([huge], requests=1)


def test_create__refused_by_the_kernel() -> None:
    """A limit of the process is reported like a full machine, and no descriptor is left."""
    before = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(
            LinkError, match=r"cannot be reserved: File too large; found \d+ bytes free; allowed at least"
        ):
            Arena.create([LINK], requests=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("specs", "requests", "text"),
    [
        ([], 1, "1..256 stages"),
        ([LINK, LINK], 1, "name appears twice"),
        ([LINK], 0, "1..65535 requests"),
        ([LINK], 65536, "1..65535 requests"),
        ([LinkSpec("x" * 64, "a", "b", 1, 1)], 1, "1..63 bytes"),
        ([LinkSpec("x", "", "b", 1, 1)], 1, "1..63 bytes"),
        ([LinkSpec("x\0y", "a", "b", 1, 1)], 1, "1..63 bytes"),
        ([LinkSpec("x", "a", "b", 0, 1)], 1, "slots out of range"),
        ([LinkSpec("x", "a", "b", 1, 1 << 32)], 1, "slot_bytes out of range"),
        ([LinkSpec("x", "a", "b", 1, 1, "oldest")], 1, "allowed block, fail, newest"),  # type: ignore[arg-type]
    ],
)
def test_create__with_impossible_specs(specs: list[LinkSpec], requests: int, text: str) -> None:
    """Every bound is a UsageError that names what is allowed."""
    with pytest.raises(UsageError, match=text.replace(".", r"\.")):
        Arena.create(specs, requests=requests)


def test_attach__of_something_else(tmp_path: Path) -> None:
    """Files with a name, pipes, closed descriptors, unsealed and foreign memory are refused; no descriptor is left."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8192))
    file, (pipe, pipe_in) = os.open(path, os.O_RDWR), os.pipe()
    unsealed, sealed = os.memfd_create("x", os.MFD_ALLOW_SEALING), os.memfd_create("x", os.MFD_ALLOW_SEALING)
    for fd in (unsealed, sealed):
        os.ftruncate(fd, 8192)
    fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    before = len(os.listdir("/proc/self/fd"))

    for fd, text in ((file, "neither sealed"), (pipe, "neither sealed"), (1000, "cannot be used"),
                     (unsealed, "neither sealed"), (sealed, "not an arena")):  # fmt: skip
        with pytest.raises(LinkError, match=text):
            Arena.attach(fd)
    assert len(os.listdir("/proc/self/fd")) == before
    for fd in (file, pipe, pipe_in, unsealed, sealed):
        os.close(fd)


def test_attach__of_a_changed_directory() -> None:
    """Every number of the header and the link directory is checked before it is used."""
    layout = _core.layout()
    header, ring = layout["dpf_arena_header"], layout["dpf_ring_header"]
    ring_at = header + 2 * layout["dpf_bell"]
    fields = {name.partition(".")[2]: at for name, at in layout.items() if name.startswith("dpf_ring_header.")}
    for at, value in [
        (0, 0), (8, 2), (16, 1 << 40), (28, 0), (32, 1 << 20), (36, 0), (40, 1 << 50), (48, 3), (56, (1 << 64) - 64),
        *((ring_at + fields[name], (1 << 32) - 1) for name in ("producer", "consumer", "slots", "capacity")),
        *((ring_at + fields[name], (1 << 32) - 1) for name in ("policy", "places")),
        *((ring_at + fields[name], (1 << 64) - 64) for name in ("slot_bytes", "stride", "control_at", "entries_at")),
        *((ring_at + fields[name], 1 << 33) for name in ("states_at", "slots_at")),
    ]:  # fmt: skip
        with Arena.create([LINK], requests=1) as arena:
            with mmap.mmap(arena.fd, arena.nbytes) as memory:
                struct.pack_into("<I" if value < 1 << 32 else "<Q", memory, at, value)
            with pytest.raises(LinkError, match="not an arena"):
                Arena.attach(arena.fd)
    assert ring == 256


def test_reclaim__frees_loans_and_leases(make_arena: MakeArena) -> None:
    """The dead producer's loans and the dead consumer's leases end; unread messages wait for the successor."""
    arena = make_arena(slots=3)
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    for turn in range(2):
        producer.send(producer.loan(8), kind=1, request=1, turn=turn)
    loan, lease = producer.loan(8), consumer.receive()
    assert lease is not None

    assert arena.reclaim(1) == {"left.right": 1}
    assert arena.reclaim(2) == {"left.right": 1}
    assert arena.reclaim(2) == {"left.right": 0}

    for use in (lambda: loan.view, lambda: lease.view, lease.array):
        with pytest.raises(LeaseError, match="reclaimed"):
            use()
    successor = arena.consumer("left.right", 3).receive()
    assert successor is not None
    assert successor.turn == 1
    heir = arena.producer("left.right", 4)
    assert {heir.loan(8).slot for _ in range(2)} <= {0, 1, 2}


def test_reclaim__leaves_the_living_alone(make_arena: MakeArena) -> None:
    """Nothing of another owner changes."""
    arena = make_arena()
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    producer.send(producer.loan(8), kind=1, request=1)
    loan, lease = producer.loan(8), consumer.receive()

    assert arena.reclaim(77) == {"left.right": 0}

    assert lease is not None
    assert lease.view.nbytes == loan.view.nbytes == 8


def test_reclaim__late_release_of_the_dead(make_arena: MakeArena) -> None:
    """Objects of a reclaimed owner end without touching the slot's next life."""
    arena = make_arena(slots=1)
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    producer.send(producer.loan(8), kind=1, request=1)
    lease = consumer.receive()
    assert lease is not None
    arena.reclaim(2)
    successor = arena.consumer("left.right", 3)
    producer.send(producer.loan(8), kind=1, request=2)
    other = successor.receive()
    lease.release()

    assert other is not None
    assert arena.stats()["left.right"].in_flight == 1


def test_reclaim__of_nobody(make_arena: MakeArena) -> None:
    """Owner 0 is nobody."""
    arena = make_arena()
    with pytest.raises(UsageError, match="0 is nobody"):
        arena.reclaim(0)
    with pytest.raises(UsageError, match="0 is nobody"):
        arena.producer("left.right", 0)


def test_close__keeps_views_valid(make_arena: MakeArena) -> None:
    """Memory goes with its last user, never under one."""
    arena = make_arena()
    producer = arena.producer("left.right", 1)
    array = producer.loan(8).array("u8", (8,))
    arena.close()
    del producer

    array[:] = 7
    assert array.sum() == 56
    with pytest.raises(LinkError, match="closed"):
        arena.producer("left.right", 1)
    arena.close()


def test_names__unknown(make_arena: MakeArena) -> None:
    """The error lists the names there are."""
    arena = make_arena()
    with pytest.raises(UsageError, match=r"found x; allowed left\.right"):
        arena.producer("x", 1)
    with pytest.raises(UsageError, match="found x; allowed left, right"):
        arena.bell("x")


def test_pending__until_it_is_given_back() -> None:
    """Sent, then received, then released."""
    with Arena.create([LinkSpec("a.b", "a", "b", 4, 64)], requests=1) as arena:
        producer, consumer = arena.producer("a.b", 1), arena.consumer("a.b", 2)
        producer.send(producer.loan(8), kind=1, request=1)
        assert arena.pending("a.b") == 1
        lease = consumer.receive()
        assert arena.pending("a.b") == 1
        assert lease is not None
        lease.release()
        assert arena.pending("a.b") == 0
