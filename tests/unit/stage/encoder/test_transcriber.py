# SPDX-License-Identifier: Apache-2.0
"""Drafts, partial and final transcripts of a request."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.stage.api import Kind, Mode, Wait
from dpfedge.stage.encoder import EncoderStage

TURN = 1024


@pytest.fixture
def stage(toy: Any) -> EncoderStage:
    return EncoderStage(toy(), {}, Budget())


@pytest.fixture
def io(driver: Any) -> Any:
    return driver.IO(Mode.CONVERSE, {}, ("sink", "text"))


def test_turn__draft_is_used_at_the_endpoint(
    driver: Any, stage: Any, io: Any, heard: Any, said: Any, marks: Any
) -> None:
    """The words recognised at the first silence are the final ones; nothing is recognised twice."""
    steps = stage.request(io)
    growing = heard(io, said(3), partial=True)
    io.put(Kind.DRAFT, marks(32000), turn=TURN)
    driver.drive(steps, io)
    assert io.of(Kind.DRAFT, "text") == io.of(Kind.DRAFT) == ["one two three"]

    final = heard(io, said(3))
    waits = driver.drive(steps, io)

    assert waits == [Wait.INPUT]
    assert io.of(Kind.TEXT, "text") == ["one two three"]
    assert io.of(Kind.TEXT) == [{"text": "one two three", "start_ms": 100, "end_ms": 1600}]
    (report,) = io.of(Kind.DONE)
    assert (report["drafted"], report["tokens"], report["speech_end_ns"]) == (True, 3, 7)
    assert (growing.released, final.released) == (1, 1)


def test_turn__speech_went_on(driver: Any, stage: Any, io: Any, heard: Any, said: Any, marks: Any) -> None:
    """A draft of other samples is dropped, and its cost is told."""
    steps = stage.request(io)
    heard(io, said(3), partial=True)
    io.put(Kind.DRAFT, marks(32000), turn=TURN)
    driver.drive(steps, io)

    io.put(Kind.DRAFT, marks(40000), turn=TURN)
    heard(io, said(5, 40000))
    driver.drive(steps, io)

    assert io.of(Kind.TEXT, "text") == ["one two three four five"]
    (report,) = io.of(Kind.DONE)
    assert not report["drafted"]
    assert report["wasted_ms"] > 0


def test_turn__final_arrives_while_the_draft_runs(
    driver: Any, stage: Any, io: Any, heard: Any, said: Any, marks: Any
) -> None:
    """The endpoint of the same samples does not begin again; the llm is told once."""
    steps = stage.request(io)
    heard(io, said(4), partial=True)
    io.put(Kind.DRAFT, marks(32000), turn=TURN)
    next(steps)
    heard(io, said(4))
    waits = driver.drive(steps, io)

    assert io.of(Kind.DRAFT, "text") == []
    assert io.of(Kind.TEXT, "text") == ["one two three four"]
    assert waits.count(Wait.STEP) == 4


def test_turn__final_of_other_samples_ends_the_draft(
    driver: Any, stage: Any, io: Any, heard: Any, said: Any, marks: Any
) -> None:
    """A draft that is of no use any more is given up at its next step."""
    steps = stage.request(io)
    heard(io, said(9), partial=True)
    io.put(Kind.DRAFT, marks(32000), turn=TURN)
    next(steps)
    heard(io, said(2, 48000))
    driver.drive(steps, io)

    assert io.of(Kind.TEXT, "text") == ["one two"]
    assert io.of(Kind.DRAFT) == []


def test_partial__growing_utterance(driver: Any, stage: Any, io: Any, heard: Any, said: Any) -> None:
    """Words are shown while someone speaks, each text once and not before there is enough new audio."""
    steps = stage.request(io)
    for words, samples in ((1, 5120), (2, 10240), (2, 15360), (3, 40960), (3, 81920)):
        heard(io, said(words, samples), partial=True)
        driver.drive(steps, io)

    assert io.of(Kind.DRAFT) == ["one two", "one two three"]
    assert io.of(Kind.DRAFT, "text") == []


def test_partial__steps_back_behind_a_draft(
    driver: Any, stage: Any, io: Any, heard: Any, said: Any, marks: Any
) -> None:
    """A partial transcript in progress is given up when somebody waits for words."""
    steps = stage.request(io)
    heard(io, said(8), partial=True)
    next(steps)
    heard(io, said(3, 40000), partial=True)
    io.put(Kind.DRAFT, marks(40000), turn=TURN)
    driver.drive(steps, io)

    assert io.of(Kind.DRAFT) == ["one two three"]


def test_partial__off(driver: Any, toy: Any, io: Any, heard: Any, said: Any) -> None:
    """`partials: false` shows nothing early."""
    steps = EncoderStage(toy(), {"partials": False}, Budget()).request(io)
    heard(io, said(3), partial=True)

    assert driver.drive(steps, io) == [Wait.INPUT]


def test_turn__nothing_said(driver: Any, stage: Any, io: Any, heard: Any, said: Any) -> None:
    """An utterance of no samples is a turn without words, told to everybody."""
    steps = stage.request(io)
    heard(io, said(1, 0))
    driver.drive(steps, io)

    assert io.of(Kind.TEXT, "text") == [""]
    assert io.of(Kind.TEXT)[0]["text"] == ""
    assert io.of(Kind.DONE)[0]["reason"] == "no_speech"


def test_turn__too_short_for_the_model(driver: Any, stage: Any, io: Any, heard: Any, said: Any) -> None:
    """Fewer samples than the model takes give no words and a reason."""
    steps = stage.request(io)
    heard(io, said(1, 1022))
    driver.drive(steps, io)

    assert io.of(Kind.DONE)[0]["reason"] == "too_short"


def test_turn__invented_words(driver: Any, toy: Any, io: Any, heard: Any, said: Any, marks: Any) -> None:
    """What the model makes of a breath is not told."""
    steps = EncoderStage(toy(), {"invented": ["one"]}, Budget()).request(io)
    for turn, speech_ms in ((TURN, 200), (2 * TURN, 900)):
        io.put(Kind.DRAFT, marks(32000, speech_ms), turn=turn)
        heard(io, said(1), turn=turn)
        driver.drive(steps, io)

    assert io.of(Kind.TEXT, "text") == ["", "one"]
    assert io.of(Kind.DONE)[0]["reason"] == "not_believed"


def test_turn__cancelled(driver: Any, stage: Any, io: Any, heard: Any, said: Any) -> None:
    """A cancelled turn is closed at the next step; the one after it is told."""
    steps = stage.request(io)
    first = heard(io, said(9))
    next(steps)
    io.cancel_before = TURN + 1
    heard(io, said(2), turn=2 * TURN)
    driver.drive(steps, io)

    assert io.of(Kind.TEXT, "text") == ["", "one two"]
    assert io.of(Kind.DONE)[0]["reason"] == "cancelled"
    assert first.released == 1


def test_file__segments_in_order(driver: Any, stage: Any, heard: Any, said: Any, marks: Any) -> None:
    """Segments that wait are transcribed in order, then the file is done."""
    io = driver.IO(Mode.TRANSCRIBE, {}, ("sink",))
    steps = stage.request(io)
    messages = []
    for turn, words in ((1, 2), (2, 1), (3, 4)):
        io.put(Kind.DRAFT, marks(32000) | {"start_ms": turn * 1000, "end_ms": turn * 1000 + 900}, turn=turn)
        messages.append(heard(io, said(words), turn=turn))
    io.put(Kind.DONE, {"segments": 3}, turn=0, last=True)
    driver.drive(steps, io)

    texts = [(text["text"], text["start_ms"]) for text in io.of(Kind.TEXT)]
    assert texts == [("one two", 1000), ("one", 2000), ("one two three four", 3000)]
    (report,) = io.of(Kind.DONE)
    assert (report["segments"], report["tokens"], report["finish"]) == (3, 7, "stop")
    assert [message.released for message in messages] == [1, 1, 1]


def test_file__without_speech(driver: Any, stage: Any, io: Any) -> None:
    """The decoder's reason is passed on."""
    io = driver.IO(Mode.TRANSCRIBE, {}, ("sink",))
    steps = stage.request(io)
    io.put(Kind.DONE, {"segments": 0, "reason": "too_short"}, turn=0, last=True)
    driver.drive(steps, io)

    (report,) = io.of(Kind.DONE)
    assert (report["finish"], report["reason"]) == ("no_speech", "too_short")


def test_close__leases_go_back(driver: Any, stage: Any, io: Any, heard: Any, said: Any) -> None:
    """A request that ends in the middle releases what it holds, once."""
    steps = stage.request(io)
    messages = [heard(io, said(9)), heard(io, said(1), turn=2 * TURN)]
    next(steps)
    next(steps)
    steps.close()

    assert [message.released for message in messages] == [1, 1]


def test_partial__waits_while_another_request_is_urgent(driver: Any, stage: Any, heard: Any, said: Any) -> None:
    """Partial transcripts of one request never delay the final words of another."""
    busy, growing = (driver.IO(Mode.CONVERSE, {}, ("sink", "text")) for _ in range(2))
    first, second = stage.request(busy), stage.request(growing)
    heard(busy, said(9))
    next(first)
    heard(growing, said(3), partial=True)

    assert driver.drive(second, growing) == [Wait.INPUT]
    driver.drive(first, busy)
    heard(growing, said(3, 33000), partial=True)
    driver.drive(second, growing)

    assert growing.of(Kind.DRAFT) == ["one two three"]
