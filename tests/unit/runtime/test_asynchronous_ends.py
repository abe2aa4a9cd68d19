# SPDX-License-Identifier: Apache-2.0
"""How a runtime opens and closes: refusals, cancelled starts, and everybody who waits is told."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from made_runtime import CHAT, Car, ToyEngine, run, settle

from dpfedge.errors import BindError, StageDied, UsageError
from dpfedge.pipeline.events import Failed, TextDelta, TurnDone
from dpfedge.runtime import AsyncRuntime, Runtime, synchronous
from dpfedge.runtime import asynchronous as module


def test_close__tells_everybody_who_waits() -> None:
    """Requests and sessions alike; new ones are refused, and a second close is fine."""

    async def test() -> None:
        car = Car()
        waiting = asyncio.ensure_future(anext(car.runtime.chat([])))  # type: ignore[arg-type]
        session = await car.runtime.converse()
        await settle()
        await car.runtime.close()
        await car.runtime.close()

        with pytest.raises(StageDied, match="the runtime was closed"):
            await waiting
        assert [type(event) async for event in session.events()] == [Failed]
        with pytest.raises(UsageError, match="the runtime is closed"):
            await anext(car.runtime.chat([]))
        await car.runtime.end(session)
        assert car.nothing_open()

    run(test)


def test_open__closes_what_cannot_become_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that fails to start leaves no process."""
    engine = ToyEngine()

    def fail() -> None:
        raise StageDied("no", stage="llm")

    engine.wait_ready = fail  # type: ignore[method-assign]
    monkeypatch.setattr(module, "prepare", lambda package, **options: None)
    monkeypatch.setattr(module.Engine, "start", lambda prepared, watcher, observe: engine)

    async def test() -> None:
        with pytest.raises(StageDied):
            await AsyncRuntime.open("x")
        assert engine.stopped == 1

    run(test)


def test_launch__cancelled_ends_what_its_thread_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread cannot be cancelled, its result can."""
    engine, begun, go = ToyEngine(), threading.Event(), threading.Event()

    def start(prepared: Any, watcher: Any, observe: Any) -> ToyEngine:
        begun.set()
        go.wait(30)
        return engine

    monkeypatch.setattr(module, "prepare", lambda package, **options: None)
    monkeypatch.setattr(module.Engine, "start", start)

    async def test() -> None:
        task = asyncio.ensure_future(AsyncRuntime.launch("x"))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        await settle()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.stopped == 1

    run(test)


def test_launch__refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By binding."""

    def refuse(package: Any, **options: Any) -> Any:
        raise BindError("no target")

    monkeypatch.setattr(module, "prepare", refuse)

    async def test() -> None:
        with pytest.raises(BindError):
            await AsyncRuntime.launch("x")

    run(test)


def test_runtime__is_the_same_for_synchronous_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Runtime.open` drives an AsyncRuntime on its own loop."""
    engine = ToyEngine()
    engine.answers["llm"] = CHAT
    for place in (module, synchronous):
        monkeypatch.setattr(place, "prepare", lambda package, **options: None)
    monkeypatch.setattr(module.Engine, "start", lambda prepared, watcher, observe: engine)

    with Runtime.open("x") as one:
        assert [type(event) for event in one.chat([])] == [TextDelta, TurnDone]
        assert one.status()["package"] == "toy"
    assert engine.stopped == 1


def test_closed_runtime__frees_a_reader_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told, not left."""
    engine = ToyEngine()
    for place in (module, synchronous):
        monkeypatch.setattr(place, "prepare", lambda package, **options: None)
    monkeypatch.setattr(module.Engine, "start", lambda prepared, watcher, observe: engine)
    one = Runtime.open("x")
    errors: list[Exception] = []

    def read() -> None:
        try:
            next(one.chat([]))
        except StageDied as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    while not engine.receivers:
        time.sleep(0.005)
    one.close()
    thread.join(30)

    assert len(errors) == 1
