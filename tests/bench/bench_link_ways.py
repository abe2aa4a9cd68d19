# SPDX-License-Identifier: Apache-2.0
"""The ways a message goes from one process to another and back: ours, its peers, and what C does without Python.

A size and a number of trips go in, nanoseconds of each trip come out. Each measurement has two processes of its own,
forked from one that has imported no peer. It compares nothing and prints nothing; bench_link.py does.

Of a payload in place only the first 8 bytes are written and read; a way that must copy copies all of it. 64 bytes
come back the same way.
"""

from __future__ import annotations

import ctypes
import importlib.util
import multiprocessing
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from dpfedge.link import Arena, LinkSpec

Step = Callable[[int], None]
BACK = 64
BRIDGE = Path(__file__).parents[2] / "firmware_bridge"
_FORK = multiprocessing.get_context("fork")
_WORD = struct.Struct("<Q")
_LIMIT_S = 300


class Pair(Protocol):
    """Made before the fork; `here` and `there` open the two ends after it."""

    def here(self) -> Step:
        """One trip: send, and wait for the answer."""

    def there(self) -> Step:
        """The other side of one trip: wait, and answer."""


class Links:
    """Two links; the waiting side spins for `spin_ns` and then sleeps."""

    def __init__(self, size: int, spin_ns: int | None) -> None:
        links = [LinkSpec("there", "a", "b", 2, size), LinkSpec("back", "b", "a", 2, BACK)]
        self._arena, self._size, self._spin_ns = Arena.create(links, requests=1), size, spin_ns

    def here(self) -> Step:
        out, back = self._arena.producer("there", 1), self._arena.consumer("back", 1)
        loan, send, wait = out.loan, out.send, back.wait
        put, get, size, spin_ns = _WORD.pack_into, _WORD.unpack_from, self._size, self._spin_ns

        def trip(turn: int) -> None:
            slot = loan(size)
            put(slot, 0, turn)
            send(slot, kind=1, request=1, turn=turn)
            lease = wait(None, spin_ns)
            (found,) = get(lease)
            lease.release()
            assert found == turn

        return trip

    def there(self) -> Step:
        came, out = self._arena.consumer("there", 2), self._arena.producer("back", 2)
        loan, send, wait = out.loan, out.send, came.wait
        put, get, spin_ns = _WORD.pack_into, _WORD.unpack_from, self._spin_ns

        def answer(turn: int) -> None:
            lease = wait(None, spin_ns)
            (found,) = get(lease)
            lease.release()
            assert found == turn
            slot = loan(BACK)
            put(slot, 0, turn)
            send(slot, kind=1, request=1, turn=turn)

        return answer


class Iceoryx:
    """Two publish-subscribe services, with an event service each to sleep on, or polled."""

    def __init__(self, size: int, sleeps: bool) -> None:
        self._name, self._size, self._sleeps = f"dpfedge-bench/{os.getpid()}-{time.monotonic_ns()}", size, sleeps

    def _ends(self, out: str, came: str, size: int) -> tuple[Callable[[int], None], Callable[[int], None]]:
        import iceoryx2 as iox

        iox.set_log_level(iox.LogLevel.Error)
        node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)

        def services(way: str) -> tuple[Any, Any]:
            name = iox.ServiceName.new(f"{self._name}/{way}")
            bytes_of = node.service_builder(name).publish_subscribe(iox.Slice[ctypes.c_uint8]).open_or_create()
            return bytes_of, node.service_builder(name).event().open_or_create() if self._sleeps else None

        (data_out, event_out), (data_in, event_in) = services(out), services(came)
        publisher = data_out.publisher_builder().initial_max_slice_len(size).create()
        subscriber = data_in.subscriber_builder().create()
        notifier = event_out.notifier_builder().create() if self._sleeps else None
        listener = event_in.listener_builder().create() if self._sleeps else None
        word = ctypes.c_uint64.from_address

        def send(turn: int) -> None:
            sample = publisher.loan_slice_uninit(size)
            word(sample.payload_ptr).value = turn
            sample.assume_init().send()
            if notifier is not None:
                notifier.notify()

        def receive(turn: int) -> None:
            sample = None
            while sample is None:
                if listener is not None:
                    listener.blocking_wait()  # first: each message has its event, so nothing is looked for in vain
                sample = subscriber.receive()
            assert word(sample.payload_ptr).value == turn
            sample.delete()

        return send, receive

    def here(self) -> Step:
        send, receive = self._ends("there", "back", self._size)

        def trip(turn: int) -> None:
            send(turn)
            receive(turn)

        return trip

    def there(self) -> Step:
        send, receive = self._ends("back", "there", BACK)

        def answer(turn: int) -> None:
            receive(turn)
            send(turn)

        return answer


class ZeroMQ:
    """A PAIR of sockets over ipc://, with pyzmq's own way to avoid what copies it can."""

    def __init__(self, size: int) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._address, self._size = f"ipc://{self._folder.name}/pair", size

    def _socket(self) -> Any:
        import zmq

        return zmq.Context().socket(zmq.PAIR)

    def here(self) -> Step:
        pair, data = self._socket(), bytes(self._size)
        pair.bind(self._address)

        def trip(turn: int) -> None:
            pair.send(data, copy=False)
            pair.recv(copy=False)

        return trip

    def there(self) -> Step:
        pair, data = self._socket(), bytes(BACK)
        pair.connect(self._address)

        def answer(turn: int) -> None:
            pair.recv(copy=False)
            pair.send(data, copy=False)

        return answer


