# SPDX-License-Identifier: Apache-2.0
"""Lines of the turn log: their fields, their bound, and a disk that is full."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StageDied, UsageError
from dpfedge.limits import TURN_LINE_MAX_BYTES
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.serve import turnlog
from dpfedge.serve.turnlog import TurnLog, line
from dpfedge.serve.turns import Happened
from dpfedge.stage.api import Mode

NOW = time.monotonic_ns()
REPORT = {
    "llm": {"source": "llm", "prefill_ms": 1.23456, "first_token_ns": NOW - 5_000_000, "clauses": 2, "words": "x" * 99},
    "runtime": {"done_ns": NOW, "first_audio_ns": 0},
}
DONE = Happened("done", NOW, 0xAB, 1024, Mode.CONVERSE, NOW - 10**9, TurnDone(1024, NOW, "stop", REPORT), "toy")


def test_line__of_a_turn() -> None:
    """Numbers and short words of the report; moments as how long ago."""
    found = json.loads(line(DONE))
    when = found.pop("time")

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", when)
    assert found == {
        "package": "toy", "event": "turn", "request": "00000000000000ab", "turn": 1024, "mode": "converse",
        "outcome": "done", "open_ms": 1000.0, "finish": "stop",
        "stages": {
            "llm": {"source": "llm", "prefill_ms": 1.235, "first_token_ago_ms": 5.0, "clauses": 2},
            "runtime": {"done_ago_ms": 0.0},
        },
    }  # fmt: skip


def test_line__of_a_failure_says_where_and_what() -> None:
    """Not what was found: that may be the caller's own text."""
    error = StageDied("its process died", stage="llm", found="a secret", remedy="try again")
    found = json.loads(line(Happened("failed", NOW, 1, 2, Mode.CHAT, 0, Failed(2, NOW, error), "toy")))

    assert (found["outcome"], "open_ms" in found, "stages" in found) == ("failed", False, False)
    parts = {"type": "StageDied", "where": "stage llm", "what": "its process died", "remedy": "try again"}
    assert found["error"] == parts


def test_line__of_stages_and_losses() -> None:
    """Short ones."""
    died = json.loads(line(Happened("died", NOW, package="toy", stage="llm")))
    lost = json.loads(line(Happened("lost", NOW, turn=7)))
    gone = json.loads(line(Happened("cancelled", NOW, 1, 0, Mode.SPEAK, package="toy")))

    assert (died["event"], died["stage"], died["package"]) == ("stage_died", "llm", "toy")
    assert (lost["event"], lost["lines"]) == ("lost", 7)
    assert (gone["outcome"], "error" in gone) == ("cancelled", False)


def test_line__of_what_happened_to_a_stage_or_the_pipeline() -> None:
    """All that was told of it."""
    step = {"what": "step entered", "at_ns": NOW, "step": "hot", "level": 2, "reason": "temperature 91.0 °C"}
    entered = json.loads(line(Happened("event", NOW, package="toy", detail=step)))
    swap = {"what": "replaced", "at_ns": NOW, "model": "small", "settings": {"sampling": {"max_tokens": 3}}}
    replaced = json.loads(line(Happened("event", NOW, package="toy", stage="llm", detail=swap)))

    assert (entered["event"], entered["package"], "stage" in entered) == ("step_entered", "toy", False)
    assert entered["detail"] == {"step": "hot", "level": 2, "reason": "temperature 91.0 °C"}
    assert (replaced["event"], replaced["stage"]) == ("stage_replaced", "llm")
    assert replaced["detail"] == {"model": "small", "settings": {"sampling": {"max_tokens": 3}}}


def test_line__is_bounded() -> None:
    """Whatever a stage reports and whatever an error says."""
    report: dict[str, Any] = {"llm": {f"number{n}": n for n in range(10_000)}}
    long = Happened("done", NOW, 1, 1, Mode.CHAT, 0, TurnDone(1, NOW, "stop", report), "p" * 10**5)
    error = StageDied("é" * 10**5, stage="s" * 10**5, remedy='"' * 10**5)
    worst = Happened("failed", NOW, 1, 1, Mode.CHAT, 0, Failed(1, NOW, error), "\x01" * 10**5)

    told = Happened("event", NOW, detail={"what": "replace failed", "at_ns": NOW, "error": {"found": "x" * 10**5}})
    assert json.loads(line(told)).keys() == {"time", "package", "event", "cut"}
    for one in (long, worst, told):
        text = line(one)
        assert len(text) <= TURN_LINE_MAX_BYTES
        assert text.count(b"\n") == 1
        json.loads(text)
    assert json.loads(line(long))["cut"] is True


def test_log__appends_and_follows_a_rotation(tmp_path: Path) -> None:
    """The moved file gets no more once the path was opened anew."""
    path = tmp_path / "turns.log"
    path.write_text("before\n")
    log = TurnLog(path)
    log(DONE)
    path.rename(tmp_path / "turns.log.1")
    log(DONE)
    log.reopen()
    log(DONE)
    log.close()

    assert len((tmp_path / "turns.log.1").read_text().splitlines()) == 3
    assert len(path.read_text().splitlines()) == 1


def test_log__that_cannot_be_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the start it is an error; after a rotation the old file goes on."""
    with pytest.raises(UsageError, match="--log"):
        TurnLog(tmp_path / "no" / "turns.log")

    folder = tmp_path / "folder"
    folder.mkdir()
    log = TurnLog(folder / "log")
    folder.rename(tmp_path / "moved")
    with caplog.at_level(logging.ERROR):
        log.reopen()
    log(DONE)
    log.close()
    assert "the old file is still written" in caplog.text
    assert (tmp_path / "moved" / "log").read_bytes().count(b"\n") == 1


def test_full_disk__is_counted_and_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised; the lines that are missing are told when there is room again."""
    log = TurnLog(tmp_path / "log")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.ERROR):
        monkeypatch.setattr(turnlog.os, "write", full)
        for _ in range(3):
            log(DONE)
        monkeypatch.setattr(turnlog.os, "write", real)
    assert log.failed == 3
    log(DONE)
    log(DONE)
    log.close()

    lines = [json.loads(text) for text in (tmp_path / "log").read_text().splitlines()]
    assert [one["event"] for one in lines] == ["lost", "turn", "turn"]
    assert lines[0]["lines"] == 3
    assert caplog.text.count("No space left on device") == 1


def test_dash__is_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    """Which is not closed, and not opened anew."""
    log = TurnLog(Path("-"))
    log.reopen()
    log(DONE)
    log.close()
    assert json.loads(capfd.readouterr().out)["turn"] == 1024


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_disk__that_is_really_full() -> None:
    """The kernel's own answer."""
    log = TurnLog(Path("/dev/full"))
    log(DONE)
    log(DONE)
    log.close()
    assert log.failed == 2
