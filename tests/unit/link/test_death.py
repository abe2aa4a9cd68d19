# SPDX-License-Identifier: Apache-2.0
"""Processes killed with SIGKILL under load: the link goes on, no byte is wrong, no slot is lost."""

from __future__ import annotations

import os
import random
import select
import signal
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dpfedge.errors import WouldBlock
from dpfedge.link import Arena, LinkSpec

PATIENCE_S = 30.0


def _produce(arena: Arena, owner: int) -> None:
    producer, bell = arena.producer("left.right", owner), arena.bell("left")
    turn = 0
    while True:
        seen = bell.value()
        try:
            loan = producer.loan(256)
        except WouldBlock:
            bell.wait(seen, 1_000_000_000)
            continue
        payload = random.randbytes(252)
        loan.view[:] = payload + zlib.crc32(payload).to_bytes(4, "little")
        turn += 1
        producer.send(loan, kind=1, request=owner, turn=turn)


def _consume(arena: Arena, owner: int) -> None:
    consumer, bell = arena.consumer("left.right", owner), arena.bell("right")
    last = (0, 0)
    while True:
        seen = bell.value()
        lease = consumer.receive()
        if lease is None:
            bell.wait(seen, 1_000_000_000)
            continue
        data = bytes(lease.view)
        if zlib.crc32(data[:252]) != int.from_bytes(data[252:], "little") or (lease.request, lease.turn) <= last:
            os._exit(3)
        last = (lease.request, lease.turn)
        lease.release()


@dataclass
class _Side:
    body: Callable[[Arena, int], None]
    owner: int = 0
    pid: int = 0
    pidfd: int = -1

    def start(self, arena: Arena, owner: int) -> None:
        self.owner, self.pid = owner, os.fork()
        if self.pid == 0:
            try:
                self.body(arena, owner)
            finally:
                os._exit(4)
        self.pidfd = os.pidfd_open(self.pid)

    def kill(self, arena: Arena) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert select.select([self.pidfd], [], [], PATIENCE_S)[0]
        os.close(self.pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert status == -signal.SIGKILL  # it had not found a wrong byte and left
        arena.reclaim(self.owner)


def _wait_for_progress(arena: Arena) -> None:
    before = arena.stats()["left.right"].received
    end = time.monotonic() + PATIENCE_S
    while arena.stats()["left.right"].received < before + 3:
        assert time.monotonic() < end, "the link hangs"
        time.sleep(0.0005)


def _run(kills: int) -> None:
    chance = random.Random(7)
    descriptors = len(os.listdir("/proc/self/fd"))
    arena = Arena.create([LinkSpec("left.right", "left", "right", 3, 256)], requests=1)
    sides = [_Side(_produce), _Side(_consume)]
    owner = 0
    for side in sides:
        side.start(arena, owner := owner + 1)
    for count in range(kills):
        time.sleep(chance.random() * 0.002)
        for side in chance.choice([sides, sides[:1], sides[1:]]):
            side.kill(arena)
            side.start(arena, owner := owner + 1)
        if count % 20 == 0:
            _wait_for_progress(arena)
    _wait_for_progress(arena)
    for side in sides:
        side.kill(arena)
    _check_all_free(arena)
    arena.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def _check_all_free(arena: Arena) -> None:
    producer, consumer = arena.producer("left.right", 1 << 31), arena.consumer("left.right", 1 << 31)
    while (lease := consumer.receive()) is not None:
        lease.release()
    stats = arena.stats()["left.right"]
    assert (stats.loaned, stats.in_flight, stats.depth, stats.corrupt) == (0, 0, 0, 0)
    assert len([producer.loan(1) for _ in range(3)]) == 3


def test_kill__a_few_hundred_times() -> None:
    """Producer, consumer or both, at random points."""
    _run(200)


@pytest.mark.slow
def test_kill__thousands_of_times() -> None:
    """DPFEDGE_KILLS times (default 5000)."""
    _run(int(os.environ.get("DPFEDGE_KILLS", "5000")))


def test_kill__of_a_sleeper_wakes_nobody_for_ever(make_arena: Callable[..., Arena]) -> None:
    """A process killed in `wait` leaves the bell usable for its successor."""
    arena = make_arena()
    bell = arena.bell("right")
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            bell.wait(bell.value(), None)
            os._exit(0)
        time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        arena.reclaim(5)

    seen = bell.value()
    bell.ring()
    assert bell.wait(seen, 0) == seen + 1
