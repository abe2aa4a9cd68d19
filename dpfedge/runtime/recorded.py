# SPDX-License-Identifier: Apache-2.0
"""A flight recording in, the requests in it out: what each was given, and what came of every turn.

It runs nothing; `replay.py` does.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import cbor2

from dpfedge.errors import FormatError
from dpfedge.link import LAST, Descriptor
from dpfedge.pipeline.flight import Record, Recording, RecordKind
from dpfedge.pipeline.recorder import CANCELLED, CLOSED, OPENED
from dpfedge.records import dataclass
from dpfedge.stage.api import Kind, Mode

__all__ = ["Given", "Outcome", "RecordedRequest", "recorded_requests"]


@dataclass(slots=True)
class Outcome:
    """What came of one turn (of a file: of one segment, and 0 is its end); `audio` is i16 samples as bytes."""

    transcript: str = ""
    text: str = ""
    audio: bytearray = field(default_factory=bytearray)
    finish: str | None = None
    """None: it had not ended."""
    error: str | None = None
    outputs: dict[str, list[bytes]] = field(default_factory=dict)
    """Of a drawn graph: `stage.port`, or a stage, → the messages it gave; what it reports of itself is not in it."""


@dataclass(frozen=True, slots=True)
class Given:
    """One thing the request was given: a message to a stage, or (`cancel_before`) a cancel."""

    stage: str = ""
    kind: Kind = Kind.START
    turn: int = 0
    last: bool = False
    payload: bytes = b""
    ended_before: int = 0
    """Turns of the request that had ended before it."""
    progress: tuple[tuple[int, int], ...] = ()
    """Turns that had begun and not ended before it, each with how many pieces of words had come of it."""
    cancel_before: int = 0
    port: str = ""
    """Of a drawn graph; empty for the stage's own link."""
    told: Descriptor | None = None
    """What the link carried beside the payload."""


@dataclass(slots=True)
class RecordedRequest:
    """One request; `problem` says why it cannot be repeated."""

    key: int
    runtime: int
    at_ns: int
    mode: Mode | None = None
    given: list[Given] = field(default_factory=list)
    turns: dict[int, Outcome] = field(default_factory=dict)
    interrupted: set[int] = field(default_factory=set)
    ended: int = 0
    closed: bool = False
    closed_ns: int = 0
    pieces: dict[int, int] = field(default_factory=dict)
    """Messages with words, by turn."""
    problem: str | None = None

    @property
    def voiced(self) -> bool:
        """Whether the voice had a part in it."""
        return any(one.audio for one in self.turns.values()) or "voice" in {one.stage for one in self.given}

    def progress(self) -> tuple[tuple[int, int], ...]:
        """Turns that go on now, and how many pieces of words came of each."""
        return tuple((turn, count) for turn, count in self.pieces.items() if self.turns[turn].finish is None)

    def start(self, stage: str) -> Mapping[str, Any]:
        """The map of its START message to a stage; empty when it got none."""
        found = (one for one in self.given if one.stage == stage and one.kind is Kind.START and one.payload)
        return next((cbor2.loads(one.payload) for one in found), {})


def recorded_requests(recording: Recording) -> list[RecordedRequest]:
    """Every request of a recording, oldest first; FormatError when a record makes no sense."""
    reader = _Reader(recording)
    for record in recording.records:
        try:
            reader.read(record)
        except (struct.error, cbor2.CBORDecodeError, ValueError, LookupError, TypeError, AttributeError) as error:
            found = f"{record.kind.name} with {len(record.payload)} bytes: {error}"
            raise FormatError("a record makes no sense", where="flight recording", found=found) from error
    return reader.finish()


