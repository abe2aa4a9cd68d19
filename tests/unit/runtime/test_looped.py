# SPDX-License-Identifier: Apache-2.0
"""Asynchronous objects for synchronous callers: one loop in a thread, and every way to leave it."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError
from typing import Any, ClassVar

import pytest

from dpfedge.errors import BindError, UsageError
from dpfedge.runtime.synchronous import SyncRuntime


class Inner:
    """An asynchronous runtime that counts."""

    def __init__(self) -> None:
        self.closed = 0
        self.ended: list[str] = []
        self.facts = {"voice": {"rate": 1}}

    def status(self) -> dict[str, Any]:
        return {"requests": 0}

    async def ask(self, audio: str) -> str:
        return f"answer to {audio}"

    async def chat(self, messages: Any) -> AsyncGenerator[Any, None]:
        try:
            for number in range(messages):
                yield number
        finally:
            self.ended.append("chat")

    async def speak(self, text: str) -> AsyncGenerator[Any, None]:
        """Never says anything."""
        try:
            yield await asyncio.Event().wait()
        finally:
            self.ended.append("speak")

    async def close(self) -> None:
        self.closed += 1


class Toy(SyncRuntime):
    """Opened with what `made` holds."""

    made: ClassVar[Inner | Exception] = Inner()

    @staticmethod
    async def opener(package: str) -> Inner:  # type: ignore[override]
        if isinstance(Toy.made, Exception):
            raise Toy.made
        return Toy.made


@pytest.fixture
def inner(monkeypatch: pytest.MonkeyPatch) -> Inner:
    """What the next runtime drives."""
    one = Inner()
    monkeypatch.setattr(Toy, "made", one)
    return one


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_runtime__does_what_the_inner_one_does(inner: Inner) -> None:
    """Calls, iterators and plain facts."""
    with Toy._open("x") as runtime:
        assert runtime.ask("this") == "answer to this"
        assert list(runtime.chat(3)) == [0, 1, 2]
        assert runtime.facts == inner.facts
        assert runtime.status() == {"requests": 0}

    assert (inner.closed, inner.ended) == (1, ["chat"])


def test_open__that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the inner one's."""
    monkeypatch.setattr(Toy, "made", BindError("no target"))
    with pytest.raises(BindError):
        Toy._open("x")


def test_iteration__left_early_ends_the_request(inner: Inner) -> None:
    """break, and also nothing at all."""
    with Toy._open("x") as runtime:
        for _ in runtime.chat(3):
            break
        gc.collect()
        runtime.speak("never started")
        assert inner.ended == ["chat"]


def test_iteration__interrupted_while_it_waits(inner: Inner) -> None:
    """Ctrl-C in the reading thread ends the request on the loop, and the runtime works on."""
    with Toy._open("x") as runtime:
        events = runtime.speak("x")
        original = runtime._call

        def interrupted(coroutine: Any) -> Any:
            future = asyncio.run_coroutine_threadsafe(coroutine, runtime._loop.loop)
            time.sleep(0.05)
            future.cancel()
            raise KeyboardInterrupt

        runtime._call = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            next(events)
        runtime._call = original  # type: ignore[method-assign]

        assert inner.ended == ["speak"]
        assert list(runtime.chat(1)) == [0]


def test_close__ends_a_reader_in_another_thread(inner: Inner) -> None:
    """It hears of it instead of waiting for ever."""
    runtime = Toy._open("x")
    errors: list[BaseException] = []
    reading = threading.Event()

    def read() -> None:
        events = runtime.speak("x")
        reading.set()
        try:
            next(events)
        except CancelledError as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait()
    time.sleep(0.05)
    runtime.close()
    thread.join(30)

    assert not thread.is_alive()
    assert len(errors) == 1
    assert inner.ended == ["speak"]


def test_closed_runtime__says_so(inner: Inner) -> None:
    """Every call; closing again is nothing."""
    runtime = Toy._open("x")
    runtime.close()
    runtime.close()

    assert inner.closed == 1
    with pytest.raises(UsageError, match="the runtime is closed"):
        runtime.ask("x")
    with pytest.raises(UsageError, match="the runtime is closed"):
        next(runtime.chat(1))


def test_forked_child__is_told_to_open_its_own(inner: Inner) -> None:
    """Threads do not survive a fork; closing there leaves the parent's runtime alone."""
    with Toy._open("x") as runtime:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                runtime.ask("x")
            except UsageError as error:
                runtime.close()
                code = 0 if "belongs to the process" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert runtime.ask("it") == "answer to it"


def test_runtime__outlives_the_thread_that_opened_it(inner: Inner) -> None:
    """Its loop has a thread of its own."""
    made: list[Toy] = []
    thread = threading.Thread(target=lambda: made.append(Toy._open("x")))
    thread.start()
    thread.join()

    with made[0] as runtime:
        assert runtime.ask("it") == "answer to it"


def test_iterator__dropped_on_the_loop_itself(inner: Inner) -> None:
    """The garbage collector may run there; nobody waits for himself."""
    with Toy._open("x") as runtime:
        events = [runtime.chat(3)]
        next(events[0])

        async def drop() -> None:
            events.clear()

        asyncio.run_coroutine_threadsafe(drop(), runtime._loop.loop).result(30)
        assert runtime.ask("it") == "answer to it"
        assert inner.ended == ["chat"]
