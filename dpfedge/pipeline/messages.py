# SPDX-License-Identifier: Apache-2.0
"""Messages over links: a lease seen as a `Message`; small maps, and what the caller sends, written into slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cbor2

from dpfedge.backend.api import Array
from dpfedge.errors import InputError, LinkError
from dpfedge.link import LAST, PARTIAL, Lease, Producer
from dpfedge.stage.api import Kind
from dpfedge.tensors import DTYPE_CODES, dtype_name

__all__ = ["TURN_MAX", "LinkMessage", "crowded", "encoded", "send_array", "send_bytes", "send_map", "send_text"]


TURN_MAX = 2**32 - 1


class LinkMessage:
    """A lease seen as a `Message`."""

    __slots__ = ("_lease", "_own", "captured_ns", "kind", "last", "nbytes", "partial", "port", "turn")

    def __init__(self, lease: Lease, port: str = "") -> None:
        self._lease, self.port = lease, port
        self._own: Array | None = None
        self.nbytes = lease.nbytes
        self.kind = Kind(lease.kind)
        self.turn = lease.turn
        self.captured_ns = lease.captured_ns
        self.last = bool(lease.flags & LAST)
        self.partial = bool(lease.flags & PARTIAL)

    def array(self) -> Array:
        """The payload in place, read-only."""
        return self._lease.array() if self._own is None else self._own

    def text(self) -> str:
        """The payload as UTF-8."""
        try:
            return str(self._bytes(), "utf-8")
        except UnicodeDecodeError as error:
            raise LinkError("payload is no UTF-8", where=f"message {self.kind.name}", found=str(error)) from error

    def map(self) -> Mapping[str, Any]:
        """The payload as a CBOR map."""
        try:
            found = cbor2.loads(self._bytes())
        except cbor2.CBORDecodeError as error:
            raise LinkError("payload is no CBOR", where=f"message {self.kind.name}", found=str(error)) from error
        if not isinstance(found, dict):
            raise LinkError("payload is not a map", where=f"message {self.kind.name}", found=type(found).__name__)
        return found

    def keep(self) -> None:
        """Move the payload to memory of this process' own and end the lease: one copy, for whoever asks to count."""
        self._own = self._lease.array().copy()
        self._lease.release()

    @property
    def kept(self) -> bool:
        """Whether the payload is this process' own by now."""
        return self._own is not None

    def _bytes(self) -> memoryview:
        return self._lease.view if self._own is None else self._own.data.cast("B")

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
    send_bytes(producer, key, kind, encoded(data, f"message {kind.name}"), **fields)


def encoded(data: Mapping[str, Any], where: str) -> bytes:
    """A map as CBOR; InputError names what cannot be written down so."""
    try:
        return cbor2.dumps(dict(data))
    except (cbor2.CBOREncodeError, UnicodeEncodeError, RecursionError) as error:
        allowed = "maps, lists, numbers, texts, bytes, true, false, null"
        raise InputError("a value that CBOR cannot hold", where=where, found=str(error), allowed=allowed) from error


def send_array(
    producer: Producer, key: int, kind: Kind, array: Array, *, turn: int = 0, last: bool = False, **fields: Any
) -> None:
    """Write an array into a slot and send it at once; WouldBlock when the link is full, InputError when it cannot fit.

    This one write is where the caller's data enters the pipeline; no stage writes it again.
    """
    if array.nbytes > producer.slot_bytes:
        raise _too_long(producer, array.nbytes)
    loan, shape = producer.loan(array.nbytes), array.shape or (1,)
    loan.array(array.dtype, shape)[...] = array
    producer.send(
        loan, kind=int(kind), request=key, turn=turn, dtype=DTYPE_CODES[dtype_name(array.dtype)], shape=shape,
        nbytes=array.nbytes, flags=LAST if last else 0, **fields,
    )  # fmt: skip


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
        raise _too_long(producer, len(data))
    loan = producer.loan(len(data))
    loan.view[: len(data)] = data
    producer.send(
        loan, kind=int(kind), request=key, turn=turn, nbytes=len(data), captured_ns=captured_ns,
        deadline_ns=deadline_ns, urgency=urgency, flags=LAST if last else 0,
    )  # fmt: skip


def _too_long(producer: Producer, nbytes: int) -> InputError:
    return InputError(
        "the message is too long", where=f"link {producer.link}", found=f"{nbytes} bytes",
        allowed=f"{producer.slot_bytes} bytes", remedy="send less at once",
    )  # fmt: skip
