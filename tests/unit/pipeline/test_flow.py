# SPDX-License-Identifier: Apache-2.0
"""One request through a drawn graph, its stages in threads over the real links."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np
import pytest
from made_flow import SECTION, THREE, Threads, begin, run, texts

from dpfedge.errors import Cancelled, DeadlineExceeded, StageDied, StageError
from dpfedge.pipeline.flow import Flow
from dpfedge.stage.api import Kind


def test_flow__from_inputs_to_outputs(threads: Callable[..., Threads]) -> None:
    """Arrays and texts in, in order; the outputs, every stage's DONE, and nothing held or copied."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow:
            await flow.send("add.word", "n=", turn=1)
            await asyncio.sleep(0.01)
            await flow.send("double.numbers", THREE, turn=2, captured_ns=77)
            await flow.send("double.numbers", THREE[:1], turn=3)
            await flow.finish()
            outputs = [(one.stage, one.port, one.kind, one.turn) async for one in flow.outputs()]
            assert outputs.count(("add", "text", Kind.DATA, 2)) == 1
            assert {row[0] for row in outputs if row[2] is Kind.DONE} == {"double", "add"}
            assert flow.report["add"]["messages"] == 3

    run(test())
    assert graph.engine.arena.requests.keys() == []
    stats = graph.engine.arena.stats()
    assert sum(one.copies + one.loaned + one.in_flight for one in stats.values()) == 0


def test_flow__gives_each_request_its_own(threads: Callable[..., Threads]) -> None:
    """Many at once, none mixed up."""
    graph = threads()

    async def one(number: int) -> list[str]:
        async with await begin(graph) as flow:
            await flow.finish("add.word")
            for part in range(5):
                await flow.send("double.numbers", np.full(4, number + part, np.float32))
            await flow.finish()
            return await texts(flow)

    async def test() -> list[list[str]]:
        return await asyncio.gather(*map(one, range(20)))

    assert run(test()) == [[str(8 * (number + part)) for part in range(5)] for number in range(20)]


def test_failure__ends_the_request_and_no_other(threads: Callable[..., Threads]) -> None:
    """By the stage's own error."""
    graph = threads()

    async def test() -> list[str]:
        bad, good = await begin(graph), await begin(graph)
        await bad.send("add.word", "fail")
        with pytest.raises(StageError, match="told to fail"):
            await texts(bad)
        await good.send("double.numbers", THREE)
        await good.finish()
        return await texts(good)

    assert run(test()) == ["12"]


@pytest.mark.parametrize("word", ["hang", "spin"])
def test_deadline__names_the_stage_that_had_it(threads: Callable[..., Threads], word: str) -> None:
    """In a stage that waits, and in one that works; others go on and nothing is held."""
    graph = threads()

    async def test() -> None:
        flow = await begin(graph, deadline_s=0.05)
        await flow.send("add.word", word)
        await flow.finish("double.numbers")
        with pytest.raises(DeadlineExceeded, match="ms late") as caught:
            await texts(flow)
        assert caught.value.stage == "add"
        flow.close()

    run(test())
    assert graph.flows == {}


def test_deadline__of_a_dead_stage_is_kept_by_the_runtime(threads: Callable[..., Threads]) -> None:
    """Nobody is there to say so; an answer that comes later is nobody's."""
    graph = threads(budgets={"request": "50ms"})
    graph.kill("double")

    async def test() -> None:
        flow = await begin(graph)
        with pytest.raises(DeadlineExceeded) as caught:
            await texts(flow)
        assert caught.value.stage == "double"
        graph.revive("double")

    run(test())


def test_late_answer__is_dropped_and_counted(threads: Callable[..., Threads]) -> None:
    """What arrives behind the end of the request is released."""
    graph = threads()

    async def test() -> None:
        flow = await begin(graph)
        await flow.send("double.numbers", THREE)
        while not graph.engine.arena.stats()["add.text.sink"].sent:
            await asyncio.sleep(0)
        flow.cancel()
        with pytest.raises(Cancelled):
            await texts(flow)

    run(test())
    end = time.monotonic() + 10
    while sum(one.in_flight for one in graph.engine.arena.stats().values()) and time.monotonic() < end:
        time.sleep(0.005)
    assert sum(one.in_flight for one in graph.engine.arena.stats().values()) == 0


