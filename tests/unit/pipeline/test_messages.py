# SPDX-License-Identifier: Apache-2.0
"""Messages over a real link: what is sent arrives, what is no map is an error, and a full link says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError, LinkError, WouldBlock
from dpfedge.pipeline.messages import LinkMessage, crowded, send_array, send_bytes, send_map, send_text
from dpfedge.stage.api import Kind

LINK = "source.llm"


def received(rig: Any) -> LinkMessage:
    lease = rig.lease(LINK)
    assert lease is not None
    return LinkMessage(lease)


def test_text__arrives_with_its_kind_and_turn(rig: Any) -> None:
    """UTF-8; the last one says that it is."""
    producer = rig.producer(LINK)
    send_text(producer, 65536, Kind.TEXT, "grün", turn=3)
    send_text(producer, 65536, Kind.TEXT, "", turn=4, last=True)

    first, second = received(rig), received(rig)
    assert (first.kind, first.turn, first.text(), first.last) == (Kind.TEXT, 3, "grün", False)
    assert (second.turn, second.text(), second.last) == (4, "", True)
    first.release()
    first.release()
    second.release()
    assert rig.held() == {}


@pytest.mark.parametrize("payload", [b"\xff", b"gr\xc3", "\ud800".encode("utf-8", "surrogatepass")])
def test_text__that_is_none_names_the_message(rig: Any, payload: bytes) -> None:
    """Whoever fills a drawn graph's port may write any bytes: an error of one request, never the end of the stage."""
    send_bytes(rig.producer(LINK), 65536, Kind.TEXT, payload)
    message = received(rig)

    with pytest.raises(LinkError, match="message TEXT: payload is no UTF-8"):
        message.text()
    message.release()


def test_map__comes_back_as_it_was(rig: Any) -> None:
    """Nested, with what CBOR knows."""
    data = {"a": [1, None, 0.5], "b": {"c": "ä"}}
    send_map(rig.producer(LINK), 65536, Kind.START, data)
    message = received(rig)

    assert message.map() == data
    message.release()


@pytest.mark.parametrize(("payload", "text"), [(b"\x83\x01", "no CBOR"), (b"", "no CBOR"), (b"\x01", "found int")])
def test_map__that_is_none_names_the_message(rig: Any, payload: bytes, text: str) -> None:
    """Another process wrote it: an error of the link, never of the decoder."""
    send_bytes(rig.producer(LINK), 65536, Kind.HEARD, payload)
    message = received(rig)

    with pytest.raises(LinkError, match=f"message HEARD: payload.*{text}"):
        message.map()
    message.release()


def test_array__is_the_links_memory(rig: Any) -> None:
    """In place, and nobody writes to it."""
    producer = rig.producer(LINK)
    loan = producer.loan(4)
    loan.view[:4] = b"\x01\x00\x02\x00"
    producer.send(loan, kind=int(Kind.AUDIO), request=65536, dtype=0, shape=(4,))
    message = received(rig)
    array = message.array()

    assert np.array_equal(np.asarray(array).view(np.uint8), [1, 0, 2, 0])
    assert not array.flags.writeable
    del array
    message.release()


def test_send__what_never_fits_is_the_callers_mistake(rig: Any) -> None:
    """Both sizes are named, and no slot is taken."""
    producer = rig.producer(LINK)

    with pytest.raises(
        InputError, match=rf"found {producer.slot_bytes + 1} bytes; allowed {producer.slot_bytes} bytes"
    ):
        send_text(producer, 65536, Kind.TEXT, "x" * (producer.slot_bytes + 1))
    assert rig.held() == {}


def test_link__is_crowded_from_half_and_full_at_the_end(rig: Any) -> None:
    """Four slots: background work stops at two, everybody at four."""
    producer = rig.producer(LINK)
    seen = []
    for _ in range(producer.slots):
        seen.append(crowded(producer))
        send_text(producer, 65536, Kind.TEXT, "x")

    assert seen == [False, False, True, True]
    with pytest.raises(WouldBlock):
        send_text(producer, 65536, Kind.TEXT, "x")
    assert len(rig.got(LINK)) == 4


def test_number__arrives_as_an_array_of_one(rig: Any) -> None:
    """A port without a shape has single numbers."""
    send_array(rig.producer(LINK), 65536, Kind.DATA, np.array(7, np.float32))
    message = received(rig)
    assert message.array().tolist() == [7]
    message.release()
