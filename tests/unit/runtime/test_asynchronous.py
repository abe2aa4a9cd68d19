# SPDX-License-Identifier: Apache-2.0
"""The embedding API over a toy engine: what is sent, what is given, and that every way out frees the place."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from made_runtime import CHAT, Car, run, settle

from dpfedge.errors import Busy, InputError, StageDied, UsageError
from dpfedge.pipeline.events import Failed, TextDelta, TurnDone
from dpfedge.pipeline.observer import Observer
from dpfedge.runtime import AsyncRuntime, AudioFormat, Sampling
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.failure import describe


def test_chat__sends_what_was_given_and_no_more() -> None:
    """Defaults of the package are not overridden by defaults of the call."""

    async def test() -> None:
        car = Car()
        car.engine.answers["llm"] = CHAT
        events = [event async for event in car.runtime.chat([{"role": "user", "content": "x"}], Sampling(seed=3))]

        assert [type(event) for event in events] == [TextDelta, TurnDone]
        (stage, kind, options) = car.engine.sent[0]
        assert (stage, kind, options["mode"], options["route"]) == ("llm", Kind.START, int(Mode.CHAT), ["llm"])
        assert options["messages"] == [{"role": "user", "content": "x"}]
        assert options["sampling"]["seed"] == 3
        assert "temperature" not in options["sampling"]
        assert car.nothing_open()

    run(test)


def test_transcribe__uses_audio_while_it_arrives() -> None:
    """Cut into pieces that fit; the end is marked."""

    async def test() -> None:
        car = Car()
        arrived = asyncio.Event()

        async def audio() -> AsyncIterator[bytes]:
            yield b"123456"
            await arrived.wait()
            yield b"78"

        async def read() -> None:
            async for _ in car.runtime.transcribe(audio(), AudioFormat("pcm_s16le", 16000), language="en"):
                pass

        task = asyncio.ensure_future(read())
        await settle()
        pieces = [data for _, kind, data in car.engine.sent if kind is Kind.AUDIO]
        assert pieces == [(b"1234", False), (b"56", False)]
        arrived.set()
        await settle()
        assert car.engine.sent[-1][2] == (b"", True)
        assert car.engine.sent[0][2]["format"] == {"encoding": "pcm_s16le", "rate": 16000, "channels": 1}
        assert car.engine.sent[0][2]["language"] == "en"
        task.cancel()
        await asyncio.wait({task})
        assert car.nothing_open()

    run(test)


def test_transcribe__raises_what_the_audio_raises() -> None:
    """A client that went away while it uploads."""

    async def test() -> None:
        car = Car()

        async def audio() -> AsyncIterator[bytes]:
            yield b"1"
            raise ConnectionResetError("gone")

        with pytest.raises(ConnectionResetError):
            async for _ in car.runtime.transcribe(audio()):
                pass
        assert car.nothing_open()

    run(test)


def test_request__without_a_place() -> None:
    """Busy before anything is sent, and again possible as soon as one is left."""

    async def test() -> None:
        car = Car(places=1)
        car.engine.answers["llm"] = CHAT
        async with aclosing(car.runtime.chat([])) as first:
            await anext(first)
            with pytest.raises(Busy):
                await anext(car.runtime.speak("x"))
        assert [event async for event in car.runtime.chat([])]

    run(test)


@pytest.mark.parametrize("way", ["aclose", "cancel", "error", "drop"])
def test_request__left_early_frees_its_place(way: str) -> None:
    """However the caller leaves."""

    async def test() -> None:
        car = Car()
        car.engine.answers["llm"] = CHAT[:1]
        events = car.runtime.chat([])
        await anext(events)
        if way == "aclose":
            await events.aclose()
        elif way == "cancel":
            task = asyncio.ensure_future(anext(events))  # type: ignore[arg-type]
            await settle()
            task.cancel()
            await asyncio.wait({task})
        elif way == "error":
            with pytest.raises(ZeroDivisionError):
                await events.athrow(ZeroDivisionError())
        else:
            del events
            gc.collect()
            await settle()
        assert car.nothing_open()

    run(test)


def test_request__whose_stage_reads_nothing_can_be_left() -> None:
    """START waits for room; nobody waits with it for ever."""

    async def test() -> None:
        car = Car()
        car.engine.full.add("llm")
        task = asyncio.ensure_future(anext(car.runtime.chat([])))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        await settle()
        assert car.nothing_open()

    run(test)


def test_request__that_is_too_long() -> None:
    """Sending fails, and the reader hears of it."""

    async def test() -> None:
        car = Car()

        def refuse(*arguments: Any) -> None:
            raise InputError("too long")

        car.engine.send_start = refuse  # type: ignore[method-assign]
        with pytest.raises(InputError):
            await anext(car.runtime.chat([]))
        assert car.nothing_open()

    run(test)


def test_death__before_the_first_event_is_tried_again_once() -> None:
    """A chat is given whole, so it can be given twice."""

    async def test() -> None:
        car = Car()
        events = car.runtime.chat([])
        task = asyncio.ensure_future(anext(events))  # type: ignore[arg-type]
        await settle()
        car.engine.answers["llm"] = CHAT[:1]
        car.dispatcher.stage_died("llm")
        assert isinstance(await task, TextDelta)
        assert len(car.engine.sent) == 2
        car.dispatcher.stage_died("llm")
        with pytest.raises(StageDied):
            await anext(events)

    run(test)


def test_death__concerns_whose_route_it_is_on() -> None:
    """A chat goes on when the voice dies."""

    async def test() -> None:
        car = Car()
        car.engine.answers["llm"] = CHAT
        events = car.runtime.chat([])
        await anext(events)
        car.dispatcher.stage_died("voice")
        assert isinstance(await anext(events), TurnDone)
        await events.aclose()

    run(test)


def test_death__after_the_loop_was_closed() -> None:
    """The supervisor's thread goes on."""
    cars: list[Car] = []

    async def test() -> None:
        cars.append(Car())

    run(test)
    cars[0].dispatcher.stage_died("llm")
    cars[0].dispatcher.stage_ready("llm")


