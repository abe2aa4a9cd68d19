# SPDX-License-Identifier: Apache-2.0
"""`dpfedge replay`: what it shows of a recording, and what it says of one that was repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cbor2
import pytest

from dpfedge.cli import main, run_graph
from dpfedge.pipeline.flight import FlightFile, RecordKind
from dpfedge.pipeline.recorder import CLOSED, OPENED
from dpfedge.runtime import asynchronous
from dpfedge.runtime import replay as replaying
from dpfedge.runtime.replay import Replayed
from dpfedge.stage.api import Mode

Output = pytest.CaptureFixture[str]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A request that failed, and a stage that died."""
    file = FlightFile(tmp_path / "flight", 1, audio=True)
    about = {"package": "toy", "version": "1", "board": "host", "manifest": b"m", "links": [], "audio": True}
    file.describe(0, about)
    file.lanes[0].write(RecordKind.OPENED, 0, 0, OPENED.pack(0x2A, Mode.CHAT))
    error = {"type": "StageDied", "what": "its process died"}
    file.lanes[0].write(RecordKind.ENDED, 0, 0, cbor2.dumps({"key": 0x2A, "turn": 1, "error": error}))
    file.lanes[0].write(RecordKind.CLOSED, 0, 0, CLOSED.pack(0x2A))
    file.lanes[0].write(RecordKind.STAGE_DIED, 0, 0, b"llm")
    file.close()
    return tmp_path / "flight"


class Opened:
    """A runtime that is not needed."""

    manifest_sha256 = b"m"

    @classmethod
    async def open(cls, package: Path, **options: Any) -> Opened:
        assert options["board"] == "host"
        return cls()

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(self, *_: object) -> None:
        return


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What repeating gives; change it."""
    found: dict[str, Any] = {"compared": (1,)}

    async def replay(runtime: Any, requests: Any, facts: Any, *, from_start: bool) -> list[Replayed]:
        assert from_start
        return [Replayed(request.key, "chat", **found) for request in requests]

    monkeypatch.setattr(run_graph, "is_drawn", lambda package: False)
    monkeypatch.setattr(asynchronous, "AsyncRuntime", Opened)
    monkeypatch.setattr(replaying, "replay", replay)
    return found


def test_recording__is_shown(recording: Path, capsys: Output) -> None:
    """Which process, which package, what happened to stages and requests."""
    assert main(["replay", str(recording)]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("recording of process ")
    assert lines[1] == "runtime 0: toy 1 on host"
    assert lines[2].endswith("  stage llm died")
    assert lines[3].endswith("  request 000000000000002a chat: 0 messages, closed")
    assert lines[4] == "    turn 1: StageDied: its process died"

    assert main(["replay", str(recording), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["records"], told["requests"][0]["request"]) == (4, "000000000000002a")


def test_empty_recording__is_shown(tmp_path: Path, capsys: Output) -> None:
    """Of a server that died before its first request."""
    FlightFile(tmp_path / "flight", 1, audio=False).close()
    assert main(["replay", str(tmp_path / "flight")]) == 0
    assert "0 records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "code", "text"),
    [
        ({"compared": (1,)}, 0, "request 000000000000002a chat: 1 turns compared, the same"),
        ({"compared": (1,), "differences": ("turn 1: text was 'a', is 'b'",)}, 1, "  turn 1: text was 'a', is 'b'"),
        ({"compared": (1,), "skipped_turns": (2,)}, 0, "  turn 2: not compared: it was interrupted"),
        ({"compared": (), "skipped": "sampled"}, 1, "nothing could be compared"),
        (
            {"compared": (1,), "sound": False},
            0,
            "  samples not compared: the voice's noise depends on all it said before, which was not all repeated",
        ),
    ],
)
def test_repeated__says_what_is_different(
    recording: Path, result: dict[str, Any], capsys: Output, found: dict[str, Any], code: int, text: str
) -> None:
    """Exit code 0 only when something was compared and all of it is the same."""
    result.clear()
    result.update(found)
    assert main(["replay", str(recording), "toy.dpfbin", "--board", "host"]) == code
    assert text in capsys.readouterr().out.splitlines()


def test_repeated__with_another_package_is_noted(
    recording: Path, result: dict[str, Any], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared all the same."""
    monkeypatch.setattr(Opened, "manifest_sha256", b"other")
    assert main(["replay", str(recording), "toy.dpfbin", "--board", "host", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["notes"] == ["note: the recording is of another package, or of more than one"]
    assert told["requests"][0]["key"] == "000000000000002a"


def test_no_recording__is_refused(tmp_path: Path, capsys: Output) -> None:
    """By its file name."""
    (tmp_path / "x").write_bytes(b"x" * 9000)
    assert main(["replay", str(tmp_path / "x")]) == 4
    assert "not a flight recording" in capsys.readouterr().err
