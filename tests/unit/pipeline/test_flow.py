# SPDX-License-Identifier: Apache-2.0
"""One request through a drawn graph, its stages in threads over the real links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_flow import SECTION, Threads

from dpfedge.errors import Cancelled, DeadlineExceeded, InputError, StageDied, StageError, UsageError
from dpfedge.pipeline.flow import Flow
from dpfedge.stage.api import Kind

THREE = np.array([1, 2, 3], np.float32)


@pytest.fixture
def threads(tmp_path: Path) -> Iterator[Callable[..., Threads]]:
    """Make a running graph; it is stopped at the end."""
    made: list[Threads] = []

    def make(**changes: Any) -> Threads:
        made.append(Threads(tmp_path, **changes))
        return made[-1]

    yield make
    for one in made:
        one.close()


async def _begin(graph: Threads, options: Any = None, *, deadline_s: float | None = None, urgency: int = 3) -> Flow:
    flow = Flow(
        graph.engine, options or {}, deadline_s=deadline_s, urgency=urgency,
        opened=graph.flows.__setitem__, closed=lambda key: graph.flows.pop(key, None),
    )  # fmt: skip
    await flow.start()
    return flow


async def _texts(flow: Flow) -> list[str]:
    return [output.text async for output in flow.outputs() if output.port == "text"]


def _run(test: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(test, 30))


def test_flow__from_inputs_to_outputs(threads: Callable[..., Threads]) -> None:
    """Arrays and texts in, in order; the outputs, every stage's DONE, and nothing held or copied."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            await flow.send("add.word", "n=", turn=1)
            await asyncio.sleep(0.01)
            await flow.send("double.numbers", THREE, turn=2, captured_ns=77)
            await flow.send("double.numbers", THREE[:1], turn=3)
            await flow.finish()
            outputs = [(one.stage, one.port, one.kind, one.turn) async for one in flow.outputs()]
            assert outputs.count(("add", "text", Kind.DATA, 2)) == 1
            assert {row[0] for row in outputs if row[2] is Kind.DONE} == {"double", "add"}
            assert flow.report["add"]["messages"] == 3

    _run(test())
    assert graph.engine.arena.requests.keys() == []
    stats = graph.engine.arena.stats()
    assert sum(one.copies + one.loaned + one.in_flight for one in stats.values()) == 0


def test_flow__gives_each_request_its_own(threads: Callable[..., Threads]) -> None:
    """Many at once, none mixed up."""
    graph = threads()

    async def one(number: int) -> list[str]:
        async with await _begin(graph) as flow:
            await flow.finish("add.word")
            for part in range(5):
                await flow.send("double.numbers", np.full(4, number + part, np.float32))
            await flow.finish()
            return await _texts(flow)

    async def test() -> list[list[str]]:
        return await asyncio.gather(*map(one, range(20)))

    assert _run(test()) == [[str(8 * (number + part)) for part in range(5)] for number in range(20)]


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
        async with await _begin(graph) as flow:
            with pytest.raises(InputError, match=words):
                await flow.send(port, data)
            await flow.send("double.numbers", THREE)
            await flow.finish()
            return await _texts(flow)

    assert _run(test()) == ["12"]


def test_send__after_the_end(threads: Callable[..., Threads]) -> None:
    """A port that was finished, and a request that has ended."""
    graph = threads()

    async def test() -> None:
        flow = await _begin(graph)
        await flow.finish("add.word")
        with pytest.raises(UsageError, match="the port was finished"):
            await flow.send("add.word", "x")
        await flow.finish()
        await _texts(flow)
        await flow.flush()
        with pytest.raises(Cancelled, match="the request has ended"):
            await flow.send("double.numbers", THREE)
        flow.close()

    _run(test())


@pytest.mark.parametrize("fields", [{"turn": -1}, {"turn": 2**32}, {"turn": 1.5}, {"captured_ns": -1}])
def test_send__of_a_turn_or_time_that_cannot_be(threads: Callable[..., Threads], fields: dict[str, Any]) -> None:
    """Refused by name before anything is sent."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            with pytest.raises(InputError, match=f"{next(iter(fields))} is out of range"):
                await flow.send("double.numbers", THREE, **fields)

    _run(test())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ad": {}}, "options of ad: no such stage; allowed double, add; did you mean add"),
        ({"add": 5}, "options of add: options are a map; found int"),
        ({"add": {"x": object()}}, "options of add: a value that CBOR cannot hold"),
    ],
)
def test_options__that_no_stage_can_have(threads: Callable[..., Threads], options: Any, words: str) -> None:
    """None is ignored, and no place stays taken."""
    graph = threads()
    with pytest.raises(InputError, match=words):
        _run(_begin(graph, options))
    assert graph.engine.arena.requests.keys() == []


def test_outputs__asked_for_again(threads: Callable[..., Threads]) -> None:
    """Behind the end there is nothing, and nobody waits for ever; a reader who left goes on where he was."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            for number in (1, 2):
                await flow.send("double.numbers", np.array([number], np.float32))
            await flow.finish()
            reading = flow.outputs()
            while (await anext(reading)).port != "text":
                pass
            await reading.aclose()
            assert await _texts(flow) == ["4"]
            assert await asyncio.gather(_texts(flow), _texts(flow)) == [[], []]
        async with await _begin(graph) as flow:
            await flow.send("add.word", "fail")
            with pytest.raises(StageError, match="told to fail"):
                await _texts(flow)
            assert await _texts(flow) == []

    _run(test())


