# SPDX-License-Identifier: Apache-2.0
"""One process of stages from the fork to its end, with tiny stages."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_stage import ROW, Start, Toy, answer, code_of, record

from dpfedge.errors import StageError
from dpfedge.pipeline import stage_process
from dpfedge.pipeline.calls import Calls
from dpfedge.pipeline.stage_process import Served
from dpfedge.pipeline.wire import receive_message
from dpfedge.stage.api import Kind


def test_stage__serves_until_it_is_told_to_end(rig: Any, start: Start) -> None:
    """Ready with its facts and times, an answer, and exit code 0 after SIGTERM."""
    pid, channel = start()
    message, _ = receive_message(channel)
    rig.start("llm", rig.arena.requests.open())
    found = answer(rig, "llm")
    os.kill(pid, signal.SIGTERM)

    assert message["ready"] == "llm"
    assert message["load_ms"] >= 0
    assert message["warm_ms"] >= 0
    assert found == [(Kind.DONE, 1, {})]
    assert code_of(pid) == 0


def test_stage__takes_its_place(start: Start) -> None:
    """Cores this process may use, threads and niceness."""
    core = min(os.sched_getaffinity(0))
    _, channel = start(threads=2, cores=[core, 9999], nice=3)
    message, _ = receive_message(channel)

    nice = os.nice(0) + 3
    assert message["facts"] == {"threads": 2, "cores": [core], "nice": nice, "policy": os.SCHED_OTHER}
    assert message["refused"] == []


def test_start__apart_from_others_only_while_it_loads(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading stays on the cores it was given; every thread made there may go everywhere afterwards."""
    everywhere = sorted(os.sched_getaffinity(0))
    seen: list[list[int]] = []

    class Loading(Toy):
        def __init__(self, model: Any, config: Mapping[str, Any], budget: Any) -> None:
            super().__init__(model, config, budget)
            seen.append(sorted(os.sched_getaffinity(0)))
            threading.Thread(target=signal.pause, daemon=True).start()

        def facts(self) -> Mapping[str, Any]:
            tasks = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
            return {"loading": seen[0], "tasks": tasks}

    _, channel = start(life=Loading, load_cores=everywhere[-1:])
    facts = receive_message(channel)[0]["facts"]
    assert facts["loading"] == everywhere[-1:]
    assert len(facts["tasks"]) >= 2
    assert all(cores == everywhere for cores in facts["tasks"])


def test_stage__that_cannot_load_says_why(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """On the channel and in the log."""
    pid, channel = start(config={"bad": 1})
    message, _ = receive_message(channel)

    assert code_of(pid) == 1
    assert (message["error"]["type"], message["error"]["what"]) == ("ModelError", "bad model")
    assert "stage llm: here: bad model" in capfd.readouterr().err


def test_stage__with_a_bug_ends_with_a_traceback(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """It never runs on in its parent's code."""
    pid, channel = start(config={"bug": 1})

    assert code_of(pid) == 1
    told, event, end = (receive_message(channel)[0] for _ in range(3))
    assert (told["error"]["what"], told["stage"]) == ("its code raised an exception", "llm")
    assert event["event"]["found"].startswith("ZeroDivisionError: ")
    assert "(made_stage.py, line" in event["event"]["found"]
    assert end == {}
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_stage__whose_supervisor_is_gone_ends_quietly(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody is left to be told that it is ready."""
    pid, _ = start(alone=True)

    assert code_of(pid) == 0
    assert capfd.readouterr().err == ""


def test_stage__told_to_end_while_it_warms(start: Start) -> None:
    """No handler is there yet: the signal ends it."""
    pid, _ = start(config={"slow": 1})
    os.kill(pid, signal.SIGTERM)

    assert code_of(pid) == -signal.SIGTERM


def test_stage__whose_parent_died_before_it_could_ask_for_a_signal(start: Start) -> None:
    """It looks who its parent is."""
    pid, _ = start(parent=1)

    assert code_of(pid) == 1


def test_stage__without_the_right_to_be_urgent_serves(
    start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A board may ask for what only root may give; the log says so."""

    def refuse(value: int) -> int:
        if value:
            raise PermissionError
        return 0

    monkeypatch.setattr(os, "nice", refuse)
    _, channel = start(nice=-5)
    message, _ = receive_message(channel)

    assert message["ready"] == "llm"
    assert message["refused"][0].startswith("nice -5 needs CAP_SYS_NICE or RLIMIT_NICE; it stays at ")
    assert "stage llm: nice -5 needs CAP_SYS_NICE" in capfd.readouterr().err


# --- another model, other settings, none at all ---


def test_stage__runs_with_what_replaced_the_pipelines(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model and settings of the command win."""

    class Shows(Toy):
        def __init__(self, model: Any, config: Mapping[str, Any], budget: Any) -> None:
            super().__init__(model, config, budget)
            self._model = model

        def facts(self) -> Mapping[str, Any]:
            return {"model": self._model, **self._config}

    _, channel = start(life=Shows, config={"rate": 1, "size": 2})
    assert receive_message(channel)[0]["facts"] == {"model": "m", "rate": 1, "size": 2}
    _, channel = start(life=Shows, config={"rate": 1, "size": 2}, model="small", settings={"rate": 5})
    assert receive_message(channel)[0]["facts"] == {"model": "small", "rate": 5, "size": 2}


def test_stage__that_can_adjust_keeps_the_pipelines_settings_as_its_own(start: Start) -> None:
    """What replaced them comes as an adjustment, so that it can be taken back while the stage runs."""

    class Adjusts(Toy):
        adjusted: Mapping[str, Any] = {}

        def adjust(self, settings: Mapping[str, Any]) -> None:
            self.adjusted = settings

        def facts(self) -> Mapping[str, Any]:
            return {"own": self._config, "adjusted": self.adjusted}

    _, channel = start(life=Adjusts, config={"rate": 1})
    assert receive_message(channel)[0]["facts"] == {"own": {"rate": 1}, "adjusted": {}}
    _, channel = start(life=Adjusts, config={"rate": 1}, settings={"rate": 5})
    assert receive_message(channel)[0]["facts"] == {"own": {"rate": 1}, "adjusted": {"rate": 5}}


def test_stage__whose_pipeline_has_no_package(rig: Any, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is no model; one that is named is an error that says what is missing."""
    row, toy, calls = {**ROW, "model": ""}, record(rig, "llm"), Calls(lambda key, turn: False)
    monkeypatch.setattr(stage_process, "find_kind", lambda name, **_: SimpleNamespace(load=lambda: Toy))
    with pytest.raises(StageError, match="stage llm: the pipeline has no package; found model m; name the package"):
        stage_process._build(toy, row, Served(None), calls)
    assert stage_process._build(replace(toy, model=""), row, Served(None), calls).facts()["threads"] == 1
