# SPDX-License-Identifier: Apache-2.0
"""Legacy mode: TCP connections to the service's own address in, the same instance as the kernel would choose out.

For programs that know nothing of dpfedge, where the kernel does not route: each byte is copied twice more. It needs a
service address that this host has, such as one of 127.0.0.0/8. Datagrams are not relayed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from dpfedge import _core
from dpfedge.errors import NoInstance, RouteError, Unavailable
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.publication import Published

__all__ = ["CONNECTIONS_MAX", "Relay", "keyless", "owner_of_socket"]

CONNECTIONS_MAX = 1024
"""Relayed at once; more wait to be accepted."""

_CHUNK_BYTES = 1 << 16
_CONNECT_S, _AGAIN_S = 5.0, 0.1
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR = (
    4,
    20,
    1,
    2,
)  # NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR
_ANY_STATE, _ANY_SOCKET = 0xFFFFFFFF, b"\xff" * 8
_HEAD, _ASK = struct.Struct("=IHHII"), struct.Struct("=BBBBI2s2s16s16sI8s")
_UID_AT, _ATTRIBUTES_AT, _CGROUP_ID = 64, 72, 21  # of struct inet_diag_msg; INET_DIAG_CGROUP_ID


def keyless(cgroup: int, uid: int, key_seed: int) -> int:
    """The hash that stands in for a key, as the kernel's programs make it: one user's of one cgroup go together."""
    return _core.xxh64(struct.pack("<QQ", cgroup, uid), key_seed)


def owner_of_socket(local: Address, remote: Address) -> tuple[int, int] | None:
    """Cgroup id and user of the socket on this host that is connected from `local` to `remote`; None when none is."""
    family = socket.AF_INET if local.is_v4 else socket.AF_INET6
    ports = local.port.to_bytes(2), remote.port.to_bytes(2)
    body = _ASK.pack(
        family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE, *ports, local.ip.ljust(16, b"\0"), remote.ip.ljust(16, b"\0"), 0,
        _ANY_SOCKET,
    )  # fmt: skip
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as one:
        one.settimeout(1.0)
        one.send(_HEAD.pack(_HEAD.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        answer = one.recv(8192)
    kind, message = _HEAD.unpack_from(answer)[1], answer[_HEAD.size :]
    if kind == _ERROR or len(message) < _ATTRIBUTES_AT:
        return None
    uid = int(struct.unpack_from("=I", message, _UID_AT)[0])
    found = [value for number, value in _attributes(message[_ATTRIBUTES_AT:]) if number == _CGROUP_ID]
    return (int.from_bytes(found[0], "little"), uid) if found else None


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        size, number = struct.unpack_from("=HH", data, at)
        if size < 4:
            return
        yield number, data[at + 4 : at + size]
        at += (size + 3) & ~3


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Relay:
    """Relays until it is closed; `problem` says why it does not."""

    def __init__(self, service: Service, path: Path | None = None) -> None:
        """Listen at the service's addresses that this host has. `path`: of the published table."""
        self._path, self._table, self.problem, self.relayed, self.refused = path, Published.open(path), "", 0, 0
        self._service = service
        self._listeners: list[socket.socket] = []
        for address in (service.v4, service.v6):
            if address is not None:
                self._listen(address)
        self._loop = asyncio.new_event_loop()
        self._places = asyncio.Semaphore(CONNECTIONS_MAX)
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)
        self._thread.start()

    def _listen(self, address: Address) -> None:
        family = socket.AF_INET if address.is_v4 else socket.AF_INET6
        try:
            one = socket.create_server((address.host, address.port), family=family, backlog=CONNECTIONS_MAX)
        except OSError as error:
            self.problem = f"nothing is relayed for {address}: {error.strerror}"
            return
        one.setblocking(False)
        self._listeners.append(one)

    def _run(self) -> None:
        for one in self._listeners:
            self._loop.create_task(self._accept(one))
        self._loop.run_forever()
        self._loop.run_until_complete(_cancel_all())
        self._loop.close()

    async def _accept(self, listener: socket.socket) -> None:
        tasks: set[asyncio.Task[None]] = set()
        while True:
            await self._places.acquire()
            try:
                one, _ = await self._loop.sock_accept(listener)
            except OSError:  # no descriptor is free, or the client is gone already
                self._places.release()
                await asyncio.sleep(_AGAIN_S)
                continue
            task = self._loop.create_task(self._serve(one))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _serve(self, one: socket.socket) -> None:
        with one, contextlib.ExitStack() as stack:
            stack.callback(self._places.release)
            try:
                to = self._instance(one)
                other = stack.enter_context(socket.socket(socket.AF_INET if to.is_v4 else socket.AF_INET6))
                other.setblocking(False)
                await asyncio.wait_for(self._loop.sock_connect(other, (to.host, to.port)), _CONNECT_S)
            except (OSError, TimeoutError, RouteError, Unavailable):
                self.refused += 1
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as if nobody listened
                return
            self.relayed += 1
            await asyncio.gather(self._copy(one, other), self._copy(other, one))

    async def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # one end is gone: the other is told by the shutdown
            while data := await self._loop.sock_recv(source, _CHUNK_BYTES):
                await self._loop.sock_sendall(sink, data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def _instance(self, one: socket.socket) -> Address:
        """Where a connection goes; NoInstance without anybody."""
        if self._table.ended:
            self._table = Published.open(self._path)
        mine, peer = (
            Address(socket.inet_pton(one.family, name[0]), name[1]) for name in (one.getsockname(), one.getpeername())
        )
        owner = owner_of_socket(peer, mine)
        seed = self._table.key_seed
        # of another host: by its address, as sk_lookup does
        hash = keyless(*owner, seed) if owner is not None else _core.xxh64(peer.known[:16], seed)
        _, _, entry = self._table.entry(hash)
        address = Address.of(entry.text)
        if address is None:
            raise NoInstance("the instance's name is no address", health={}, found=entry.text)
        if address in (self._service.v4, self._service.v6):
            raise RouteError("the instance is the service itself", found=entry.text)  # it would be relayed for ever
        return address

    def close(self) -> None:
        """Relay no more; connections under way are cut."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for one in self._listeners:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