class _Reader:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._live: dict[tuple[int, int], RecordedRequest] = {}
        self._all: list[RecordedRequest] = []

    def read(self, record: Record) -> None:
        if record.kind is RecordKind.OPENED:
            key, mode = OPENED.unpack(record.payload)
            request = self._begin(record, key)
            request.mode = Mode(mode)
        elif record.kind is RecordKind.CLOSED:
            (key,) = CLOSED.unpack(record.payload)
            request = self._request(record, key)
            request.closed, request.closed_ns = True, record.at_ns
            self._live.pop((record.runtime, key), None)
        elif record.kind is RecordKind.CANCELLED:
            self._cancelled(record)
        elif record.kind in (RecordKind.SENT, RecordKind.RECEIVED):
            self._message(record)
        elif record.kind is RecordKind.ENDED:
            self._ended(record)
        elif record.kind is RecordKind.STAGE_DIED:
            for (runtime, _), request in self._live.items():
                if runtime == record.runtime:
                    request.problem = request.problem or f"stage {record.payload.decode()} died during it"

    def finish(self) -> list[RecordedRequest]:
        """All of them; those with parts missing know it."""
        since = self._recording.complete_since_ns
        for request in self._all:
            facts = self._recording.runtimes.get(request.runtime, {})
            if request.mode is None:
                request.problem = "its beginning was overwritten"
            elif not facts.get("audio"):
                request.problem = "recorded without --flight-audio"
            elif request.at_ns < since[1 + request.runtime % 2]:
                request.problem = request.problem or "a part of its answer was overwritten"
        return self._all

    def _begin(self, record: Record, key: int) -> RecordedRequest:
        request = RecordedRequest(key, record.runtime, record.at_ns)
        self._live[record.runtime, key] = request
        self._all.append(request)
        return request

    def _request(self, record: Record, key: int) -> RecordedRequest:
        return self._live.get((record.runtime, key)) or self._begin(record, key)

    def _cancelled(self, record: Record) -> None:
        key, before = CANCELLED.unpack(record.payload)
        request = self._request(record, key)
        request.given.append(Given(ended_before=request.ended, progress=request.progress(), cancel_before=before))
        request.interrupted |= {turn for turn, one in request.turns.items() if turn < before and one.finish is None}

    def _message(self, record: Record) -> None:
        told, payload = Descriptor.read(record.payload[:64]), record.payload[64:]
        producer, consumer, *ports = (*self._link(record).split("."), "", "")[:3]
        if record.kind is RecordKind.RECEIVED and (record.runtime, told.request) not in self._live:
            return  # it came after its request was closed, and nobody read it
        request = self._request(record, told.request)
        if record.kind is RecordKind.SENT:
            last = bool(told.flags & LAST)
            if payload and told.kind not in (Kind.AUDIO, Kind.TEXT, Kind.DATA):
                _check_map(Kind(told.kind), cbor2.loads(payload))
            when = (request.ended, request.progress())
            request.given.append(
                Given(consumer, Kind(told.kind), told.turn, last, payload, *when, port=ports[0], told=told)
            )
        elif request.mode is Mode.RUN:
            place = f"{producer}.{consumer}" if ports[0] else producer
            if payload and told.kind not in (Kind.DONE, Kind.FAILED):
                request.turns.setdefault(0, Outcome()).outputs.setdefault(place, []).append(payload)
        elif payload:
            _add(request.turns.setdefault(told.turn, Outcome()), producer, Kind(told.kind), payload)
            if told.kind == Kind.TEXT:
                request.pieces[told.turn] = request.pieces.get(told.turn, 0) + 1

    def _link(self, record: Record) -> str:
        links = self._recording.runtimes.get(record.runtime, {}).get("links", [])
        return str(links[record.link]) if record.link < len(links) else ""

    def _ended(self, record: Record) -> None:
        data = cbor2.loads(record.payload)
        request = self._request(record, data["key"])
        outcome = request.turns.setdefault(data["turn"], Outcome())
        outcome.finish = data.get("finish", "failed")
        if error := data.get("error"):
            outcome.error = f"{error.get('type')}: {error.get('what')}"
        if outcome.finish == "cancelled":
            request.interrupted.add(data["turn"])
        request.ended += 1


def _check_map(kind: Kind, data: Mapping[str, Any]) -> None:
    if kind is Kind.START:
        Mode(data["mode"])
        tuple(data["route"])
    data.keys()


def _add(outcome: Outcome, stage: str, kind: Kind, payload: bytes) -> None:
    if (stage, kind) == ("encoder", Kind.TEXT):
        outcome.transcript += str(cbor2.loads(payload)["text"])
    elif (stage, kind) == ("llm", Kind.TEXT):
        outcome.text += payload.decode()
    elif (stage, kind) == ("voice", Kind.AUDIO):
        outcome.audio += payload
