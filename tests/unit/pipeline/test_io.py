# SPDX-License-Identifier: Apache-2.0
"""What a stage sees of one request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError, LeaseError, LinkError, StageError, WouldBlock
from dpfedge.pipeline.io import LinkIO
from dpfedge.pipeline.messages import LinkMessage, send_map, send_text
from dpfedge.stage.api import Kind, Mode, Wait
from dpfedge.stage.ports import Dim, Port


@pytest.fixture
def io(rig: Any) -> LinkIO:
    """The llm's side of an open request."""
    key = rig.arena.requests.open()
    outputs = {"sink": rig.arena.producer("llm.sink", 1)}
    return LinkIO(rig.arena, outputs, key, {"mode": int(Mode.CHAT), "route": ["llm"]})


def test_io__reads_mode_and_route(io: LinkIO) -> None:
    """A port off the route does not exist for the request."""
    assert io.mode is Mode.CHAT
    assert io.has("sink")
    assert not io.has("voice")
    assert io.receive() is None


def test_slot__is_the_receivers_memory(rig: Any, io: LinkIO) -> None:
    """What is written into the slot is what the other end reads, uncopied."""
    with pytest.raises(StopIteration) as done:
        next(io.loan("sink", (4,), "f32"))
    slot = done.value.value
    slot.array[:] = [1, 2, 3, 4]
    slot.send(3, kind=Kind.AUDIO, turn=7, captured_ns=5, last=True)

    message = LinkMessage(rig.lease("llm.sink"))
    assert message.array().tolist() == [1, 2, 3]
    assert (message.kind, message.turn, message.captured_ns, message.last) == (Kind.AUDIO, 7, 5, True)
    assert rig.arena.stats()["llm.sink"].copies == 0
    message.release()
    with pytest.raises(LeaseError):
        message.array()


def test_slot__sent_is_out_of_reach(rig: Any, io: LinkIO) -> None:
    """The stage's handle shows nothing of it any more, and the slot is free after the release."""
    with pytest.raises(StopIteration) as done:
        next(io.loan("sink", (4,), "f32"))
    slot = done.value.value
    slot.send(4, kind=Kind.AUDIO, turn=1)
    rig.lease("llm.sink").release()

    assert slot.array.size == 0
    assert rig.held() == {}


def test_slot__published_grows_under_the_reader(rig: Any, io: LinkIO) -> None:
    """Partial first, then the whole, in one slot."""
    with pytest.raises(StopIteration) as done:
        next(io.loan("sink", (2, 3), "f32"))
    slot = done.value.value
    slot.array[0] = 1
    slot.publish(1, kind=Kind.AUDIO, turn=1)
    slot.array[1] = 2
    slot.send(2, kind=Kind.AUDIO, turn=1)
    part, whole = LinkMessage(rig.lease("llm.sink")), LinkMessage(rig.lease("llm.sink"))

    assert (part.partial, whole.partial) == (True, False)
    assert part.array().shape == (1, 3)
    assert np.shares_memory(part.array(), whole.array())
    assert whole.array().tolist() == [[1, 1, 1], [2, 2, 2]]


def test_slot__abandoned_is_free(rig: Any, io: LinkIO) -> None:
    """Nothing arrives."""
    with pytest.raises(StopIteration) as done:
        next(io.loan("sink", (4,), "f32"))
    done.value.value.abandon()

    assert rig.lease("llm.sink") is None
    assert rig.held() == {}


def test_loan__waits_for_space(rig: Any, io: LinkIO) -> None:
    """A full link yields SPACE until the consumer released."""
    for _ in range(4):
        list(io.text("sink", Kind.TEXT, "x", turn=1))
    loan, text = io.loan("sink", (1,), "u8"), io.text("sink", Kind.TEXT, "y", turn=1)

    assert next(loan) is Wait.SPACE
    assert next(text) is Wait.SPACE
    rig.got("llm.sink")
    with pytest.raises(StopIteration):
        next(loan)
    with pytest.raises(StopIteration):
        next(text)


def test_turn__follows_what_was_received_and_sent(rig: Any, io: LinkIO) -> None:
    """A failure belongs to the turn that was talked about last."""
    rig.send("source.llm", io.key, Kind.RESPOND, turn=5)
    io.inbox.append(LinkMessage(rig.arena.consumer("source.llm", 1).receive()))
    io.receive()
    assert io.turn == 5

    list(io.map("sink", Kind.DONE, {}, turn=9))
    assert io.turn == 9


def test_cancelled__is_the_owners_word(rig: Any, io: LinkIO) -> None:
    """Turns below the mark, and everything of a closed request."""
    rig.arena.requests.cancel(io.key, 3)
    assert (io.cancelled(2), io.cancelled(3)) == (True, False)

    rig.arena.requests.close(io.key)
    assert io.cancelled(3)


def test_text__longer_than_a_slot_is_the_callers_mistake(rig: Any) -> None:
    """Not a broken link."""
    with pytest.raises(InputError, match=r"source\.llm: the message is too long; found 8193 bytes; allowed 8192 bytes"):
        send_text(rig.producer("source.llm"), 1, Kind.TEXT, "x" * 8193)
    assert rig.held() == {}


def test_send__on_a_full_link(rig: Any) -> None:
    """The caller decides whether to wait."""
    for _ in range(4):
        send_map(rig.producer("source.llm"), 1, Kind.START, {})

    with pytest.raises(WouldBlock):
        send_map(rig.producer("source.llm"), 1, Kind.START, {})


