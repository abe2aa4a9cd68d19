# SPDX-License-Identifier: Apache-2.0
"""`dpfedge run`: one question in, one answer out."""

from __future__ import annotations

import json
import os
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from dpfedge.cli import main, run
from dpfedge.pipeline.answer import Answer

Output = pytest.CaptureFixture[str]


class ToyRuntime:
    """Answers with `answer`; notes what it was opened with."""

    answer = Answer("what is it", "It is so.", np.arange(8, dtype=np.int16), 8000, {"llm": {"finish": "stop"}})
    opened: SimpleNamespace

    @classmethod
    def open(cls, package: Path, **options: Any) -> Self:
        cls.opened = SimpleNamespace(package=package, options=options, closed=False)
        return cls()

    def ask(self, audio: Path) -> Answer:
        ToyRuntime.opened.audio = audio
        return ToyRuntime.answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ToyRuntime.opened.closed = True


@pytest.fixture
def question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file; nobody reads it here."""
    monkeypatch.setattr(run, "Runtime", ToyRuntime)
    monkeypatch.setattr(run, "prepare", lambda package, **options: SimpleNamespace(package=package, options=options))
    path = tmp_path / "q.wav"
    path.write_bytes(b"")
    return path


def test_run__prints_both_and_saves_the_speech(question: Path, capsys: Output) -> None:
    """The package, the board and the file are handed on."""
    out = question.with_name("a.wav")
    assert main(["run", "x.dpfbin", "--audio", str(question), "--out", str(out), "--board", "host"]) == 0

    assert capsys.readouterr().out == "question: what is it\nanswer:   It is so.\n"
    with wave.open(str(out)) as wav:
        assert (wav.getframerate(), wav.getnframes()) == (8000, 8)
    opened = ToyRuntime.opened
    assert (opened.package.package, opened.audio, opened.closed) == (Path("x.dpfbin"), question, True)
    assert (opened.package.options["board"], opened.package.options["own"]) == ("host", True)


def test_run__as_json(question: Path, capsys: Output) -> None:
    """Stable keys, units in the key."""
    assert main(["run", "x.dpfbin", "--audio", str(question), "--json"]) == 0

    data = json.loads(capsys.readouterr().out)
    assert (data["question"], data["text"], data["audio_s"], data["rate"]) == ("what is it", "It is so.", 0.001, 8000)
    assert data["report"] == {"llm": {"finish": "stop"}}


def test_run__without_speech(question: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1, said on stderr; no empty file is written."""
    monkeypatch.setattr(ToyRuntime, "answer", Answer("", "", np.empty(0, np.int16), 8000))
    out = question.with_name("a.wav")

    assert main(["run", "x.dpfbin", "--audio", str(question), "--out", str(out)]) == 1
    assert "no speech was found" in capsys.readouterr().err
    assert not out.exists()


def test_run__of_a_pipe(question: Path, capsys: Output) -> None:
    """What a shell makes of `<(…)` is asked like any file; a folder is none."""
    pipe = question.with_name("pipe")
    os.mkfifo(pipe)
    assert main(["run", "x.dpfbin", "--audio", str(pipe)]) == 0
    assert ToyRuntime.opened.audio == pipe
    assert main(["run", "x.dpfbin", "--audio", str(pipe.parent)]) == 2
    assert "no such audio file" in capsys.readouterr().err


def test_run__out_is_a_folder(question: Path, capsys: Output) -> None:
    """Exit 2 before anything is started."""
    folder = question.parent
    assert main(["run", "missing.dpfbin", "--audio", str(question), "--out", str(folder)]) == 2
    assert f"--out: is a folder; found {folder}" in capsys.readouterr().err


def test_run__speech_that_cannot_be_written(question: Path, capsys: Output) -> None:
    """Exit 1 with the place and the reason; the words are there."""
    assert main(["run", "x.dpfbin", "--audio", str(question), "--out", "/dev/full"]) == 1
    shown = capsys.readouterr()
    assert "answer:   It is so." in shown.out
    assert "/dev/full: the answer's speech cannot be written; found No space left on device" in shown.err


def test_run__of_a_missing_file(capsys: Output) -> None:
    """Exit 2 before anything is started."""
    assert main(["run", "x.dpfbin", "--audio", "missing.wav"]) == 2
    assert "--audio: no such audio file; found missing.wav" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("package", "words", "error"),
    [
        ("x.dpfbin", ["--audio", "q.wav", "--send", "a.b=c"], "--send: only for drawn graphs; found --audio beside it"),
        ("x.dpfbin", ["--audio", "q.wav", "--deadline-ms", "5"], "--deadline-ms: only for drawn graphs"),
        ("x.yaml", ["--audio", "q.wav"], "x.yaml: a drawn graph takes no --audio; give its inputs with --send"),
        ("x.yaml", ["--out", "a.wav"], "--out: only for conversations"),
    ],
)
def test_run__options_of_the_other_kind(package: str, words: list[str], error: str, capsys: Output) -> None:
    """None is ignored."""
    assert main(["run", package, *words]) == 2
    assert error in capsys.readouterr().err
