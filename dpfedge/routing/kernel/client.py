# SPDX-License-Identifier: Apache-2.0
"""Connecting as a client, and serving: a service and a session in, a socket out, routed by the kernel or here.

The kernel is asked by giving the socket its key: where no program is attached it knows no such option. It publishes
nothing and retries nothing.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

from dpfedge.errors import NoInstance, RouteError, Unavailable
from dpfedge.routing.kernel.addresses import Address
from dpfedge.routing.kernel.control import ask
from dpfedge.routing.key import encode, hash_key
from dpfedge.routing.publication import Published

__all__ = ["KEY_LEVEL", "KEY_OPTION", "Routed", "connect", "give_key", "serve"]

KEY_LEVEL = 0x445046
"""The level of our socket options: "DPF"."""
KEY_OPTION = 1


@dataclass(frozen=True, slots=True)
class Routed:
    """A connected socket, and who chose the instance."""

    socket: socket.socket
    by_kernel: bool
    """False: the published table was looked up here."""


def give_key(one: socket.socket, model: str | bytes, user: str | bytes, ts_ms: int) -> bool:
    """Give a socket the key of its session, before it connects or sends; False where the kernel does not route.

    UsageError for ids that make no key.
    """
    try:
        one.setsockopt(KEY_LEVEL, KEY_OPTION, encode(model, user, ts_ms))
    except OSError as error:
        if error.errno in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            return False
        raise RouteError("the kernel does not take the key", found=error.strerror) from error
    return True


def serve(address: str, listener: socket.socket) -> None:
    """Have what arrives for an instance's address given to this socket, whatever it is bound to, until it is closed.

    It listens, or is a bound datagram socket. Unavailable where the kernel does not route, RouteError when it does not
    take the socket.
    """
    ask({"do": "serve", "address": str(Address.parse(address, "address"))}, listener.fileno())


def connect(
    service: str, model: str | bytes, user: str | bytes, ts_ms: int, *, table: Path | None = None,
    timeout_s: float | None = None,
) -> Routed:  # fmt: skip
    """A TCP connection of a session to the instance that serves it; close its socket.

    `service`: `A.B.C.D:PORT` or `[IPv6]:PORT`. `table`: a published table, this host's by default; read where the
    kernel does not route. NoInstance with the health map when nobody can serve it, OSError when the instance does not
    answer, UsageError for ids that make no key.
    """
    address = Address.parse(service, "service")
    one = socket.socket(socket.AF_INET if address.is_v4 else socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if give_key(one, model, user, ts_ms):
            one.settimeout(timeout_s)
            _through_kernel(one, address, table)
            return Routed(one, True)
    except BaseException:
        one.close()
        raise
    one.close()
    return Routed(_here(model, user, ts_ms, table, timeout_s), False)


def _through_kernel(one: socket.socket, address: Address, table: Path | None) -> None:
    try:
        one.connect((address.host, address.port))
    except PermissionError as error:  # what a program's refusal looks like
        try:
            health = Published.open(table).health_map()
        except (Unavailable, RouteError):
            health = {}
        raise NoInstance("no instance can serve the request", health=health, remedy="see the health map") from error


def _here(
    model: str | bytes, user: str | bytes, ts_ms: int, table: Path | None, timeout_s: float | None
) -> socket.socket:
    published = Published.open(table)
    _, _, entry = published.entry(hash_key(model, user, ts_ms, published.key_seed))
    address = Address.of(entry.text)
    if address is None:
        raise RouteError("the instance's name is no address", found=entry.text, allowed="A.B.C.D:PORT or [IPv6]:PORT")
    return socket.create_connection((address.host, address.port), timeout_s)
