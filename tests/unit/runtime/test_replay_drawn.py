# SPDX-License-Identifier: Apache-2.0
"""A drawn graph's request recorded and given again, its stages in threads; tests/e2e has real processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pipeline" / "made"))
from made_flow import Threads

from dpfedge.pipeline.flight import Recording
from dpfedge.pipeline.flow import Flow
from dpfedge.pipeline.recorder import Recorder
from dpfedge.runtime.recorded import recorded_requests
from dpfedge.runtime.replay import replay


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Any]:
    """(the recording, a running graph) of one request: a word, numbers, a flush, the end."""
    recorder = Recorder(tmp_path / "flight", 1, audio=True)
    first = Threads(tmp_path, observe=recorder)
    asyncio.run(asyncio.wait_for(_ask(first), 30))
    first.close()
    recorder.close()
    again = Threads(tmp_path)
    yield Recording(tmp_path / "flight"), again
    again.close()


async def _ask(graph: Threads) -> None:
    async with Flow(graph.engine, {"double": {"x": 1}}, deadline_s=20, urgency=2) as flow:
        await flow.start()
        await flow.finish("add.word")
        await flow.send("double.numbers", np.array([1, 2], np.float32), turn=1, captured_ns=5)
        await flow.flush()
        await flow.send("double.numbers", np.array([4], np.float32), turn=2)
        await flow.finish()
        async for _ in flow.outputs():
            pass


def _replay(recording: Recording, graph: Threads) -> Any:
    runtime: Any = SimpleNamespace(_engine=graph.engine)
    requests = recorded_requests(recording)
    return asyncio.run(replay(runtime, requests, recording.runtimes, from_start=True, patience_s=20))


def test_replay__gives_the_same(recorded: Any) -> None:
    """Every message of every port, bit for bit."""
    recording, graph = recorded
    [request] = recorded_requests(recording)
    assert request.turns[0].outputs == {"add.text": [b"6", b"flushed", b"8"]}

    [result] = _replay(recording, graph)
    assert (result.compared, result.differences, result.skipped) == ((0,), (), None)


def test_replay__finds_what_is_different(recorded: Any) -> None:
    """Another setting of a stage, and which message it changed first."""
    recording, graph = recorded
    graph.engine.send_settings("add", {"word": "now "})

    [result] = _replay(recording, graph)
    assert result.differences == ("turn 0: add.text was 3 messages, is 3: message 0 is another",)
