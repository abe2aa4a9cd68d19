# SPDX-License-Identifier: Apache-2.0
"""A `newest` link drops data, and no end of a stream."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from dpfedge.errors import WouldBlock
from dpfedge.link import Arena, Consumer, LinkSpec, Producer
from dpfedge.pipeline.messages import send_bytes
from dpfedge.pipeline.newest import sparing
from dpfedge.stage.api import Kind


def _link(policy: Literal["fail", "newest"] = "newest") -> tuple[Arena, Producer, Consumer]:
    arena = Arena.create((LinkSpec("a.b", "a", "b", 2, 64, policy),), requests=4)
    return arena, sparing(arena, arena.producer("a.b", 1)), arena.consumer("a.b", 2)


def _send(producer: Producer, *kinds: Kind) -> None:
    for kind in kinds:
        send_bytes(producer, 1, kind, b"")


def _got(consumer: Consumer) -> list[Kind]:
    kinds = []
    while (lease := consumer.receive()) is not None:
        kinds.append(Kind(lease.kind))
        lease.release()
    return kinds


def test_data__is_dropped_oldest_first() -> None:
    """Without an end in it the link is as it was."""
    arena, producer, consumer = _link()
    _send(producer, *[Kind.DATA] * 5)
    assert _got(consumer) == [Kind.DATA] * 2
    assert arena.stats()["a.b"].dropped == 3


@pytest.mark.parametrize("mark", [Kind.END, Kind.FLUSH])
def test_mark__is_never_dropped(mark: Kind) -> None:
    """Neither by data nor by the next mark; the sender waits until it is read."""
    arena, producer, consumer = _link()
    _send(producer, Kind.DATA, mark)
    with pytest.raises(WouldBlock, match=r"link a\.b: the end of a stream is not read yet"):
        _send(producer, Kind.DATA)
    assert arena.stats()["a.b"].dropped == 0

    assert _got(consumer) == [Kind.DATA, mark]
    _send(producer, Kind.DATA, Kind.DATA, Kind.DATA)
    assert _got(consumer) == [Kind.DATA] * 2


def test_mark__of_the_process_before_this_one() -> None:
    """What lies in the link when a port is taken may be one."""
    arena, producer, consumer = _link()
    _send(producer, Kind.END, Kind.END)
    producer.close()
    after = sparing(arena, arena.producer("a.b", 3))
    with pytest.raises(WouldBlock):
        _send(after, Kind.DATA)
    assert _got(consumer) == [Kind.END] * 2
    _send(after, Kind.DATA, Kind.DATA, Kind.DATA)


def test_slot__that_is_read_is_no_room() -> None:
    """One that the reader holds, one that an end waits in: none is left."""
    _, producer, consumer = _link()
    _send(producer, Kind.DATA)
    lease = consumer.receive()
    _send(producer, Kind.END)
    with pytest.raises(WouldBlock):
        _send(producer, Kind.DATA)
    assert lease is not None
    lease.release()
    _send(producer, Kind.DATA)


def test_publish__counts() -> None:
    """A growing message stands before the end that follows it."""
    _, producer, consumer = _link()
    loan = producer.loan(8)
    fields: dict[str, Any] = {"kind": int(Kind.DATA), "request": 1, "nbytes": 4}
    producer.publish(loan, **fields)
    producer.send(loan, **fields)
    _send(producer, Kind.END)
    first = consumer.receive()
    assert first is not None
    first.release()
    with pytest.raises(WouldBlock):
        _send(producer, Kind.DATA, Kind.DATA)
    assert _got(consumer)[-1] is Kind.END


def test_other_policies__are_the_links_own() -> None:
    """No wrapper, nothing added."""
    _, producer, _ = _link("fail")
    assert isinstance(producer, Producer)
