# SPDX-License-Identifier: Apache-2.0
"""The demo assistant's answers make sense: each of the ten questions as text, and one spoken through the command."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from made_recording import record

from dpfedge import AsyncRuntime
from dpfedge.pipeline.events import TextDelta, TurnDone

ROOT = Path(__file__).parents[2]
QUESTIONS = (ROOT / "examples" / "voice" / "questions.txt").read_text().splitlines()
SENSE = {
    "What is the capital of France?": r"\bParis\b",
    "Why do birds sing?": r"communicat|mate|territor|attract",
    "What is the capital of Italy?": r"\bRome\b",
    "What is an electric car?": r"electric|batter",
    "How many days are in a week?": r"\b7\b|[Ss]even",
    "What is a computer?": r"machine|device|program|process|calculat",
    "What is your name?": r"assistant",
    "What is seven times eight?": r"\b56\b|fifty[- ]six",
    "How often should I check the tyre pressure?": r"month",
    "Thank you very much.": r"welcome|pleasure",
}
"""Question → a pattern that an answer that makes sense contains."""


@pytest.fixture(scope="module")
def answers(voice_package: Path) -> dict[str, tuple[str, str]]:
    """Question → the answer's text and finish; asked in one conversation, as the demo does."""

    async def ask() -> dict[str, tuple[str, str]]:
        found = {}
        async with await AsyncRuntime.open(voice_package, board="host") as runtime:
            session = await runtime.converse(spoken=False)
            events = session.events()
            for question in QUESTIONS:
                await session.say(question)
                await session.respond()
                words, done = [], None
                while done is None:
                    event = await anext(events)
                    if isinstance(event, TextDelta):
                        words.append(event.text)
                    elif isinstance(event, TurnDone):
                        done = event
                found[question] = "".join(words).strip(), done.finish
            await runtime.end(session)
        return found

    return asyncio.run(asyncio.wait_for(ask(), 200))


def test_questions__are_the_ten_of_the_demo() -> None:
    """A question that is added gets its pattern here."""
    assert list(SENSE) == QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_answer__makes_sense(answers: dict[str, tuple[str, str]], question: str) -> None:
    """One short sentence or two, complete, on the subject."""
    answer, finish = answers[question]

    assert re.search(SENSE[question], answer, re.IGNORECASE), answer
    assert 2 <= len(answer.split()) <= 40
    assert answer[-1] in ".!?"
    assert finish == "stop"


def test_run__answers_a_spoken_question_into_a_file(voice_package: Path, tmp_path: Path) -> None:
    """`dpfedge run --audio --out`: what was heard, what is answered, and a recording of the answer."""
    asked, out = tmp_path / "question.wav", tmp_path / "answer.wav"
    record(voice_package, "What is the capital of Italy?", asked)
    command = [sys.executable, "-m", "dpfedge", "run", str(voice_package), "--board", "host", "--audio", str(asked)]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    heard, said = done.stdout.splitlines()
    assert re.match(r"question: .*capital of Italy", heard)
    assert re.search(SENSE["What is the capital of Italy?"], said)
    with wave.open(str(out)) as wav:
        assert wav.getnframes() > wav.getframerate() / 2
