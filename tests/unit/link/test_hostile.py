# SPDX-License-Identifier: Apache-2.0
"""A peer that scribbles over the arena: errors are possible, crashes and foreign memory are not."""

from __future__ import annotations

import mmap
import os
import random
import struct

import pytest

from dpfedge import _core
from dpfedge.errors import LinkError
from dpfedge.link import Arena, Descriptor, LinkSpec

ENTRIES = _core.layout()["dpf_ring_header.entries_at"]


def _use(arena: Arena, chance: random.Random) -> None:
    producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
    for _ in range(8):
        try:
            loan = producer.loan(chance.randrange(200))
            loan.view[:] = bytes(loan.nbytes)
            producer.send(loan, kind=1, request=1)
            lease = consumer.receive()
            if lease is not None:
                assert lease.nbytes <= 256
                assert lease.array().nbytes <= 256
                lease.release()
        except LinkError:
            continue


def test_scribble__anywhere_between_calls() -> None:
    """Random words anywhere; the child that uses the link lives, and answers with results or link errors only."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            chance = random.Random(11)
            for _ in range(150):
                with Arena.create([LinkSpec("left.right", "left", "right", 3, 256)], requests=2) as arena:
                    with mmap.mmap(arena.fd, arena.nbytes) as memory:
                        for _ in range(chance.randrange(1, 40)):
                            value = chance.choice([0, 1, (1 << 64) - 1, 1 << 63, 1 << 32, chance.getrandbits(64)])
                            struct.pack_into("<Q", memory, 8 * chance.randrange(arena.nbytes // 8), value)
                    try:
                        _use(arena, chance)
                        arena.requests.cancel(arena.requests.open())
                        arena.reclaim(1)
                        arena.stats()
                    except LinkError:
                        continue
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"slot": 4}, {"slot": 0xFFFFFFFF}, {"generation": 2}, {"offset": 4090}, {"nbytes": 0xFFFFFFFF}, {"dtype": 14},
        {"rank": 4}, {"rank": 2, "dtype": 4, "shape": (1 << 31, 1 << 31, 0)}, {"flags": 255},
    ],
)  # fmt: skip
def test_receive__of_a_forged_descriptor(change: dict[str, int]) -> None:
    """It is refused and skipped; the message behind it arrives."""
    with Arena.create([LinkSpec("left.right", "left", "right", 4, 4096)], requests=1) as arena:
        producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
        for turn in range(2):
            producer.send(producer.loan(64), kind=1, request=1, turn=turn)
        ring = _core.layout()["dpf_arena_header"] + 2 * _core.layout()["dpf_bell"]
        with mmap.mmap(arena.fd, arena.nbytes) as memory:
            (at,) = struct.unpack_from("<Q", memory, ring + ENTRIES)
            d = Descriptor.read(memory[at : at + 64])._replace(**change)  # type: ignore[arg-type]
            last = (d.dtype, d.rank | d.urgency << 4, d.kind, d.flags)
            memory[at : at + 64] = struct.pack("<3Q6I3I4B", *d[:9], *d.shape, *last)

        with pytest.raises(LinkError, match=r"left\.right: a message makes no sense"):
            consumer.receive()
        lease = consumer.receive()

        assert lease is not None
        assert lease.turn == 1
        assert arena.stats()["left.right"].corrupt == 1


def test_positions__impossible() -> None:
    """Head and tail that cannot be: one error, then the link works again."""
    with Arena.create([LinkSpec("left.right", "left", "right", 4, 64)], requests=1) as arena:
        producer, consumer = arena.producer("left.right", 1), arena.consumer("left.right", 2)
        layout = _core.layout()
        ring = layout["dpf_arena_header"] + 2 * layout["dpf_bell"]
        with mmap.mmap(arena.fd, arena.nbytes) as memory:
            (control,) = struct.unpack_from("<Q", memory, ring + layout["dpf_ring_header.control_at"])
            struct.pack_into("<Q", memory, control + layout["dpf_control.place"], 1 << 40)
        loan = producer.loan(1)

        with pytest.raises(LinkError, match="overwritten"):
            producer.send(loan, kind=1, request=1)
        producer.send(loan, kind=1, request=1)

        assert consumer.receive() is not None