def test_send__into_a_request_that_failed_says_why(threads: Callable[..., Threads]) -> None:
    """The sender often hears of it first."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            await flow.send("add.word", "fail")
            while flow._error is None:
                await asyncio.sleep(0.001)
            for again in (flow.send("double.numbers", THREE), flow.finish(), flow.flush()):
                with pytest.raises(StageError, match="told to fail"):
                    await again

    _run(test())


def test_finish__that_was_cancelled_may_be_said_again(threads: Callable[..., Threads]) -> None:
    """As if it had not been asked for."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            async with flow._sending:  # as when the link is full
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(flow.finish(), 0.01)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(flow.send("add.word", "x"), 0.01)
            await flow.finish()
            assert await _texts(flow) == []
            assert flow.report["add"]["messages"] == 0

    _run(test())


def test_deadline__of_the_stages_own_ends_the_request(threads: Callable[..., Threads]) -> None:
    """Nobody else has one to wait for."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            await flow.send("add.word", "late")
            with pytest.raises(DeadlineExceeded, match="mine"):
                await _texts(flow)

    _run(test())


def test_report__that_is_no_map_fails_the_request(threads: Callable[..., Threads]) -> None:
    """It names the stage, and holds no slot."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow:
            await flow.send("add.word", "mumble")
            with pytest.raises(StageError, match="stage add: message DONE: payload is no"):
                await _texts(flow)

    _run(test())
    assert graph.engine.arena.stats()["add.sink"].in_flight == 0


def test_failure__ends_the_request_and_no_other(threads: Callable[..., Threads]) -> None:
    """By the stage's own error."""
    graph = threads()

    async def test() -> list[str]:
        bad, good = await _begin(graph), await _begin(graph)
        await bad.send("add.word", "fail")
        with pytest.raises(StageError, match="told to fail"):
            await _texts(bad)
        await good.send("double.numbers", THREE)
        await good.finish()
        return await _texts(good)

    assert _run(test()) == ["12"]


@pytest.mark.parametrize("word", ["hang", "spin"])
def test_deadline__names_the_stage_that_had_it(threads: Callable[..., Threads], word: str) -> None:
    """In a stage that waits, and in one that works; others go on and nothing is held."""
    graph = threads()

    async def test() -> None:
        flow = await _begin(graph, deadline_s=0.05)
        await flow.send("add.word", word)
        await flow.finish("double.numbers")
        with pytest.raises(DeadlineExceeded, match="ms late") as caught:
            await _texts(flow)
        assert caught.value.stage == "add"
        flow.close()

    _run(test())
    assert graph.flows == {}


def test_deadline__of_a_dead_stage_is_kept_by_the_runtime(threads: Callable[..., Threads]) -> None:
    """Nobody is there to say so; an answer that comes later is nobody's."""
    graph = threads(budgets={"request": "50ms"})
    graph.kill("double")

    async def test() -> None:
        flow = await _begin(graph)
        with pytest.raises(DeadlineExceeded) as caught:
            await _texts(flow)
        assert caught.value.stage == "double"
        graph.revive("double")

    _run(test())


def test_late_answer__is_dropped_and_counted(threads: Callable[..., Threads]) -> None:
    """What arrives behind the end of the request is released."""
    graph = threads()

    async def test() -> None:
        flow = await _begin(graph)
        await flow.send("double.numbers", THREE)
        while not graph.engine.arena.stats()["add.text.sink"].sent:
            await asyncio.sleep(0)
        flow.cancel()
        with pytest.raises(Cancelled):
            await _texts(flow)

    _run(test())
    end = time.monotonic() + 10
    while sum(one.in_flight for one in graph.engine.arena.stats().values()) and time.monotonic() < end:
        time.sleep(0.005)
    assert sum(one.in_flight for one in graph.engine.arena.stats().values()) == 0


