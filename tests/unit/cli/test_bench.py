# SPDX-License-Identifier: Apache-2.0
"""`dpfedge bench` on a toy runtime: what is measured, shown and written; real runs are in tests/e2e/test_bench.py."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfedge import runtime
from dpfedge.bench import compare, scenarios, speech
from dpfedge.bench.measure import Series
from dpfedge.bench.speech import Question
from dpfedge.bench.voice_turn import TurnTimes
from dpfedge.cli import main

Output = pytest.CaptureFixture[str]


class Toy:
    """A runtime that is there."""

    name, pipeline, facts = "toy", {"stages": {}}, {}

    async def __aenter__(self) -> Toy:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    def status(self) -> dict[str, Any]:
        row = {"pid": 1, "rss_bytes": 2_000_000, "pss_bytes": 1_000_000}
        return {"board": "host", "links": {}, "stages": {"llm": row}, "server": row, "zygote": row}

    def threads(self, stage: str) -> int:
        return 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Every scenario as a toy; notes how often it was asked for."""
    one = SimpleNamespace(bind=0, cold=0, turns=[], chat=0, idle=0.0, compared=0)

    async def opened(package: Path, board: str, allow_unsigned: bool, trust: list[Path] | None) -> Toy:
        assert (package, board, allow_unsigned, trust) == (Path("x.dpfbin"), "host", False, None)
        return Toy()

    async def turns(runtime: Any, question: Question, count: int, progress: Any) -> list[TurnTimes]:
        one.turns.append(count)
        return [TurnTimes(0, 1, 2, 3, 4, 5, "what", "It is.")] * count

    async def chat(runtime: Any, words: str, tokens: int, rounds: int) -> list[Series]:
        one.chat = rounds
        return [Series("decode", "tokens/s", (50.0,))]

    async def factors(*args: Any) -> list[Series]:
        return []

    async def idle(runtime: Any, seconds: float) -> dict[str, float]:
        one.idle = seconds
        return {"seconds": seconds, "cores": 0.0}

    async def spoken(runtime: Any, words: str) -> Question:
        return Question(words, np.zeros(16000, np.int16))

    async def beside(*args: Any, **kwargs: Any) -> dict[str, Any]:
        one.compared = args[3]
        row = {"name": "x", "unit": "ms", "ours": 1.0, "theirs": 2.0, "ratio": 0.5}
        return {"name": "plain script", "rows": [row]}

    def bind_times(package: Path, board: str, rounds: int) -> list[Series]:
        one.bind = rounds
        return [Series("bind", "ms", (1.0,))]

    def cold_start(package: Path, board: str, rounds: int, progress: Any, **trust: Any) -> list[Series]:
        one.cold = rounds
        return [Series("cold start to ready", "ms", (500.0,))]

    monkeypatch.setattr("dpfedge.pipeline.prepare.prepare", lambda package, **options: SimpleNamespace(close=list))
    toys = {"bind_times": bind_times, "cold_start": cold_start, "turns": turns, "chat_times": chat}
    for name, toy in {**toys, "speech_factors": factors, "idle": idle}.items():
        monkeypatch.setattr(scenarios, name, toy)
    monkeypatch.setattr(speech, "spoken", spoken)
    monkeypatch.setattr(compare, "beside_plain", beside)
    monkeypatch.setattr(runtime, "AsyncRuntime", SimpleNamespace(open=opened), raising=False)
    return one


def bench(*arguments: str) -> int:
    return main(["bench", "x.dpfbin", "--board", "host", *arguments])


def test_bench__writes_what_it_measured(asked: SimpleNamespace, tmp_path: Path, capsys: Output) -> None:
    """Into a folder that is made; the table is printed too; two turns warm up first."""
    out = tmp_path / "new/bench.json"
    assert bench("--turns", "3", "--rounds", "2", "--idle", "0.5", "--json", str(out)) == 0

    found = json.loads(out.read_text())
    assert (asked.turns, asked.cold, asked.chat, asked.idle, asked.compared) == ([2, 3], 2, 2, 0.5, 0)
    assert found["question"] == {
        "words": "What is the capital of France?", "heard": "what", "answer": "It is.", "seconds": 1.0,
    }  # fmt: skip
    assert {"bind", "cold start to ready", "decode", "endpoint → first audio"} <= {
        row["name"] for row in found["series"]
    }
    assert "baseline" not in found
    assert "cold start to ready" in capsys.readouterr().out


def test_bench__beside_the_baseline(asked: SimpleNamespace, capsys: Output) -> None:
    """As many rounds as turns; nothing is written unasked."""
    assert bench("--turns", "4", "--baseline", "plain") == 0

    assert asked.compared == 4
    assert "plain script" in capsys.readouterr().out


def test_bench__question_from_a_file(asked: SimpleNamespace, tmp_path: Path, capsys: Output) -> None:
    """Its words are its name; a file that is no recording is refused with exit 2."""
    path = tmp_path / "hello.wav"
    Question("x", np.full(1600, 9000, np.int16)).save(path)
    out = tmp_path / "b.json"
    assert bench("--question", str(path), "--json", str(out)) == 0

    assert json.loads(out.read_text())["question"]["words"] == "hello"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--turns", "0"], "--turns: nothing would be measured; found 0; allowed more than 0"),
        (["--rounds", "-1"], "--rounds: nothing would be measured; found -1"),
        (["--idle", "0"], "--idle: nothing would be measured; found 0.0"),
        (["--idle", "nan"], "--idle: nothing would be measured; found nan"),
        (["--question", "missing.wav"], "--question: no such recording; found missing.wav"),
        (["--json", "/proc/bench.json"], "/proc/bench.json: the figures cannot be written"),
        (["--json", "/proc"], "/proc: the figures cannot be written; found Is a directory"),
    ],
)
def test_bench__refuses_before_it_measures(
    asked: SimpleNamespace, words: list[str], error: str, capsys: Output
) -> None:
    """Nobody waits minutes for figures that are none, or that are lost."""
    assert bench(*words) in (1, 2)
    assert error in capsys.readouterr().err
    assert (asked.bind, asked.turns) == (0, [])
