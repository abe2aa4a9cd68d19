# SPDX-License-Identifier: Apache-2.0
"""The flags of observing: what they make, and what they refuse."""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.cli.observing import add_observe_arguments, observing
from dpfedge.errors import UsageError
from dpfedge.pipeline.events import TurnDone
from dpfedge.pipeline.flight import Recording
from dpfedge.pipeline.observer import Observers
from dpfedge.pipeline.plan import Plan
from dpfedge.stage.api import Mode


def _args(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_observe_arguments(parser)
    return parser.parse_args(words)


def _plan() -> Any:
    manifest = SimpleNamespace(name="toy", version="1", models={}, pipeline={"stages": {"llm": {"model": "m"}}})
    package = SimpleNamespace(manifest=manifest, path=Path("toy.dpfbin"), manifest_sha256=bytes(32))
    bound: Any = SimpleNamespace(package=package, board=SimpleNamespace(id="host"))
    return Plan.of_package(bound)


def test_nothing__is_made_without_a_flag() -> None:
    """So the runtime is not observed."""
    with observing(_args()) as observe:
        assert observe is None


@pytest.mark.parametrize("flag", [["--flight-audio"], ["--flight-seconds", "9"]])
def test_recorder_flags__need_a_recorder(flag: list[str]) -> None:
    """They would do nothing."""
    with pytest.raises(UsageError, match=rf"{flag[0]}: there is no recorder"), observing(_args(*flag)):
        pass


def test_seconds__out_of_range(tmp_path: Path) -> None:
    """Zero too."""
    for seconds in ("0", "601", "-1"):
        words = ["--flight-recorder", str(tmp_path / "f"), "--flight-seconds", seconds]
        with pytest.raises(UsageError, match="--flight-seconds"), observing(_args(*words)):
            pass


def test_log_and_recorder__see_the_same_turn(tmp_path: Path) -> None:
    """Both are closed at the end; SIGHUP opens the log anew, and is the system's again afterwards."""
    log, flight = tmp_path / "log", tmp_path / "flight"
    before = signal.getsignal(signal.SIGHUP)
    words = ["--log", str(log), "--flight-recorder", str(flight), "--flight-seconds", "1"]
    with observing(_args(*words)) as observe:
        assert observe is not None
        observer = observe(_plan())
        assert isinstance(observer, Observers)
        assert observer.tap is not None
        observer.opened(1, Mode.CHAT)
        observer.ended(1, Mode.CHAT, TurnDone(1, 5, "stop"))
        while not log.read_bytes():
            pass
        log.rename(tmp_path / "log.1")
        os.kill(os.getpid(), signal.SIGHUP)
        while not log.exists():
            pass
        observer.closed(1)
        observer.stage_died("llm")
    assert signal.getsignal(signal.SIGHUP) == before

    assert json.loads((tmp_path / "log.1").read_text())["finish"] == "stop"
    assert json.loads(log.read_text())["event"] == "stage_died"
    assert [record.kind.name for record in Recording(flight).records] == ["OPENED", "ENDED", "CLOSED", "STAGE_DIED"]


def test_otel__is_a_consumer_of_the_same_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the environment's exporter, here none."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with observing(_args("--otel")) as observe:
        assert observe is not None
        observe(_plan()).ended(1, Mode.CHAT, TurnDone(1, 5, "stop"))
