# SPDX-License-Identifier: Apache-2.0
"""Requests of a recording: what they were given, what came of them, and why some cannot be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import pytest

from dpfedge.errors import FormatError
from dpfedge.link import LAST, Descriptor
from dpfedge.pipeline import flight
from dpfedge.pipeline.flight import FlightFile, Recording, RecordKind
from dpfedge.pipeline.recorder import CANCELLED, CLOSED, OPENED
from dpfedge.runtime.recorded import Outcome, RecordedRequest, recorded_requests
from dpfedge.stage.api import Kind, Mode

LINKS = ["source.decoder", "source.llm", "encoder.sink", "llm.sink", "voice.sink"]
KEY = 0x10001


class Written:
    """A recording that a test writes."""

    def __init__(self, path: Path, audio: bool = True) -> None:
        self.path, self.file = path, FlightFile(path, 1, audio=audio)
        self.file.describe(0, {"links": LINKS, "audio": audio})

    def event(self, kind: RecordKind, payload: bytes) -> None:
        self.file.lanes[0].write(kind, 0, 0, payload)

    def opened(self, mode: Mode = Mode.CONVERSE, key: int = KEY) -> None:
        self.event(RecordKind.OPENED, OPENED.pack(key, mode))

    def message(self, link: str, kind: Kind, data: bytes, turn: int = 0, flags: int = 0) -> None:
        sent = link.startswith("source")
        told = Descriptor(KEY, 0, 0, 0, 0, 0, turn, 0, len(data), (0, 0, 0), 0, 0, 3, kind, flags).pack()
        lane, what = (self.file.lanes[0], RecordKind.SENT) if sent else (self.file.lanes[1], RecordKind.RECEIVED)
        lane.write(what, 0, LINKS.index(link), told + data)

    def ended(self, turn: int, **told: Any) -> None:
        self.event(RecordKind.ENDED, cbor2.dumps({"key": KEY, "turn": turn, **told}))

    def read(self) -> list[RecordedRequest]:
        return recorded_requests(Recording(self.path))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """An empty recording with audio."""
    one = Written(tmp_path / "flight")
    yield one
    one.file.close()


START = cbor2.dumps({"mode": int(Mode.CONVERSE), "route": ["llm"]})


def test_request__with_everything_it_was_given(written: Written) -> None:
    """In order, each with the number of turns that had ended before; the outcome is added up by turn."""
    written.opened()
    written.message("source.llm", Kind.START, START)
    written.message("source.decoder", Kind.AUDIO, b"abcd")
    written.message("encoder.sink", Kind.TEXT, cbor2.dumps({"text": "What?"}), 1024)
    for text in (b"It ", b"is."):
        written.message("llm.sink", Kind.TEXT, text, 1024)
        written.message("voice.sink", Kind.AUDIO, text, 1024)
    written.message("llm.sink", Kind.DONE, cbor2.dumps({"finish": "stop"}), 1024)
    written.ended(1024, finish="stop")
    written.message("source.decoder", Kind.AUDIO, b"", flags=LAST)
    written.event(RecordKind.CLOSED, CLOSED.pack(KEY))
    [found] = written.read()

    given = [(one.stage, one.kind, one.payload, one.last, one.ended_before) for one in found.given]
    assert given == [
        ("llm", Kind.START, START, False, 0),
        ("decoder", Kind.AUDIO, b"abcd", False, 0),
        ("decoder", Kind.AUDIO, b"", True, 1),
    ]
    assert found.turns == {1024: Outcome("What?", "It is.", bytearray(b"It is."), "stop")}
    assert (found.mode, found.ended, found.closed, found.problem, found.voiced) == (Mode.CONVERSE, 1, True, None, True)
    assert found.closed_ns > found.at_ns
    assert found.start("llm") == {"mode": 4, "route": ["llm"]}
    assert found.start("voice") == {}


def test_key__used_again_is_another_request(written: Written) -> None:
    """What comes after a close belongs to nobody."""
    written.opened(Mode.CHAT)
    written.event(RecordKind.CLOSED, CLOSED.pack(KEY))
    written.message("llm.sink", Kind.TEXT, b"late", 1)
    written.opened(Mode.SPEAK)
    found = written.read()
    assert [(one.mode, one.turns) for one in found] == [(Mode.CHAT, {}), (Mode.SPEAK, {})]


def test_interrupted_turn__is_known(written: Written) -> None:
    """By the cancel of a turn that was going on, or by its end; the cancel is a thing that was given."""
    written.opened()
    written.message("llm.sink", Kind.TEXT, b"It", 1024)
    written.event(RecordKind.CANCELLED, CANCELLED.pack(KEY, 1025))
    written.ended(2048, finish="cancelled")
    written.ended(3072, error={"type": "StageDied", "what": "died"})
    [found] = written.read()
    assert found.interrupted == {1024, 2048}
    assert [(one.cancel_before, one.progress) for one in found.given] == [(1025, ((1024, 1),))]
    assert (found.turns[3072].finish, found.turns[3072].error) == ("failed", "StageDied: died")


def test_problem__of_a_request_that_cannot_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage died, words are missing, or the ring has gone on."""
    one = Written(tmp_path / "died")
    one.opened()
    one.event(RecordKind.STAGE_DIED, b"voice")
    assert [request.problem for request in one.read()] == ["stage voice died during it"]

    other = Written(tmp_path / "mute", audio=False)
    other.opened()
    assert [request.problem for request in other.read()] == ["recorded without --flight-audio"]

    monkeypatch.setattr(flight, "lane_bytes", lambda seconds, audio: 2048)
    old = Written(tmp_path / "old")
    old.opened()
    for _ in range(30):
        old.message("source.decoder", Kind.AUDIO, b"abcd")
    assert [request.problem for request in old.read()] == ["its beginning was overwritten"]
    gone = Written(tmp_path / "gone")
    gone.opened()
    for _ in range(30):
        gone.message("voice.sink", Kind.AUDIO, b"abcd", 1024)
    assert [request.problem for request in gone.read()] == ["a part of its answer was overwritten"]
    for each in (one, other, old, gone):
        each.file.close()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (RecordKind.OPENED, b"x"),
        (RecordKind.OPENED, OPENED.pack(1, 77)),
        (RecordKind.CANCELLED, b""),
        (RecordKind.CLOSED, bytes(9)),
        (RecordKind.ENDED, b"\xff"),
        (RecordKind.ENDED, cbor2.dumps({"turn": 1})),
        (RecordKind.ENDED, cbor2.dumps([1])),
        (RecordKind.STAGE_DIED, b"\xff"),
        (RecordKind.SENT, bytes(63)),
        (RecordKind.SENT, bytes(62) + b"\x01\x00" + cbor2.dumps({"mode": 99, "route": []})),
        (RecordKind.SENT, bytes(62) + b"\x01\x00" + cbor2.dumps(5)),
        (RecordKind.SENT, bytes(62) + b"\xee\x00"),
    ],
)
def test_record__that_makes_no_sense_is_named(written: Written, kind: RecordKind, payload: bytes) -> None:
    """A file somebody made up; never another error."""
    written.opened()
    written.event(kind, payload)
    with pytest.raises(FormatError, match=kind.name):
        written.read()
