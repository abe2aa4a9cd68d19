# SPDX-License-Identifier: Apache-2.0
"""What a link is told (`LinkSpec`), what it counts (`LinkStats`) and how one message looks in memory (`Descriptor`).

The protocol itself is C (`firmware_bridge/src/ring.c`); this module only names its parts.
"""

from __future__ import annotations

import struct
from dataclasses import asdict
from typing import Literal, NamedTuple

from dpfedge import _core
from dpfedge.records import dataclass

__all__ = [
    "CANCELLED",
    "ERROR",
    "LAST",
    "PARTIAL",
    "PLACES",
    "POLICIES",
    "Descriptor",
    "LinkSpec",
    "LinkStats",
    "Policy",
]

LAST: int = _core.DPF_LAST
"""Flag: the end of this stream."""
CANCELLED: int = _core.DPF_CANCELLED
"""Flag: the turn was cancelled; nothing more comes."""
ERROR: int = _core.DPF_ERROR
"""Flag: the payload is an error."""
PARTIAL: int = _core.DPF_PARTIAL
"""Flag: the slot still grows; a later message shows the same bytes and more."""

PLACES = 6
"""Consumers a link may have."""

Policy = Literal["block", "fail", "newest"]
POLICIES: tuple[Policy, ...] = ("block", "fail", "newest")  # the position is the code in shared memory


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One link: `slots` cells of `slot_bytes` bytes from stage `producer` to stage `consumer`, whose bell is rung.

    Each of the `others` (at most 5) gets every message too; a slot is free again when the last of them released it.
    `policy` says what `loan` does when no slot is free: `block` waits up to `block_ns` (LinkTimeout), `fail` raises
    WouldBlock, `newest` drops the oldest unread message and counts it.
    """

    name: str
    producer: str
    consumer: str
    slots: int
    slot_bytes: int
    policy: Policy = "fail"
    block_ns: int = 1_000_000_000
    others: tuple[str, ...] = ()

    @property
    def consumers(self) -> tuple[str, ...]:
        """All stages that receive, `consumer` first."""
        return (self.consumer, *self.others)


@dataclass(frozen=True, slots=True)
class LinkStats:
    """Counters of a link since its arena was made, of all its consumers together; the last three say what is so now."""

    sent: int
    received: int
    dropped: int
    refused: int
    """Looks for a free slot that found none."""
    abandoned: int
    corrupt: int
    """Messages dropped because shared memory held something impossible."""
    copies: int
    copied_bytes: int
    loaned: int
    in_flight: int
    """Slots that consumers hold."""
    depth: int
    """Messages sent and not received by the slowest consumer."""

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


class Descriptor(NamedTuple):
    """The 64 bytes of one message, as `Descriptor.read` finds them; for tools that look at an arena from outside."""

    request: int
    captured_ns: int
    deadline_ns: int
    slot: int
    generation: int
    sequence: int
    turn: int
    offset: int
    nbytes: int
    shape: tuple[int, int, int]
    dtype: int
    rank: int
    urgency: int
    kind: int
    flags: int

    @classmethod
    def read(cls, data: bytes | memoryview) -> Descriptor:
        """The descriptor in 64 bytes."""
        request, captured, deadline, slot, generation, sequence, turn, offset, nbytes, *rest = _DESCRIPTOR.unpack(data)
        *shape, dtype, rank_urgency, kind, flags = rest
        a, b, c = shape
        place = (slot, generation, sequence, turn, offset, nbytes)
        rank, urgency = rank_urgency & 15, rank_urgency >> 4
        return cls(request, captured, deadline, *place, (a, b, c), dtype, rank, urgency, kind, flags)

    def pack(self) -> bytes:
        """The 64 bytes that `read` reads."""
        *place, shape, dtype, rank, urgency, kind, flags = self
        return _DESCRIPTOR.pack(*place, *shape, dtype, urgency << 4 | rank, kind, flags)


_DESCRIPTOR = struct.Struct("<3Q6I3I4B")
