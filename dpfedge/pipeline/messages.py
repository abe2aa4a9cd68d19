# SPDX-License-Identifier: Apache-2.0
"""Messages over links: a lease seen as a `Message`, texts and small maps sent at once; no tensor is touched here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cbor2

from dpfedge.backend.api import Array
from dpfedge.errors import InputError, LinkError
from dpfedge.link import LAST, PARTIAL, Lease, Producer
from dpfedge.stage.api import Kind

__all__ = ["LinkMessage", "crowded", "send_bytes", "send_map", "send_text"]


class LinkMessage:
    """A lease seen as a `Message`."""

    __slots__ = ("_lease", "captured_ns", "kind", "last", "partial", "port", "turn")

    def __init__(self, lease: Lease, port: str = "") -> None:
        self._lease, self.port = lease, port
        self.kind = Kind(lease.kind)
        self.turn = lease.turn
        self.captured_ns = lease.captured_ns
        self.last = bool(lease.flags & LAST)
        self.partial = bool(lease.flags & PARTIAL)

    def array(self) -> Array:
        """The payload in place, read-only."""
        return self._lease.array()

    def text(self) -> str:
        """The payload as UTF-8."""
        return str(self._lease.view, "utf-8")

    def map(self) -> Mapping[str, Any]:
        """The payload as a CBOR map."""
        try:
            found = cbor2.loads(self._lease.view)
        except cbor2.CBORDecodeError as error:
            raise LinkError("payload is no CBOR", where=f"message {self.kind.name}", found=str(error)) from error
        if not isinstance(found, dict):
            raise LinkError("payload is not a map", where=f"message {self.kind.name}", found=type(found).__name__)
        return found

    def release(self) -> None:
        """End the lease; a second call does nothing."""
        self._lease.release()


def crowded(producer: Producer) -> bool:
    """Whether half of a link's slots are in use: work that nobody waits for in person leaves the other half alone."""
    return 2 * (producer.live + producer.depth) >= producer.slots


def send_text(producer: Producer, key: int, kind: Kind, text: str, **fields: Any) -> None:
    """Send a text at once; WouldBlock when the link is full. `fields` as in `send_bytes`."""
    send_bytes(producer, key, kind, text.encode(), **fields)


def send_map(producer: Producer, key: int, kind: Kind, data: Mapping[str, Any], **fields: Any) -> None:
    """Send a map at once; WouldBlock when the link is full. `fields` as in `send_bytes`."""
    send_bytes(producer, key, kind, cbor2.dumps(dict(data)), **fields)


def send_bytes(
    producer: Producer,
    key: int,
    kind: Kind,
    data: bytes,
    *,
    turn: int = 0,
    last: bool = False,
    captured_ns: int = 0,
    deadline_ns: int = 0,
    urgency: int = 3,
) -> None:
    """Send a small payload at once; WouldBlock when the link is full, InputError when it can never fit."""
    if len(data) > producer.slot_bytes:
        raise InputError(
            "the text is too long", where=f"link {producer.link}", found=f"{len(data)} bytes",
            allowed=f"{producer.slot_bytes} bytes", remedy="send less at once",
        )  # fmt: skip
    loan = producer.loan(len(data))
    loan.view[: len(data)] = data
    producer.send(
        loan, kind=int(kind), request=key, turn=turn, nbytes=len(data), captured_ns=captured_ns,
        deadline_ns=deadline_ns, urgency=urgency, flags=LAST if last else 0,
    )  # fmt: skip
