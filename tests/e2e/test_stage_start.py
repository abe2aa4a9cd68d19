# SPDX-License-Identifier: Apache-2.0
"""Stages of a pipeline file that never become ready, or do not come back: named, bounded, and the others go on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import StageError
from dpfedge.pipeline import unit
from dpfedge.runtime import Pipeline

FILE = """\
name: moody
pipeline:
  stages:
    first: {kind: "moody:Moody"}
    second: {kind: "moody:Moody"}
    alone: {kind: "moody:Moody"}
  links:
    - {from: first.out, to: second.in}
  budgets: {start: %s}
"""

# what a stage does when it warms up is in a file beside it, a line for each start
STAGES = """\
import os
import signal
from pathlib import Path

from dpfedge.stage import Dim, Each, Kind, Port, Ports

NUMBERS = Port("f32", (Dim("n", 1, 16),))


class Moody(Each):
    ports = Ports({"in": NUMBERS}, {"out": NUMBERS})

    def warm(self):
        moods = Path(__file__).with_name(self.name)
        lines = moods.read_text().splitlines() if moods.exists() else []
        moods.write_text("\\n".join(lines[1:]))
        if lines and lines[0] == "hangs":
            signal.pause()
        if lines and lines[0] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)

    def each(self, io, message):
        numbers = message.array()
        slot = yield from io.loan("out", numbers.shape, "f32")
        slot.array[:] = numbers + 1
        slot.send(len(numbers), kind=Kind.DATA, turn=message.turn)
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`write(start, first=[...])`: the pipeline file, and what each stage does at each of its starts."""
    monkeypatch.setattr(unit, "BACK_OFF_S", (0.0, 0.0))

    def make(start: str, **moods: list[str]) -> Path:
        (tmp_path / "moody.py").write_text(STAGES)
        for stage, lines in moods.items():
            (tmp_path / stage).write_text("\n".join(lines))
        path = tmp_path / "moody.yaml"
        path.write_text(FILE % start)
        return path

    return make


def ask(pipeline: Pipeline, port: str, numbers: list[float]) -> list[float]:
    with pipeline.request() as request:
        request.send(port, np.array(numbers, np.float32))
        request.finish()
        return [float(n) for output in request.outputs() if output.port for n in output.array]


def state(pipeline: Pipeline, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = pipeline.status(memory=False)["stages"][stage]
    return found


def test_stage__that_never_becomes_ready_is_named(write: Write) -> None:
    """In the time the pipeline gives it; nothing is left behind."""
    path = write("1500ms", second=["hangs"])
    before = set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    with pytest.raises(StageError, match=r"stage second: it was not ready after 1\.5 s and was killed") as caught:
        Pipeline.open(path, board="host")
    assert caught.value.stage == "second"
    assert set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()) <= before


def test_stage__that_hangs_when_it_is_restarted_comes_back_after_that(write: Write, until: Callable[..., None]) -> None:
    """The start that hung is one death more; meanwhile the others serve, and afterwards all do."""
    path = write("1500ms", second=["", "hangs", ""])
    with Pipeline.open(path, board="host") as pipeline:
        others = [state(pipeline, name)["pid"] for name in ("first", "alone")]
        os.kill(state(pipeline, "second")["pid"], signal.SIGKILL)
        until(lambda: state(pipeline, "second")["restarts"] == 2)
        until(lambda: state(pipeline, "second")["state"] == "ready")

        assert [state(pipeline, name)["pid"] for name in ("first", "alone")] == others
        assert sorted(ask(pipeline, "first.in", [1, 2])) == [3, 4]


def test_stage__that_dies_at_every_restart_is_down_and_named(
    write: Write, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The circuit breaker opens: requests are told at once. When its time has passed, the stage is tried again."""
    monkeypatch.setattr(unit, "STAGE_RESTARTS_MAX", 3)
    monkeypatch.setattr(unit, "STAGE_RESTARTS_WINDOW_S", 4)
    path = write("30s", second=["", "dies", "dies", ""])
    with Pipeline.open(path, board="host") as pipeline:
        others = [state(pipeline, name)["pid"] for name in ("first", "alone")]
        os.kill(state(pipeline, "second")["pid"], signal.SIGKILL)
        until(lambda: state(pipeline, "second")["state"] == "failed")
        asked = time.monotonic()
        with pytest.raises(StageError, match="the stage is down: it died too often") as caught:
            ask(pipeline, "first.in", [1])
        assert caught.value.stage == "second"
        assert time.monotonic() - asked < 30  # a watchdog: it is told, it does not wait

        until(lambda: state(pipeline, "second")["state"] == "ready")
        assert [state(pipeline, name)["pid"] for name in ("first", "alone")] == others
        assert sorted(ask(pipeline, "first.in", [1, 2])) == [3, 4]
