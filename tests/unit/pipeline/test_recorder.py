# SPDX-License-Identifier: Apache-2.0
"""What a recorder writes of a runtime: descriptors and events, and words only when asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cbor2
import pytest

from dpfedge.errors import InputError
from dpfedge.link import Descriptor
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.pipeline.flight import Record, Recording, RecordKind
from dpfedge.pipeline.messages import send_text
from dpfedge.pipeline.observer import tapped_consumer, tapped_producer
from dpfedge.pipeline.plan import Plan
from dpfedge.pipeline.recorder import CANCELLED, CLOSED, OPENED, Recorder
from dpfedge.stage.api import Kind, Mode

STAGES = {name: {"model": "m"} for name in ("decoder", "encoder", "llm", "voice")}


def _plan() -> Any:
    manifest = SimpleNamespace(name="toy", version="1", models={}, pipeline={"stages": {**STAGES}})
    package = SimpleNamespace(manifest=manifest, path=Path("toy.dpfbin"), manifest_sha256=b"\1" * 32)
    return Plan.of_package(SimpleNamespace(package=package, board=SimpleNamespace(id="host")))  # type: ignore[arg-type]


def _recorded(path: Path, rig: Any, audio: bool) -> Recording:
    recorder = Recorder(path, 1, audio=audio)
    observer = recorder(_plan())
    key = rig.arena.requests.open()
    observer.opened(key, Mode.CONVERSE)
    send_text(tapped_producer(rig.producer("source.llm"), observer.tap), key, Kind.TEXT, "the secret", turn=4)
    sink = tapped_consumer(rig.consumer("llm.sink"), observer.tap)
    for kind in (Kind.TEXT, Kind.DRAFT):
        send_text(rig.producer("llm.sink"), key, kind, "no secret", turn=4)
        sink.receive().release()  # type: ignore[union-attr]
    observer.cancelled(key, 5)
    observer.ended(key, Mode.CONVERSE, TurnDone(4, 0, "cancelled"))
    observer.ended(key, Mode.CONVERSE, Failed(0, 0, InputError("bad", stage="decoder", found="the secret")))
    observer.closed(key)
    observer.stage_died("llm")
    observer.stage_ready("llm")
    recorder.close()
    return Recording(path)


def _of(recording: Recording, kind: RecordKind) -> list[Record]:
    return [record for record in recording.records if record.kind is kind]


def test_recorder__writes_descriptors_and_events(tmp_path: Path, rig: Any) -> None:
    """Without a word of the request."""
    path = tmp_path / "flight"
    recording = _recorded(path, rig, audio=False)
    [runtime] = recording.runtimes.values()
    [sent] = _of(recording, RecordKind.SENT)
    received = _of(recording, RecordKind.RECEIVED)
    key, mode = OPENED.unpack(_of(recording, RecordKind.OPENED)[0].payload)

    assert (runtime["package"], runtime["manifest"], runtime["temperature"]) == ("toy", b"\1" * 32, 0.0)
    assert (runtime["links"][sent.link], runtime["links"][received[0].link]) == ("source.llm", "llm.sink")
    assert mode == Mode.CONVERSE
    assert runtime["noiseless"] is False
    told = Descriptor.read(sent.payload)
    assert (told.request, told.turn, told.kind, told.nbytes) == (key, 4, Kind.TEXT, 10)
    assert [Descriptor.read(record.payload).kind for record in received] == [Kind.TEXT, Kind.DRAFT]
    assert CANCELLED.unpack(_of(recording, RecordKind.CANCELLED)[0].payload) == (key, 5)
    assert CLOSED.unpack(_of(recording, RecordKind.CLOSED)[0].payload) == (key,)
    ended = [cbor2.loads(record.payload) for record in _of(recording, RecordKind.ENDED)]
    assert ended[0] == {"key": key, "turn": 4, "finish": "cancelled"}
    assert ended[1]["error"] == {"type": "InputError", "what": "bad", "where": "stage decoder"}
    assert [r.payload for r in recording.records if r.kind in (RecordKind.STAGE_DIED, RecordKind.STAGE_READY)] == [
        b"llm",
        b"llm",
    ]
    assert b"secret" not in path.read_bytes()


def test_recorder__keeps_words_when_told_to(tmp_path: Path, rig: Any) -> None:
    """Of everything sent, and of what is an outcome; what may still change is none."""
    recording = _recorded(tmp_path / "flight", rig, audio=True)

    assert [record.payload[64:] for record in _of(recording, RecordKind.SENT)] == [b"the secret"]
    assert [record.payload[64:] for record in _of(recording, RecordKind.RECEIVED)] == [b"no secret", b""]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_runtimes__of_one_process_have_lanes_of_their_own(tmp_path: Path, rig: Any, number: int) -> None:
    """Neighbours write into different ones; each has its number."""
    recorder = Recorder(tmp_path / "flight", 1, audio=False)
    observers = [recorder(_plan()) for _ in range(number + 1)]
    rig.send("llm.sink", 1, Kind.DONE)
    tapped_consumer(rig.consumer("llm.sink"), observers[-1].tap).receive()
    recorder.close()
    data = (tmp_path / "flight").read_bytes()
    lane = (len(data) - 4096) // 3
    assert data[4096 + (1 + number % 2) * lane :][:4] == b"DPFR"
    assert Recording(tmp_path / "flight").records[0].runtime == number
