# SPDX-License-Identifier: Apache-2.0
"""Every example runs as its README says, on the real package, and prints what it promises."""

from __future__ import annotations

import socket
import subprocess
import sys
import wave
from pathlib import Path

import pytest
from demo_form import turns_of
from made_recording import record

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WATCHDOG_S = 120


@pytest.fixture(scope="module")
def question(voice_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of one question, asked by the package's own voice."""
    path = tmp_path_factory.mktemp("question") / "question.wav"
    record(voice_package, "What is the capital of France?", path)
    return path


def example(name: str, *arguments: object, folder: Path = ROOT) -> str:
    """What it prints."""
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_embed__ten_lines_to_a_spoken_answer(voice_package: Path, question: Path, tmp_path: Path) -> None:
    """The question as it was heard, the answer as text and as a recording."""
    out = tmp_path / "answer.wav"
    heard, said = example("embed/main.py", voice_package, question, out).splitlines()

    assert heard.startswith("question: ")
    assert "capital of France" in heard
    assert said.startswith("answer: ")
    assert "Paris" in said
    with wave.open(str(out)) as wav:
        assert wav.getnframes() > wav.getframerate() / 2


def test_embed_async__event_by_event(voice_package: Path, question: Path) -> None:
    """The same, on an event loop."""
    lines = example("embed/main_async.py", voice_package, question).splitlines()

    assert "capital of France" in lines[0]
    assert "Paris" in lines[1]
    assert lines[2].startswith("spoken: ")
    assert int(lines[2].split()[1]) > 10_000


def test_voice_demo__talks_and_shows_where_the_time_went(voice_package: Path, tmp_path: Path) -> None:
    """Two questions through a server of its own; the answers are saved beside the package."""
    package = tmp_path / "voice.dpfbin"
    package.symlink_to(voice_package.resolve())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    turns = turns_of(example("voice/demo.py", package, "--board", "host", "--questions", 2, "--port", port))

    questions = (EXAMPLES / "voice" / "questions.txt").read_text().splitlines()
    assert [turn.asked for turn in turns] == questions[:2]
    assert "Paris" in turns[0].answer
    for number, turn in enumerate(turns, 1):
        with wave.open(str(tmp_path / f"answer{number}.wav")) as wav:
            assert wav.getnframes() / wav.getframerate() == pytest.approx(turn.seconds, abs=0.01)
            assert turn.seconds > 0.5


def test_examples__are_all_run_here() -> None:
    """A new script in examples/ gets its test in this file, or in the one named here."""
    scripts = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    elsewhere = {
        "camera-ocr/main.py": "test_camera_ocr.py", "camera-ocr/make_video.py": "test_camera_ocr.py",
        "two-stages/main.py": "test_pipeline.py", "two-stages/stages.py": "test_pipeline.py",
    }  # fmt: skip

    assert scripts == {"embed/main.py", "embed/main_async.py", "voice/demo.py"} | elsewhere.keys()
    for script, test in elsewhere.items():
        assert script.partition("/")[0] in (ROOT / "tests" / "e2e" / test).read_text()
