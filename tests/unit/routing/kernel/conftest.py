# SPDX-License-Identifier: Apache-2.0
"""The kernel's routing where this machine allows it, and servers on this host that say who they are."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dpfedge.errors import Unavailable
from dpfedge.routing import Instance
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.attachment import Attachment, load
from dpfedge.routing.key import BITS

sys.path.insert(0, str(Path(__file__).parents[3]))

from own_cgroup import own_cgroup

SERVICE = Service.parse(["10.255.0.1:8000", "[fd00:255::1]:8000"], "service")
Attach = Callable[..., Attachment]


@pytest.fixture(scope="module", autouse=True)
def cgroup() -> Iterator[Path | None]:
    """A cgroup of this process's own: tests that run at the same time do not route each other. None: not permitted."""
    with ExitStack() as stack:
        try:
            own = stack.enter_context(own_cgroup("test"))
        except (Unavailable, OSError):
            own = None
        yield own


@pytest.fixture
def attach(cgroup: Path | None) -> Iterator[Attach]:
    """Attaches; detaches after the test; skips, with the reason, where the kernel does not take it."""
    try:
        load(short_cut=True, receive=True).close()
    except Unavailable as error:
        pytest.skip(f"no routing in the kernel: {error}")
    with ExitStack() as stack:

        def one(short_cut: bool = False, receive: bool = True, above: bool = False, bits: int = BITS) -> Attachment:
            place = None if above else cgroup
            made = Attachment(SERVICE, short_cut=short_cut, receive=receive, cgroup=place, bits=bits)
            return stack.enter_context(made)

        yield one


class Servers:
    """TCP and UDP servers on free ports of 127.0.0.1; each answers with its number and what it got."""

    def __init__(self, count: int) -> None:
        self.tcp = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        self.udp = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
        for stream, datagram in zip(self.tcp, self.udp, strict=True):
            datagram.bind(stream.getsockname())
        self.instances = [Instance("{}:{}".format(*one.getsockname())) for one in self.tcp]
        self.addresses = [Address.of(one.name) for one in self.instances]
        for number in range(count):
            for serve in (self._streams, self._datagrams):
                threading.Thread(target=serve, args=(number,), daemon=True).start()

    def _streams(self, number: int) -> None:
        while True:
            try:
                one, _ = self.tcp[number].accept()
            except OSError:
                return
            with one:
                one.sendall(b"%d " % number + one.recv(64))

    def _datagrams(self, number: int) -> None:
        while True:
            try:
                data, sender = self.udp[number].recvfrom(64)
            except OSError:
                return
            if data == b"end":
                return
            self.udp[number].sendto(b"%d " % number + data, sender)

    def close(self) -> None:
        """End them."""
        for number, one in enumerate(self.tcp):
            one.shutdown(socket.SHUT_RDWR)
            self.udp[number].sendto(b"end", one.getsockname())
            one.close()


@pytest.fixture
def servers() -> Iterator[Servers]:
    """Four of them."""
    made = Servers(4)
    yield made
    made.close()
    for one in made.udp:
        one.close()
