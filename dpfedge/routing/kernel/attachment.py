# SPDX-License-Identifier: Apache-2.0
"""The routing programs, loaded and attached to a cgroup: a service and tables in, routed connections and counters out.

It lives as long as its descriptors: `close`, or any end of the process, takes all of it away. Nothing is pinned.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Self

from dpfedge.errors import Unavailable, UsageError
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.libbpf import CGROUP_TYPES, Loaded, Program, attach_to_map, link
from dpfedge.routing.kernel.support import cgroup_of, check_machine, object_bytes
from dpfedge.routing.kernel.table import KernelTable, table_form
from dpfedge.routing.key import BITS, KEY_SEED

__all__ = ["COUNTERS", "Attachment", "load"]

COUNTERS = (
    "routed", "keyless", "nobody", "keys", "bad_keys", "answered", "received", "joined", "redirected",
    "redirected_bytes", "usual",
)  # fmt: skip
"""What the programs count; maps.h says what each is."""

_ROUTES = {
    "rh_option": "setsockopt", "rh_connect4": "connect4", "rh_connect6": "connect6", "rh_sendmsg4": "sendmsg4",
    "rh_sendmsg6": "sendmsg6", "rh_recvmsg4": "recvmsg4", "rh_recvmsg6": "recvmsg6",
}  # fmt: skip
_JOIN = {"rh_established": "sock_ops"}
_MESSAGE = Program("rh_message", 16, 7)  # BPF_PROG_TYPE_SK_MSG, BPF_SK_MSG_VERDICT
_RECEIVE = Program("rh_receive", 30, 36)  # BPF_PROG_TYPE_SK_LOOKUP, BPF_SK_LOOKUP
_ZERO = bytes(4)
_PROTOCOLS = {socket.SOCK_STREAM: socket.IPPROTO_TCP, socket.SOCK_DGRAM: socket.IPPROTO_UDP}


def _cgroup_programs(short_cut: bool) -> list[Program]:
    hooks = _ROUTES | (_JOIN if short_cut else {})
    return [Program(name, *CGROUP_TYPES[hook]) for name, hook in hooks.items()]


def load(*, short_cut: bool, receive: bool, bits: int = BITS) -> Loaded:
    """The programs, verified by the kernel and attached to nothing; Unavailable says what they lack here.

    `bits`: of a table slot's number, 16 to 22.
    """
    check_machine()
    more = ([_MESSAGE] if short_cut else []) + ([_RECEIVE] if receive else [])
    unused = ([] if short_cut else [*_JOIN, _MESSAGE.name]) + ([] if receive else [_RECEIVE.name])
    return Loaded(object_bytes("route"), _cgroup_programs(short_cut) + more, unused, **table_form(bits))


class Attachment:
    """Kernel routing of one service for the processes of one cgroup; `table` publishes."""

    def __init__(
        self, service: Service, *, cgroup: Path | None = None, short_cut: bool = False, receive: bool = True,
        key_seed: int = KEY_SEED, bits: int = BITS,
    ) -> None:  # fmt: skip
        """Load and attach; Unavailable says what the kernel, the privilege or the machine lacks.

        `cgroup`: a folder of cgroup v2, its root by default. `short_cut`: messages between ends on this host go from
        socket to socket. `receive`: attach `sk_lookup` to this network namespace, which `serve` needs. `bits`: the
        kernel's table has 2**bits slots, and takes published ones of as many or fewer.
        """
        place = cgroup_of(cgroup)
        self.service, self.cgroup, self.short_cut, self.receives = service, place, short_cut, receive
        self._seed, self._links, self._closed = key_seed, list[int](), False
        self._loaded = load(short_cut=short_cut, receive=receive, bits=bits)
        try:
            self.table = KernelTable(self._loaded, bits)
            self._set(short_cut)
            if short_cut:
                attach_to_map(
                    self._loaded.program("rh_message"), self._loaded.map("rh_peers"), _MESSAGE.attach, "sk_msg"
                )
            if receive:
                self._link(_RECEIVE, Path("/proc/self/ns/net"))
            for one in _cgroup_programs(short_cut):
                self._link(one, place)
        except BaseException:
            self.close()
            raise

    def _link(self, program: Program, target: Path) -> None:
        try:
            fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unavailable("nothing can be attached there", where=str(target), found=error.strerror) from error
        try:
            self._links.append(link(self._loaded.program(program.name), fd, program.attach, program.name))
        finally:
            os.close(fd)

    def use_seed(self, key_seed: int) -> None:
        """Hash keys with this seed from now on: the published table's."""
        if key_seed != self._seed:
            self._seed = key_seed
            self._set(self.short_cut)

    def _set(self, short_cut: bool) -> None:
        self._loaded.put(".data.rh_set", _ZERO, self.service.settings(self._seed, short_cut))

    def serve(self, address: Address, listener: socket.socket | int) -> None:
        """From now on what arrives for an instance's address goes to this socket, whatever that one is bound to.

        It listens, or is a bound datagram socket; it may belong to another process. The kernel forgets it when it is
        closed. UsageError for a socket that is neither.
        """
        fd = listener if isinstance(listener, int) else listener.fileno()
        protocol = _protocol(fd)
        if not self.receives or protocol is None:
            found = "an attachment that does not receive" if protocol else "a socket of another type"
            raise UsageError("the kernel cannot give it connections", where="serve", found=found)
        try:
            self._loaded.put("rh_listen", address.listening(protocol), fd.to_bytes(8, "little"))
        except OSError as error:
            allowed = "a listening TCP socket or a bound UDP socket"
            raise UsageError("the kernel does not take the socket", found=error.strerror, allowed=allowed) from error

    def counters(self) -> dict[str, int]:
        """What the programs counted since they were attached."""
        return dict(zip(COUNTERS, self._loaded.per_cpu("rh_count", _ZERO, len(COUNTERS)), strict=True))

    def figures(self) -> dict[str, Any]:
        """As plain data: what is attached where, and the counters."""
        return {
            "mode": "kernel", "service": str(self.service), "cgroup": str(self.cgroup), "short_cut": self.short_cut,
            "receive": self.receives, "generation": self.table.generation, "counters": self.counters(),
        }  # fmt: skip

    def close(self) -> None:
        """Detach. Connections stay as they are; those with the short-cut go on the usual way, and lose nothing."""
        if self._closed:
            return
        self._closed = True
        for fd in reversed(self._links):
            os.close(fd)
        self._links.clear()
        if self.short_cut and hasattr(self, "table"):
            self._set(
                False
            )  # a joined connection keeps its program to its end, and what lies in its queues is read first
        if hasattr(self, "table"):
            self.table.close()
        self._loaded.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _protocol(fd: int) -> int | None:
    """What the socket speaks; None for one of another type, and for a descriptor that is no socket."""
    try:
        one = socket.socket(fileno=fd)
    except OSError:
        return None
    kind = one.type
    one.detach()
    return _PROTOCOLS.get(kind)