@pytest.mark.parametrize("payload", ["nonsense", "\xff\xff"])
def test_map__of_something_else(rig: Any, payload: str) -> None:
    """A payload that is no map is a broken contract, not a crash."""
    send_text(rig.producer("source.llm"), 1, Kind.START, payload)

    with pytest.raises(LinkError, match="message START"):
        LinkMessage(rig.arena.consumer("source.llm", 1).receive()).map()


def test_loan__of_a_file_leaves_half_the_slots(rig: Any) -> None:
    """A transcription waits while a conversation still gets a slot of the same link."""
    producer = rig.arena.producer("decoder.encoder", 77)
    file = LinkIO(rig.arena, {"encoder": producer}, 1, {"mode": int(Mode.TRANSCRIBE)})
    talk = LinkIO(rig.arena, {"encoder": producer}, 2, {"mode": int(Mode.CONVERSE)})
    held = [_finish(file.loan("encoder", (8,), "f32")) for _ in range(producer.slots // 2)]
    waiting = file.loan("encoder", (8,), "f32")

    assert next(waiting) is Wait.SPACE
    _finish(talk.loan("encoder", (8,), "f32")).abandon()
    held.pop().abandon()
    _finish(waiting).abandon()
    for slot in held:
        slot.abandon()


def _finish(steps: Any) -> Any:
    """The slot that a loan gives at once."""
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


def test_pending__of_a_port(rig: Any, io: LinkIO) -> None:
    """What its link's consumer has not given back."""
    assert io.pending("sink") == 0
    send_text(rig.arena.producer("llm.sink", 1), 1, Kind.TEXT, "x")
    assert io.pending("sink") == 1


def test_output__that_is_not_linked(io: LinkIO) -> None:
    """A name that is no port fails the request, and says what there is; the stage's process goes on."""
    for steps in (io.loan("voices", (1,), "f32"), io.text("voices", Kind.DATA, "x", turn=0)):
        with pytest.raises(StageError, match="port voices: nothing is linked to the output; allowed sink; ask"):
            next(steps)
    with pytest.raises(StageError, match="port voices"):
        io.pending("voices")


@pytest.mark.parametrize(("shape", "dtype"), [((4,), "f64"), ((2, 2), "f32"), ((9,), "f32"), ((0,), "f32")])
def test_loan__of_what_the_port_is_not_for(rig: Any, shape: tuple[int, ...], dtype: str) -> None:
    """The one that takes it would read something else than it was promised."""
    io = _typed(rig, Port("f32", (Dim("n", 1, 8),)))
    with pytest.raises(StageError, match=r"port sink: the port is for something else; found .*; allowed f32\[n 1..8\]"):
        next(io.loan("sink", shape, dtype))
    with pytest.raises(StageError, match=r"found bytes\[1\]"):
        next(io.text("sink", Kind.DATA, "x", turn=0))
    assert list(io.text("sink", Kind.END, "", turn=0)) == []


def _typed(rig: Any, port: Port) -> LinkIO:
    key = rig.arena.requests.open()
    options = {"mode": int(Mode.RUN), "route": ["llm"]}
    return LinkIO(rig.arena, {"sink": rig.arena.producer("llm.sink", 1)}, key, options, ports={"sink": port})


@pytest.mark.parametrize("turn", [-1, 2**32])
def test_turn__that_cannot_be(io: LinkIO, turn: int) -> None:
    """A failure that is told of it could not be sent either."""
    with pytest.raises(StageError, match=f"port sink: no turn; found {turn}; allowed 0 to 4294967295"):
        next(io.text("sink", Kind.DATA, "x", turn=turn))
    assert io.turn == 0


@pytest.mark.parametrize("rows", [5, -1])
def test_slot__of_fewer_rows(rig: Any, io: LinkIO, rows: int) -> None:
    """What lies behind the loan is not the stage's to show."""
    with pytest.raises(StopIteration) as done:
        next(io.loan("sink", (4,), "f32"))
    with pytest.raises(StageError, match=f"link llm.sink: not as many rows were loaned; found {rows}; allowed 0 to 4"):
        done.value.value.send(rows, kind=Kind.DATA, turn=1)


def test_slot__of_a_single_number(rig: Any) -> None:
    """It has no shape; at the other end it is an array of one."""
    io = _typed(rig, Port("f32"))
    with pytest.raises(StopIteration) as done:
        next(io.loan("sink", (), "f32"))
    done.value.value.array[0] = 7
    done.value.value.send(1, kind=Kind.DATA, turn=1)
    assert LinkMessage(rig.lease("llm.sink")).array().tolist() == [7]


def test_end__waits_on_a_link_that_fails(rig: Any) -> None:
    """The policy says what becomes of data; an end is not sent twice."""
    key = rig.arena.requests.open()
    producer = rig.arena.producer("llm.sink", 1)
    options = {"mode": int(Mode.RUN), "route": ["llm"]}
    io = LinkIO(rig.arena, {"sink": producer}, key, options, failing=frozenset({"sink"}))
    loans = [producer.loan(1) for _ in range(producer.slots)]
    with pytest.raises(StageError, match="the link is full"):
        next(io.text("sink", Kind.DATA, "x", turn=0))
    steps = io.text("sink", Kind.END, "", turn=0)
    assert next(steps) is Wait.SPACE
    producer.abandon(loans[0])
    assert list(steps) == []