def test_converse__opens_and_ends() -> None:
    """Every stage of the route is told, in order; the end frees the place, twice is once."""

    async def test() -> None:
        car = Car()
        session = await car.runtime.converse(
            AudioFormat("pcm_s16le", 8000), instructions="be brief", vad={"type": "none"}, spoken=False
        )
        starts = {stage: options for stage, kind, options in car.engine.sent}
        assert list(starts) == ["decoder", "encoder", "llm"]
        assert starts["decoder"]["vad"] == {"type": "none"}
        assert starts["llm"]["instructions"] == "be brief"
        assert car.runtime.status()["requests"] == 1
        await car.runtime.end(session)
        await car.runtime.end(session)
        assert car.nothing_open()

    run(test)


def test_converse__closed_by_its_session_is_closed() -> None:
    """Both ways lead to a free place."""

    async def test() -> None:
        car = Car()
        session = await car.runtime.converse()
        await session.close()
        assert car.nothing_open()

    run(test)


def test_converse__that_cannot_start_frees_its_place() -> None:
    """Cancelled while a link is full, or refused."""

    async def test() -> None:
        car = Car()
        car.engine.full.add("llm")
        task = asyncio.ensure_future(car.runtime.converse())
        await asyncio.sleep(0.01)
        assert car.engine.receivers
        task.cancel()
        await asyncio.wait({task})
        assert car.nothing_open()

    run(test)


def test_stream__raises_what_pushing_raises_as_an_event() -> None:
    """The reader of a session hears of everything in one place."""

    async def test() -> None:
        car = Car()
        stream = car.runtime.stream(b"123456789")
        task = asyncio.ensure_future(anext(stream))  # type: ignore[arg-type]
        await settle()
        key = next(iter(car.engine.receivers))
        car.engine.say(key, "decoder", Kind.FAILED, describe(InputError("no audio"), "decoder"), 0)
        event = await task
        assert isinstance(event, Failed)
        assert str(event.error) == "stage decoder: no audio"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert car.nothing_open()

    run(test)


def test_ask__of_a_missing_file(tmp_path: Path) -> None:
    """The caller's mistake, by name; nothing is opened."""

    async def test() -> None:
        car = Car()
        with pytest.raises(UsageError, match=r"missing\.wav: the audio cannot be read; found No such file"):
            await car.runtime.ask(tmp_path / "missing.wav")
        assert car.nothing_open()

    run(test)


def test_ask__raises_a_failed_turn_and_leaves() -> None:
    """The place is free when the error is there."""

    async def test() -> None:
        car = Car()
        task = asyncio.ensure_future(car.runtime.ask(b"1234"))
        await settle()
        car.engine.say(next(iter(car.engine.receivers)), "llm", Kind.FAILED, describe(InputError("no"), "llm"), 1024)
        with pytest.raises(InputError):
            await task
        assert car.nothing_open()

    run(test)


class Told(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def opened(self, key: int, mode: Mode) -> None:
        self.told.append(("opened", key, mode))

    def ended(self, key: int, mode: Mode, event: TurnDone | Failed) -> None:
        self.told.append(("ended", key, mode, type(event), event.turn))

    def stage_ready(self, name: str) -> None:
        self.told.append(("ready", name))

    def stage_died(self, name: str) -> None:
        self.told.append(("died", name))


def test_observer__is_told_of_turns_and_stages() -> None:
    """Of single requests, of a conversation's turns, of failures; on the loop."""

    async def test() -> None:
        car, told = Car(), Told()
        car.runtime = AsyncRuntime(car.engine, car.dispatcher, told)  # type: ignore[arg-type]
        car.engine.answers["llm"] = CHAT
        async for _ in car.runtime.chat([]):
            pass
        car.engine.answers["llm"] = []
        session = await car.runtime.converse()
        car.engine.say(session.key, "decoder", Kind.FAILED, describe(InputError("bad"), "decoder"), 1024)
        car.dispatcher.stage_ready("llm")
        car.dispatcher.stage_died("voice")
        await settle()
        await car.runtime.end(session)

        chat, talk = 65536, session.key
        assert told.told[:5] == [
            ("opened", chat, Mode.CHAT), ("ended", chat, Mode.CHAT, TurnDone, 1),
            ("opened", talk, Mode.CONVERSE), ("ended", talk, Mode.CONVERSE, Failed, 1024), ("ready", "llm"),
        ]  # fmt: skip
        assert told.told[5] == ("died", "voice")

    run(test)


def test_observer__hears_of_a_request_that_failed() -> None:
    """Turn 0 is the whole of it; who reads it gets the error all the same."""

    async def test() -> None:
        car, told = Car(), Told()
        car.runtime = AsyncRuntime(car.engine, car.dispatcher, told)  # type: ignore[arg-type]
        car.engine.answers["llm"] = [(Kind.FAILED, describe(InputError("bad"), "llm"), 1)]
        with pytest.raises(InputError):
            async for _ in car.runtime.chat([]):
                pass
        assert told.told[1:] == [("ended", 65536, Mode.CHAT, Failed, 0)]

    run(test)