class UnixSocket:
    """A stream socket pair, read into memory that is already there."""

    def __init__(self, size: int) -> None:
        self._here, self._there = socket.socketpair()
        self._size = size

    @staticmethod
    def _read(end: socket.socket, into: memoryview) -> None:
        at = 0
        while at < len(into):
            at += end.recv_into(into[at:])

    def here(self) -> Step:
        data, into = bytes(self._size), memoryview(bytearray(BACK))

        def trip(turn: int) -> None:
            self._here.sendall(data)
            self._read(self._here, into)

        return trip

    def there(self) -> Step:
        data, into = bytes(BACK), memoryview(bytearray(self._size))

        def answer(turn: int) -> None:
            self._read(self._there, into)
            self._there.sendall(data)

        return answer


class StandardPipe:
    """multiprocessing.Pipe."""

    def __init__(self, size: int) -> None:
        self._here, self._there = multiprocessing.Pipe()
        self._size = size

    def here(self) -> Step:
        data = bytes(self._size)

        def trip(turn: int) -> None:
            self._here.send_bytes(data)
            self._here.recv_bytes()

        return trip

    def there(self) -> Step:
        data = bytes(BACK)

        def answer(turn: int) -> None:
            self._there.recv_bytes()
            self._there.send_bytes(data)

        return answer


@dataclass(frozen=True, slots=True)
class Way:
    """One way: a `pair` of Python processes, or a mode of the C program; `needs` is the module a peer needs."""

    name: str
    sleeps: bool
    pair: Callable[[int], Pair] | None = None
    mode: str = ""
    copies: bool = False
    needs: str = ""

    @property
    def here(self) -> bool:
        """Whether what it needs is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def measure(self, size: int, trips: int, cores: tuple[int, int] | None) -> list[int]:
        """Nanoseconds of each trip after a tenth more that warms up; a core for each side, or the kernel's choice."""
        if self.pair is None:
            return _measure_c(self.mode, size, trips, cores)
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_measure, args=(self.pair, size, trips, cores, theirs))
        process.start()
        theirs.close()
        try:
            return list(ours.recv())
        except EOFError:
            raise RuntimeError(f"{self.name}: ended without an answer, see above") from None
        finally:
            process.join()


def _measure(make: Callable[[int], Pair], size: int, trips: int, cores: tuple[int, int] | None, to: Connection) -> None:
    signal.alarm(_LIMIT_S)
    pair, warm = make(size), trips // 10
    ready_here, ready_there = _FORK.Pipe()
    core_here, core_there = cores or (None, None)
    echo = _FORK.Process(target=_echo, args=(pair, warm + trips, core_there, ready_there))
    echo.start()
    ready_there.close()
    _pin(core_here)
    trip, times = pair.here(), []
    ready_here.send(None)
    ready_here.recv()
    for turn in range(1, warm + trips + 1):
        start = time.perf_counter_ns()
        trip(turn)
        times.append(time.perf_counter_ns() - start)
    ready_here.send(None)
    echo.join()
    to.send(times[warm:])


def _echo(pair: Pair, trips: int, core: int | None, ready: Connection) -> None:
    signal.alarm(_LIMIT_S)
    _pin(core)
    answer = pair.there()
    ready.send(None)
    ready.recv()
    for turn in range(1, trips + 1):
        answer(turn)
    ready.recv()  # the last answer has arrived: the end may go


def _pin(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})


def _measure_c(mode: str, size: int, trips: int, cores: tuple[int, int] | None) -> list[int]:
    command = [str(program()), mode, str(size), str(trips), *map(str, cores or ())]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_LIMIT_S)
    return [int(line) for line in done.stdout.split()]


def program() -> Path:
    """`firmware_bridge/build/pingpong`, made anew when its sources changed."""
    subprocess.run(["make", "--quiet", "build/pingpong"], cwd=BRIDGE, check=True)
    return BRIDGE / "build/pingpong"


SPIN_NS, FOREVER_NS = 50_000, 1_000_000_000
WAYS = (
    Way("dpfedge, blocking", True, lambda size: Links(size, None)),
    Way("dpfedge, asleep at once", True, lambda size: Links(size, 0)),
    Way("futex in C", True, mode="futex"),
    Way("links in C, sleeping", True, mode="link"),
    Way("iceoryx2, event", True, lambda size: Iceoryx(size, True), needs="iceoryx2"),
    Way("pyzmq ipc", True, ZeroMQ, copies=True, needs="zmq"),
    Way("unix socket", True, UnixSocket, copies=True),
    Way("multiprocessing.Pipe", True, StandardPipe, copies=True),
    Way("dpfedge, spinning", False, lambda size: Links(size, FOREVER_NS)),
    Way("words in C, spinning", False, mode="spin"),
    Way("links in C, spinning", False, mode="link-spin"),
    Way("iceoryx2, polled", False, lambda size: Iceoryx(size, False), needs="iceoryx2"),
)
