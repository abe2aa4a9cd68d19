# SPDX-License-Identifier: Apache-2.0
"""What callers and stages do wrong in a request through a drawn graph: each is named, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from made_flow import THREE, Threads, begin, run, texts

from dpfedge.errors import Cancelled, DeadlineExceeded, InputError, StageError, UsageError


@pytest.mark.parametrize(
    ("port", "data", "words"),
    [
        (
            "double.number",
            THREE,
            r"no such input of the pipeline; found double\.number; allowed double\.numbers, add\.word",
        ),
        ("add.numbers", THREE, "no such input of the pipeline"),
        ("double.numbers", THREE.astype(np.float64), r"takes something else; found f64\[3\]; allowed f32\[n 1\.\.64\]"),
        ("double.numbers", np.zeros(65, np.float32), r"found f32\[65\]"),
        ("double.numbers", np.zeros((2, 2), np.float32), r"found f32\[2, 2\]"),
        ("double.numbers", np.zeros(2, np.complex64), "found complex64"),
        ("double.numbers", [1, 2], r"nothing a port takes; found list; allowed an array.*numpy\.asarray"),
        ("double.numbers", b"12", r"found bytes\[2\]; allowed f32"),
        ("add.word", "x" * 65, r"found bytes\[65\]; allowed bytes\[bytes 0\.\.64\]"),
        ("add.word", {"a": object()}, "add.word: a value that CBOR cannot hold; found"),
    ],
)
def test_send__what_the_port_does_not_take(threads: Callable[..., Threads], port: str, data: Any, words: str) -> None:
    """The request goes on."""
    graph = threads()

    async def test() -> list[str]:
        async with await begin(graph) as flow:
            with pytest.raises(InputError, match=words):
                await flow.send(port, data)
            await flow.send("double.numbers", THREE)
            await flow.finish()
            return await texts(flow)

    assert run(test()) == ["12"]


def test_send__after_the_end(threads: Callable[..., Threads]) -> None:
    """A port that was finished, and a request that has ended."""
    graph = threads()

    async def test() -> None:
        flow = await begin(graph)
        await flow.finish("add.word")
        with pytest.raises(UsageError, match="the port was finished"):
            await flow.send("add.word", "x")
        await flow.finish()
        await texts(flow)
        await flow.flush()
        with pytest.raises(Cancelled, match="the request has ended"):
            await flow.send("double.numbers", THREE)
        flow.close()

    run(test())


@pytest.mark.parametrize("fields", [{"turn": -1}, {"turn": 2**32}, {"turn": 1.5}, {"captured_ns": -1}])
def test_send__of_a_turn_or_time_that_cannot_be(threads: Callable[..., Threads], fields: dict[str, Any]) -> None:
    """Refused by name before anything is sent."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            with pytest.raises(InputError, match=f"{next(iter(fields))} is out of range"):
                await flow.send("double.numbers", THREE, **fields)

    run(test())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ad": {}}, "options of ad: no such stage; allowed double, add; did you mean add"),
        ("add", r"options are a map; found str; allowed \{stage"),
        ({"add": 5}, "options of add: options are a map; found int"),
        ({"add": {"x": object()}}, "options of add: a value that CBOR cannot hold"),
    ],
)
def test_options__that_no_stage_can_have(threads: Callable[..., Threads], options: Any, words: str) -> None:
    """None is ignored, and no place stays taken."""
    graph = threads()
    with pytest.raises(InputError, match=words):
        run(begin(graph, options))
    assert graph.engine.arena.requests.keys() == []


def test_outputs__asked_for_again(threads: Callable[..., Threads]) -> None:
    """Behind the end there is nothing, and nobody waits for ever; a reader who left goes on where he was."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            for number in (1, 2):
                await flow.send("double.numbers", np.array([number], np.float32))
            await flow.finish()
            reading = flow.outputs()
            while (await anext(reading)).port != "text":
                pass
            await reading.aclose()
            assert await texts(flow) == ["4"]
            assert await asyncio.gather(texts(flow), texts(flow)) == [[], []]
        async with await begin(graph) as flow:
            await flow.send("add.word", "fail")
            with pytest.raises(StageError, match="told to fail"):
                await texts(flow)
            assert await texts(flow) == []

    run(test())


def test_send__into_a_request_that_failed_says_why(threads: Callable[..., Threads]) -> None:
    """The sender often hears of it first."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            await flow.send("add.word", "fail")
            while flow._error is None:
                await asyncio.sleep(0.001)
            for again in (flow.send("double.numbers", THREE), flow.finish(), flow.flush()):
                with pytest.raises(StageError, match="told to fail"):
                    await again
            with pytest.raises(StageError, match=r"^stage add: told to fail$"):
                await texts(flow)
            assert flow._error.__traceback__ is None

    run(test())


def test_finish__that_was_cancelled_may_be_said_again(threads: Callable[..., Threads]) -> None:
    """As if it had not been asked for."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            async with flow._sending:  # as when the link is full
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(flow.finish(), 0.01)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(flow.send("add.word", "x"), 0.01)
            await flow.finish()
            assert await texts(flow) == []
            assert flow.report["add"]["messages"] == 0

    run(test())


def test_deadline__of_the_stages_own_ends_the_request(threads: Callable[..., Threads]) -> None:
    """Nobody else has one to wait for."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            await flow.send("add.word", "late")
            with pytest.raises(DeadlineExceeded, match="mine"):
                await texts(flow)

    run(test())


def test_report__that_is_no_map_fails_the_request(threads: Callable[..., Threads]) -> None:
    """It names the stage, and holds no slot."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            await flow.send("add.word", "mumble")
            with pytest.raises(StageError, match="stage add: message DONE: payload is no"):
                await texts(flow)

    run(test())
    assert graph.engine.arena.stats()["add.sink"].in_flight == 0