def test_flush__through_all_stages_of_one_request(threads: Callable[..., Threads]) -> None:
    """Each gives out what it holds; the request goes on, and no other hears of it."""
    graph = threads()

    async def test() -> None:
        flow, other = await _begin(graph), await _begin(graph)
        await flow.flush()
        await flow.send("double.numbers", THREE)
        await flow.finish()
        assert await _texts(flow) == ["flushed", "12"]
        await other.finish()
        assert await _texts(other) == []

    _run(test())


def test_death__is_tried_again_once(threads: Callable[..., Threads]) -> None:
    """What was given is given to the process after it; the second death is the request's."""
    graph = threads()

    async def test() -> None:
        flow = await _begin(graph)
        graph.kill("add")
        await flow.send("add.word", "sum ")
        await asyncio.sleep(0.01)
        graph.revive("add")
        await flow.finish("double.numbers")
        await flow.finish()
        assert await _texts(flow) == []
        assert flow.again == 1

    _run(test())


@pytest.mark.parametrize("reason", ["an array was given", "a stage is not idempotent", "twice"])
def test_death__that_cannot_be_tried_again(threads: Callable[..., Threads], reason: str) -> None:
    """The error names the stage."""
    once = {"double": {"kind": "code:Once"}, "add": {"kind": "code:Add"}}
    graph = threads(**({"stages": once} if "idempotent" in reason else {}))

    async def test() -> None:
        flow = await _begin(graph)
        if "array" in reason:
            await flow.send("double.numbers", THREE)
        if reason == "twice":
            graph.kill("double")
            graph.revive("double")
        graph.kill("add")
        with pytest.raises(StageDied) as caught:
            await _texts(flow)
        assert caught.value.stage == "add"
        graph.revive("add")

    _run(test())


def test_outputs__that_are_read_late_leave_the_links_slots(threads: Callable[..., Threads]) -> None:
    """Whoever sends all before reading any stops nobody; what was moved for that is counted."""
    graph = threads()

    async def test() -> None:
        async with await _begin(graph) as flow, await _begin(graph) as other:
            for number in range(50):
                await flow.send("double.numbers", np.full(4, number, np.float32))
            await flow.finish()
            await other.send("double.numbers", THREE)
            await other.finish()
            assert await _texts(other) == ["12"]
            assert await _texts(flow) == [str(8 * number) for number in range(50)]
            assert flow.copies > 0

    _run(test())


def test_settings__reach_the_running_stage(threads: Callable[..., Threads]) -> None:
    """A stage that takes them has them; one that cannot is an event."""
    graph = threads()
    graph.engine.send_settings("add", {"word": "set "})
    graph.engine.send_settings("double", {"word": "x"})

    async def test() -> list[str]:
        async with await _begin(graph) as flow:
            await flow.send("double.numbers", THREE)
            await flow.finish()
            return await _texts(flow)

    assert _run(test()) == ["set 12"]
    assert [event["what"] for event in graph.events] == ["settings refused"]


def test_budget__of_a_step_that_is_too_long_is_an_event(threads: Callable[..., Threads]) -> None:
    """With both figures."""
    graph = threads(budgets={"stages": {"double": "1us"}})

    async def test() -> None:
        async with await _begin(graph) as flow:
            await flow.send("double.numbers", THREE)
            await flow.finish()
            await _texts(flow)

    _run(test())
    assert graph.events[0]["what"] == "over budget"
    assert graph.events[0]["budget_ms"] == 0.001


def test_urgent__goes_first(threads: Callable[..., Threads]) -> None:
    """Of two that wait at a stage, the more urgent is stepped first."""
    graph = threads()
    graph.kill("double")
    graph.kill("add")

    async def test() -> list[int]:
        slow, fast = await _begin(graph, urgency=7), await _begin(graph, urgency=0)
        order: list[tuple[int, int]] = []

        async def read(flow: Flow, urgency: int) -> None:
            async for output in flow.outputs():
                if output.port == "text":
                    order.append((output.at_ns, urgency))

        for flow in (slow, fast):
            await flow.send("double.numbers", THREE)
            await flow.finish()
        graph.revive("double")
        graph.revive("add")
        await asyncio.gather(read(slow, 7), read(fast, 0))
        return [urgency for _, urgency in sorted(order)]

    assert _run(test()) == [0, 7]


def test_full_link__with_policy_fail(threads: Callable[..., Threads]) -> None:
    """The request fails by name instead of waiting."""
    link = {**SECTION["links"][0], "policy": "fail", "slots": 2}
    graph = threads(links=[link])

    async def test() -> None:
        flow = await _begin(graph)
        await flow.send("add.word", "hang")
        await asyncio.sleep(0.05)
        graph.kill("add")
        for _ in range(8):
            await flow.send("double.numbers", THREE)
        await _texts(flow)

    with pytest.raises((StageError, Cancelled)):
        _run(test())
    graph.revive("add")