def test_flush__through_all_stages_of_one_request(threads: Callable[..., Threads]) -> None:
    """Each gives out what it holds; the request goes on, and no other hears of it."""
    graph = threads()

    async def test() -> None:
        flow, other = await begin(graph), await begin(graph)
        await flow.flush()
        await flow.send("double.numbers", THREE)
        await flow.finish()
        assert await texts(flow) == ["flushed", "12"]
        await other.finish()
        assert await texts(other) == []

    run(test())


def test_death__is_tried_again_once(threads: Callable[..., Threads]) -> None:
    """What was given is given to the process after it; the second death is the request's."""
    graph = threads()

    async def test() -> None:
        flow = await begin(graph)
        graph.kill("add")
        await flow.send("add.word", "sum ")
        await asyncio.sleep(0.01)
        graph.revive("add")
        await flow.finish("double.numbers")
        await flow.finish()
        assert await texts(flow) == []
        assert flow.again == 1

    run(test())


@pytest.mark.parametrize("reason", ["an array was given", "a stage is not idempotent", "twice"])
def test_death__that_cannot_be_tried_again(threads: Callable[..., Threads], reason: str) -> None:
    """The error names the stage."""
    once = {"double": {"kind": "code:Once"}, "add": {"kind": "code:Add"}}
    graph = threads(**({"stages": once} if "idempotent" in reason else {}))

    async def test() -> None:
        flow = await begin(graph)
        if "array" in reason:
            await flow.send("double.numbers", THREE)
        if reason == "twice":
            graph.kill("double")
            graph.revive("double")
        graph.kill("add")
        with pytest.raises(StageDied) as caught:
            await texts(flow)
        assert caught.value.stage == "add"
        graph.revive("add")

    run(test())


def test_outputs__that_are_read_late_leave_the_links_slots(threads: Callable[..., Threads]) -> None:
    """Whoever sends all before reading any stops nobody; what was moved for that is counted."""
    graph = threads()

    async def test() -> None:
        async with await begin(graph) as flow, await begin(graph) as other:
            for number in range(50):
                await flow.send("double.numbers", np.full(4, number, np.float32))
            await flow.finish()
            await other.send("double.numbers", THREE)
            await other.finish()
            assert await texts(other) == ["12"]
            assert await texts(flow) == [str(8 * number) for number in range(50)]
            assert flow.copies > 0

    run(test())


def test_settings__reach_the_running_stage(threads: Callable[..., Threads]) -> None:
    """A stage that takes them has them; one that cannot is an event."""
    graph = threads()
    graph.engine.send_settings("add", {"word": "set "})
    graph.engine.send_settings("double", {"word": "x"})

    async def test() -> list[str]:
        async with await begin(graph) as flow:
            await flow.send("double.numbers", THREE)
            await flow.finish()
            return await texts(flow)

    assert run(test()) == ["set 12"]
    assert [event["what"] for event in graph.events] == ["settings refused"]


def test_budget__of_a_step_that_is_too_long_is_an_event(threads: Callable[..., Threads]) -> None:
    """With both figures."""
    graph = threads(budgets={"stages": {"double": "1us"}})

    async def test() -> None:
        async with await begin(graph) as flow:
            await flow.send("double.numbers", THREE)
            await flow.finish()
            await texts(flow)

    run(test())
    assert graph.events[0]["what"] == "over budget"
    assert graph.events[0]["budget_ms"] == 0.001


def test_urgent__goes_first(threads: Callable[..., Threads]) -> None:
    """Of two that wait at a stage, the more urgent is stepped first."""
    graph = threads()
    graph.kill("double")
    graph.kill("add")

    async def test() -> list[int]:
        slow, fast = await begin(graph, urgency=7), await begin(graph, urgency=0)
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

    assert run(test()) == [0, 7]


def test_full_link__with_policy_fail(threads: Callable[..., Threads]) -> None:
    """The request fails by name instead of waiting."""
    link = {**SECTION["links"][0], "policy": "fail", "slots": 2}
    graph = threads(links=[link])

    async def test() -> None:
        flow = await begin(graph)
        await flow.send("add.word", "hang")
        await asyncio.sleep(0.05)
        graph.kill("add")
        for _ in range(8):
            await flow.send("double.numbers", THREE)
        await texts(flow)

    with pytest.raises((StageError, Cancelled)):
        run(test())
    graph.revive("add")
