# SPDX-License-Identifier: Apache-2.0
"""What is measured, on toys: the runs against the real package are in tests/e2e/test_bench.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.bench import scenarios
from dpfedge.bench.measure import Series
from dpfedge.bench.speech import RATE, Question
from dpfedge.bench.voice_turn import TurnTimes
from dpfedge.pipeline.events import AudioChunk, Event, TurnDone

TINY = Path(__file__).parents[2] / "golden/v1/tiny.dpfbin"
QUESTION = Question("x", np.zeros(RATE, np.int16))
LLM = {"llm": {"ttft_ms": 12.0, "tokens_per_s": 50.0, "prefill_ms": 9.0}}


class Toy:
    """A runtime that hears and speaks at once."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def chat(self, messages: Any, sampling: Any) -> AsyncIterator[Event]:
        self.asked.append((messages[0]["content"], sampling.max_tokens))
        yield TurnDone(1, 0, "stop", LLM)

    async def transcribe(self, pcm: bytes, form: Any) -> AsyncIterator[Event]:
        self.asked.append((len(pcm), form.rate))
        yield TurnDone(1, 0, "stop")

    async def speak(self, words: str) -> AsyncIterator[Event]:
        self.asked.append(words)
        yield AudioChunk(1, 0, np.zeros(RATE, np.int16), RATE)
        yield TurnDone(1, 0, "stop")

    def status(self) -> dict[str, Any]:
        mine = {"pid": os.getpid()}
        return {"stages": {"llm": mine}, "server": mine, "zygote": mine}


def by_name(series: list[Series]) -> dict[str, tuple[float, ...]]:
    return {one.name: one.samples for one in series}


def test_turns__become_the_waits_a_person_notices() -> None:
    """A turn without sound counts nowhere."""
    good = TurnTimes(1_000_000, 2_000_000, 3_000_000, 4_000_000, 6_000_000)
    silent = TurnTimes(1_000_000, 2_000_000, 3_000_000, 4_000_000)

    assert by_name(scenarios.turn_series([good, silent])) == {
        "end of speech → first audio": (5.0,),
        "endpoint → first audio": (4.0,),
        "end of speech → transcript": (2.0,),
        "end of speech → first text": (3.0,),
    }


def test_chat__takes_the_llms_own_figures() -> None:
    """One sample a round."""
    toy = Toy()
    series = asyncio.run(scenarios.chat_times(toy, "hello", 8, 2))  # type: ignore[arg-type]

    assert by_name(series) == {"time to first token": (12.0,) * 2, "decode": (50.0,) * 2, "prefill": (9.0,) * 2}
    assert toy.asked == [("hello", 8)] * 2


def test_factors__are_time_over_length() -> None:
    """A second of audio took what the clock says; both ways, each round."""
    toy = Toy()
    series = asyncio.run(scenarios.speech_factors(toy, QUESTION, "words", 3))  # type: ignore[arg-type]

    assert [len(one.samples) for one in series] == [3, 3]
    assert all(sample > 0 for one in series for sample in one.samples)
    assert toy.asked[:2] == [(2 * RATE, RATE), "words"]


def test_copies__are_what_the_links_counted_between() -> None:
    """By turn; drops are told as they are."""
    before = {"links": {"a": {"copies": 5, "dropped": 1}, "b": {"copies": 0, "dropped": 0}}}
    after = {"links": {"a": {"copies": 8, "dropped": 1}, "b": {"copies": 1, "dropped": 2}}}

    assert scenarios.copies(before, after, 2) == {"copies_per_turn": 2.0, "dropped": 2}


def test_memory__adds_proportional_shares() -> None:
    """A process that has ended has no figure and no row."""
    row = {"rss_bytes": 3_000_000, "pss_bytes": 1_500_000}
    found = scenarios.memory({"stages": {"llm": row, "voice": {"pid": 0}}, "server": row, "zygote": row})

    assert set(found["processes"]) == {"llm", "server", "zygote"}
    assert found["processes"]["llm"] == {"rss_mb": 3.0, "pss_mb": 1.5}
    assert found["pss_mb"] == 4.5


def test_idle__is_the_share_of_one_core() -> None:
    """Of all processes together; none of them computes here."""
    found = asyncio.run(scenarios.idle(Toy(), 0.05))  # type: ignore[arg-type]

    assert found["seconds"] == 0.05
    assert found["cores"] >= 0


def test_turns__are_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told of."""
    told: list[str] = []

    async def turn(runtime: Any, question: Question) -> TurnTimes:
        return TurnTimes(text=told[-1])

    monkeypatch.setattr(scenarios, "voice_turn", turn)
    times = asyncio.run(scenarios.turns(Toy(), QUESTION, 2, told.append))  # type: ignore[arg-type]

    assert [one.text for one in times] == ["voice turn 1/2", "voice turn 2/2"]


def test_cold_start__is_measured_in_processes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child says when it was ready; a child that fails is an error and no sample."""
    told: list[str] = []
    monkeypatch.setattr(scenarios.sys, "executable", "/bin/false")

    with pytest.raises(scenarios.subprocess.CalledProcessError):
        scenarios.cold_start(TINY, "host", 1, told.append)
    assert told == ["cold start 1/1"]
