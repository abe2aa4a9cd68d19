# SPDX-License-Identifier: Apache-2.0
"""Our turns and the baseline's alternate; ratios are those of neighbours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfedge.bench import compare
from dpfedge.bench.speech import RATE, Question
from dpfedge.bench.voice_turn import TurnTimes

QUESTION = Question("x", np.arange(RATE, dtype=np.int16))


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ran, in order; ours takes 1, 2, 3 ms, theirs twice that."""
    ran: list[str] = []

    def times(factor: int) -> TurnTimes:
        instant = factor * (1 + len(ran) // 2) * 1_000_000
        return TurnTimes(0, 0, instant, instant, instant)

    class Peer:
        ready_ms = 5.0

        def __init__(self, setup: Any) -> None:
            assert setup == ("pipeline", 2)

        def turn(self, pcm: Path, silence_ms: int) -> TurnTimes:
            assert pcm.read_bytes() == QUESTION.pcm.tobytes()
            assert silence_ms == 320
            found = times(2)
            ran.append("theirs")
            return found

        def memory(self) -> dict[str, int]:
            return {"rss_bytes": 1}

        def close(self) -> None:
            ran.append("closed")

    async def ours(runtime: Any, question: Question) -> TurnTimes:
        found = times(1)
        ran.append("ours")
        return found

    monkeypatch.setattr(compare, "PlainPeer", Peer)
    monkeypatch.setattr(compare, "plain_setup", lambda pipeline, threads: (pipeline, threads))
    monkeypatch.setattr(compare, "voice_turn", ours)
    return ran


def beside() -> dict[str, Any]:
    runtime: Any = SimpleNamespace(facts={"decoder": {"endpoint_ms": 320}})
    pipeline: Any = "pipeline"
    return asyncio.run(compare.beside_plain(runtime, pipeline, QUESTION, 3, threads=2, progress=lambda text: None))


def test_rounds__are_interleaved(order: list[str]) -> None:
    """Noise of the machine meets both alike."""
    beside()

    assert order == ["ours", "theirs"] * 3 + ["closed"]


def test_rows__have_medians_and_the_ratio_of_neighbours(order: list[str]) -> None:
    """One row an instant that matters; all samples are kept."""
    found = beside()

    assert [row["name"].partition("→ ")[2] for row in found["rows"]] == ["transcript", "first text", "first audio"]
    for row in found["rows"]:
        assert (row["ours"], row["theirs"], row["ratio"]) == (2.0, 4.0, 0.5)
        assert row["ours_samples"] == [1.0, 2.0, 3.0]
    assert (found["ready_ms"], found["memory"]) == (5.0, {"rss_bytes": 1})
