# SPDX-License-Identifier: Apache-2.0
"""Prints the round trip of a message between two processes over links, sleeping and spinning, beside a pipe.

    python tests/bench/bench_link.py [--rounds N]

Each round: a message of the given size goes over, in place, and a small one comes back. The sender writes the first
and last 8 bytes, the receiver reads them; a pipe must copy all of it. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from dpfedge.link import Arena, Bell, Consumer, Lease, LinkSpec, Producer

SIZES = (64, 4096, 65_536, 1_048_576, 25_000_000)
SPIN_NS = 100_000
STOP = (1 << 32) - 1


def _wait(consumer: Consumer, bell: Bell, spin_ns: int) -> Lease:
    while True:
        seen = bell.value()
        lease = consumer.receive()
        if lease is not None:
            return lease
        bell.wait(seen, None, spin_ns)


def _send(producer: Producer, size: int, turn: int) -> None:
    loan = producer.loan(size)
    view = loan.view
    view[:8] = view[-8:] = turn.to_bytes(8, "little")
    producer.send(loan, kind=1, request=1, turn=turn)


def _read(lease: Lease) -> tuple[int, bytes]:
    turn, view = lease.turn, lease.view
    found = bytes(view[:8]), bytes(view[-8:])
    lease.release()
    return turn, found[1]


def _echo(arena: Arena, spin_ns: int) -> None:
    consumer, producer, bell = arena.consumer("there", 2), arena.producer("back", 2), arena.bell("b")
    while True:
        turn, _ = _read(_wait(consumer, bell, spin_ns))
        _send(producer, 64, turn)
        if turn == STOP:
            os._exit(0)


def _link(size: int, rounds: int, spin_ns: int) -> list[int]:
    links = [LinkSpec("there", "a", "b", 4, size), LinkSpec("back", "b", "a", 4, 64)]
    with Arena.create(links, requests=1) as arena:
        cores = sorted(os.sched_getaffinity(0))
        pid = os.fork()
        if pid == 0:
            _pin(cores[-1:], spin_ns)
            _echo(arena, spin_ns)
        _pin(cores[:1], spin_ns)
        producer, consumer, bell = arena.producer("there", 1), arena.consumer("back", 1), arena.bell("a")

        def trip(turn: int) -> None:
            _send(producer, size, turn)
            _read(_wait(consumer, bell, spin_ns))

        times = _measure(trip, rounds)
        trip(STOP)
        os.waitpid(pid, 0)
        os.sched_setaffinity(0, cores)
        return times


def _pin(cores: list[int], spin_ns: int) -> None:
    # two spinners on one core wait for each other's time slice; sleepers are placed best by the kernel
    if spin_ns:
        os.sched_setaffinity(0, cores)


def _pipe_echo(pipe: Connection) -> None:
    while pipe.recv_bytes():
        pipe.send_bytes(bytes(64))
    os._exit(0)


def _pipe(size: int, rounds: int) -> list[int]:
    here, there = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        _pipe_echo(there)
    data = bytes(size)

    def trip(turn: int) -> None:
        here.send_bytes(data)
        here.recv_bytes()

    times = _measure(trip, rounds)
    here.send_bytes(b"")
    os.waitpid(pid, 0)
    return times


def _measure(trip: Callable[[int], None], rounds: int) -> list[int]:
    times = []
    for turn in range(rounds + rounds // 10):
        start = time.perf_counter_ns()
        trip(turn)
        times.append(time.perf_counter_ns() - start)
    return sorted(times[rounds // 10 :])


def _row(name: str, size: int, times: list[int]) -> None:
    p50, p99 = times[len(times) // 2] / 1000, times[len(times) * 99 // 100] / 1000
    print(f"{name:<14} {size:>10} B   P50 {p50:9.1f} µs   P99 {p99:9.1f} µs")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    rounds = parser.parse_args().rounds
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    for size in SIZES:
        _row("link sleeping", size, _link(size, rounds, 0))
        _row("link spinning", size, _link(size, rounds, SPIN_NS))
        few = max(20, min(rounds, 200_000_000 // size))
        _row("pipe", size, _pipe(size, few))


if __name__ == "__main__":
    main()
