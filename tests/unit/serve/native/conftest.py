# SPDX-License-Identifier: Apache-2.0
"""A native face before a runtime without models, and a client that speaks its protocol in Python."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.link import Arena
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.native.face import NativeFace
from dpfedge.serve.native.wire import CLIENT, EVENT, LINKS, STOP, Command, Hello
from dpfedge.serve.provider import Provider
from dpfedge.serve.sockets import listen_unix

HELLO = Hello(0, 16_000, 0, 0, 0, None)
WELCOME = struct.Struct("<4s2H2IQ2I32x")


class Client:
    """One connection; `status` is 0 when there is a session, else what the server said, with `why`."""

    def __init__(self, path: Path, hello: bytes) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(20)
        try:
            self.sock.connect(str(path))
        except OSError:
            self.sock.close()
            raise
        self.sock.send(hello)
        packet, fds, _, _ = socket.recv_fds(self.sock, 8192, 8)
        head = WELCOME.unpack_from(packet)
        self.status, self.key, self.output_hz, self.why = head[3], head[5], head[7], packet[64:].decode()
        self.fds = fds
        if self.status == 0:
            self.arena = Arena.attach(fds[0])
            self.microphone, self.stops = (self.arena.producer(spec.name, CLIENT) for spec in LINKS[:2])
            self.events, self.sounds = (self.arena.consumer(spec.name, CLIENT) for spec in LINKS[2:])

    def ring(self) -> None:
        self.sock.send(b"\0")

    def command(self, kind: int, data: bytes = b"", turn: int = 0) -> None:
        loan = self.microphone.loan(max(1, len(data)))
        loan.view[: len(data)] = data
        self.microphone.send(loan, kind=kind, request=self.key, turn=turn, nbytes=len(data))
        self.ring()

    def push(self, pcm: bytes) -> None:
        self.command(Command.SAMPLES, pcm)

    def stop(self, heard_ms: int, before: int) -> None:
        self.arena.requests.cancel(self.key, before)
        loan = self.stops.loan(STOP.size)
        loan.view[: STOP.size] = STOP.pack(heard_ms, before)
        self.stops.send(loan, kind=1, request=self.key, nbytes=STOP.size)
        self.ring()

    def event(self) -> tuple[int, int, int, str]:
        """Kind, number, code and text of the next one."""
        while (lease := self.events.receive()) is None:
            assert select.select([self.fds[1]], [], [], 20)[0], "no event came"
        with lease:
            code, _, size, _ = EVENT.unpack_from(lease.view)
            text = bytes(lease.view[EVENT.size : EVENT.size + size]).decode()
            got = (lease.kind, lease.request, code, text)
        self.ring()
        return got

    def until(self, kind: int) -> list[tuple[int, int, int, str]]:
        events = [self.event()]
        while events[-1][0] != kind:
            events.append(self.event())
        return events

    def sound(self) -> tuple[int, int, np.ndarray[Any, Any], bool]:
        """Answer, epoch, samples and whether they are the last."""
        while (lease := self.sounds.receive()) is None:
            assert select.select([self.fds[2]], [], [], 20)[0], "no sound came"
        with lease:
            got = (lease.request, lease.turn, np.frombuffer(bytes(lease.view), np.int16), bool(lease.flags & 1))
        self.ring()
        return got

    def close(self) -> None:
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        if self.status == 0:
            self.arena.close()


class Faced:
    """The face in a thread of its own."""

    def __init__(self, path: Path, runtime: Callable[[], Any], most: int) -> None:
        self.path, self._make, self._most = path, runtime, most
        self._started, self._ended = threading.Event(), False
        self.clients: list[Client] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    async def _run(self) -> None:
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self.runtime = self._make()

        async def launch() -> Any:
            return self.runtime

        self.provider = Provider("fake", launch)
        await self.provider.start()
        with listen_unix(self.path, kind=socket.SOCK_SEQPACKET) as sock:
            self.face = NativeFace(self.provider, Metrics(), sock, most=self._most)
            self.face.start()
            self._started.set()
            await self._over.wait()
            await self.provider.stop(0.2)
            await self.face.close()
        await self.provider.close()

    def dial(self, hello: Hello | bytes = HELLO) -> Client:
        client = Client(self.path, hello if isinstance(hello, bytes) else hello.pack())
        self.clients.append(client)
        return client

    def run(self, what: Callable[[], Any]) -> Any:
        """Call something on the face's loop."""

        async def call() -> Any:
            return what()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)

    @property
    def session(self) -> Any:
        return self.runtime.sessions[-1]

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self.loop.call_soon_threadsafe(self._over.set)
            self._thread.join(30)
            assert not self._thread.is_alive()


def eventually(check: Callable[[], bool]) -> None:
    """A watchdog, not a measure."""
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def faced(tmp_path: Path, shared: Any) -> Iterator[Faced]:
    """A native face with two places."""
    one = Faced(tmp_path / "n", type(shared.runtime), 2)
    yield one
    for client in one.clients:
        client.close()
    one.end()
