# SPDX-License-Identifier: Apache-2.0
"""The process that holds the kernel's routing: a published table in, the kernel's table like it, until its end.

Where the kernel cannot route, it says why: then clients route by the same table in user space (`client.py`), and
programs that know nothing of it are relayed (`relay.py`). It decides nothing.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpfedge.errors import RouteError, Unavailable, UsageError
from dpfedge.routing.kernel.addresses import Address, Service
from dpfedge.routing.kernel.attachment import Attachment
from dpfedge.routing.kernel.control import Server
from dpfedge.routing.kernel.relay import Relay
from dpfedge.routing.kernel.table import spread
from dpfedge.routing.publication import ENTRY_BYTES, Entry, Published

__all__ = ["PERIOD_S", "Follower", "Holder"]

PERIOD_S = 0.01
"""How often the published table is looked at: changes reach the kernel in batches, at most 100 a second."""


class Follower:
    """Copies a published table into an attachment's whenever it changed."""

    def __init__(self, attachment: Attachment, path: Path | None) -> None:
        """Publishes it once; Unavailable when no table is there."""
        self._attachment, self._path = attachment, path
        self._published, self._seen = Published.open(path), -1
        self._addresses: dict[str, Address | None] = {}
        self.problem = ""
        self.follow()

    @property
    def unreachable(self) -> list[str]:
        """Instances that the kernel cannot send to: their names are no addresses."""
        return sorted(name for name, address in self._addresses.items() if address is None)

    def follow(self) -> bool:
        """Publish in the kernel what is published now, if it is new; whether it was."""
        try:
            if self._published.ended:
                self._published, self._seen = Published.open(self._path), -1
            if self._published.generation == self._seen:
                return False
            self._copy()
        except (RouteError, Unavailable, UsageError, OSError) as error:
            self.problem = str(error)  # the kernel keeps what it has: the data path outlives who publishes
            return False
        self.problem = ""
        return True

    def _copy(self) -> None:
        generation, owners, data = self._published.snapshot()
        names = dict(_names(data))
        self._addresses = {
            name: self._addresses[name] if name in self._addresses else Address.of(name) for name in names.values()
        }
        rows = [
            self._addresses.get(names.get(index, "")) if index in names else None
            for index in range(max(names, default=-1) + 1)
        ]
        self._attachment.use_seed(self._published.key_seed)
        self._attachment.table.publish(spread(owners, self._published.bits, self._attachment.table.bits), rows)
        self._seen = generation
        self._attachment.table.settle()


def _names(data: bytes) -> Iterator[tuple[int, str]]:
    """Index and name of each entry: also of those that left, whose index a lookup may still give."""
    for index in range(len(data) // ENTRY_BYTES):
        entry = Entry.unpack(data[index * ENTRY_BYTES : (index + 1) * ENTRY_BYTES])
        if entry is not None:
            yield index, entry.text


class Holder:
    """Routing of a service until `run` is told to end; the kernel's where that is possible."""

    def __init__(self, service: Service, attachment: Attachment | None, why: str, path: Path | None) -> None:
        """`attachment`: None for user space, then `why` says what the kernel's routing lacked."""
        self.service, self._attachment, self._why, self._path = service, attachment, why, path
        self._follower = None if attachment is None else Follower(attachment, path)
        self._relay = Relay(service, path) if attachment is None else None
        self._ending = False

    def run(self, server: Server, stop: int) -> None:
        """Follow the table and answer requests until one says detach, or `stop` becomes readable."""
        last: socket.socket | None = None
        ended = threading.Event()
        # of its own: whoever asks, and how slowly, no change of the table waits for it
        thread = threading.Thread(target=self._follow, args=(ended,), name="follow", daemon=True)
        thread.start()
        while not self._ending:
            ready, _, _ = select.select([server.fileno(), stop], [], [])
            if stop in ready:
                break
            last = server.serve_once(self.answer)
            if last is not None and not self._ending:
                last.close()
        ended.set()
        thread.join()
        self.close()
        server.close()
        if last is not None:
            last.close()  # who asked for the end sees that it is over

    def _follow(self, ended: threading.Event) -> None:
        while self._follower is not None and not ended.wait(PERIOD_S):
            self._follower.follow()

    def answer(self, request: dict[str, Any], fds: list[int]) -> Mapping[str, Any]:
        """What another process asks: `status`, `detach`, or `serve` with an address and a socket."""
        match request.get("do"):
            case "status":
                return self.figures()
            case "detach":
                self._ending = True
                return self.figures()
            case "serve" if len(fds) == 1:
                return self._serve(Address.parse(str(request.get("address")), "address"), fds[0])
        raise UsageError("no such request", found=repr(request), allowed="status, detach, serve with one socket")

    def _serve(self, address: Address, fd: int) -> Mapping[str, Any]:
        if self._attachment is None:
            raise Unavailable("nothing is attached to the kernel", found=self._why)
        self._attachment.serve(address, fd)
        return {"served": str(address)}

    def figures(self) -> dict[str, Any]:
        """As plain data: mode, what is attached, counters."""
        common = {"pid": os.getpid()}
        if self._attachment is None or self._follower is None:
            return common | {"mode": "user space", "why": self._why, "service": str(self.service)} | self._relayed()
        more = {"unreachable": self._follower.unreachable, "problem": self._follower.problem}
        return common | self._attachment.figures() | more

    def _relayed(self) -> dict[str, Any]:
        if self._relay is None:
            return {}
        counters = {"relayed": self._relay.relayed, "refused": self._relay.refused}
        return {"problem": self._relay.problem, "counters": counters}

    def close(self) -> None:
        """Detach."""
        if self._attachment is not None:
            self._attachment.close()
        if self._relay is not None:
            self._relay.close()
            self._relay = None
