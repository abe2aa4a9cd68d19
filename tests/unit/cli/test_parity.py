# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify --answers` and `--parity`."""

from __future__ import annotations

import dataclasses
import json
import wave
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import numpy as np
import pytest

from dpfedge.binding.golden import GoldenAnswer, GoldenResult
from dpfedge.binding.parity import Heard, Output, Side, read_side
from dpfedge.cli import golden_table, main, parity
from dpfedge.cli.parity import hear
from dpfedge.errors import UsageError
from dpfedge.pipeline.events import SpeechStarted, Transcript

TINY = Path(__file__).parents[2] / "golden/v1/tiny.dpfbin"
LOGITS = np.array([[0.0, 2.0], [3.0, 2.9]], np.float32)
MACHINE = {"cpu": "4× Cortex-A76", "arch": "aarch64", "level": "armv8.2-a", "features": ["neon"], "onnxruntime": "1"}
HERE = Side(
    {"name": "talk", "version": "1", "sha256": "ab" * 32}, MACHINE, "cpu-armv8.2-a", (("int8=u8·u8", "exact"),),
    (Output("llm", "step", 0, "logits", LOGITS, 0.0, 0.0, 0.1, 0.1),
     Output("llm", "step", 0, "token", np.array([1]), 0.0, 0.0, None, None)),
    (Heard("cd" * 32, "one two three four", "One two three four."),),
)  # fmt: skip


def files(folder: Path, other: Side) -> list[str]:
    """Both documents."""
    for name, side in (("a.json", HERE), ("b.json", other)):
        (folder / name).write_text(side.text())
    return [str(folder / "a.json"), str(folder / "b.json")]


def test_parity__of_machines_that_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0; both machines with their forms, every output, tokens and word error rates."""
    assert main(["verify", "--parity", *files(tmp_path, HERE)]) == 0

    out = capsys.readouterr().out
    assert "A  4× Cortex-A76, armv8.2-a: target cpu-armv8.2-a" in out
    assert out.count("   int8=u8·u8: exact") == 2
    rows = [line.split() for line in out.splitlines() if line.startswith("llm.step")]
    assert rows[0] == ["llm.step", "logits", "0", "0.2", "0", "0.2", "2", "of", "2", "pass"]
    assert rows[1] == ["llm.step", "token", "0", "equal", "0", "equal", "1", "of", "1", "pass"]
    assert "tokens: 3 of 3 the same\n" in out
    assert "word error rate A 0.0%, B 0.0%, 0 words apart: pass" in out
    assert main(["verify", "--parity", *files(tmp_path, dataclasses.replace(HERE, speech=()))]) == 0
    assert "speech" not in capsys.readouterr().out


def test_parity__of_machines_that_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1; what is too far is named, a changed token has its margin."""
    far = dataclasses.replace(
        HERE,
        outputs=(dataclasses.replace(HERE.outputs[0], values=np.array([[0, 2], [3, 5]], np.float32)), HERE.outputs[1]),
        speech=(Heard("cd" * 32, "one two three four", "one to free four"),),
    )
    assert main(["verify", "--parity", *files(tmp_path, far)]) == 1

    out, err = capsys.readouterr()
    assert "tokens: 2 of 3 the same; A preferred its own by 0.1 at most" in out
    assert "word error rate A 0.0%, B 50.0%, 2 words apart: FAIL" in out
    assert "2 of 3 answers lie further apart than allowed: llm.step logits, speech cdcdcdcdcdcd" in err


def test_parity__json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same for programs; what is infinite is null."""
    other = dataclasses.replace(
        HERE, outputs=(dataclasses.replace(HERE.outputs[0], values=LOGITS[:1]), HERE.outputs[1])
    )
    assert main(["verify", "--json", "--parity", *files(tmp_path, other)]) == 1

    report = json.loads(capsys.readouterr().out)
    assert report["passed"] is False
    assert report["outputs"][0]["max_abs"] is None
    assert report["tokens"] == {"same": 1, "of": 1}
    assert report["machines"][1]["forms"] == ["int8=u8·u8: exact"]
    assert report["speech"][0]["word_error_rate"] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--parity", "a", "b", str(TINY)], "compares two files"),
        ([], "no package is named"),
        (["--answers", "x.json", str(TINY), str(TINY)], "answers to one package"),
        ([str(TINY), "--speech", "a.wav", "hello"], "add --answers FILE"),
    ],
)
def test_usage__is_checked(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, before anything is read."""
    assert main(["verify", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_answers__are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bound target, with this machine's CPU and what was heard; an output that is off is exit code 1."""
    result = GoldenResult("llm", "step", 0, "logits", 0.0, 0.0, 0.1, 0.1)
    answers = [GoldenAnswer(result, LOGITS)]
    device = SimpleNamespace(name="cpu")

    def bind(package: Any, board: str, **_: Any) -> Any:
        targets = [SimpleNamespace(id=f"on-{board}", decisions=())]
        devices = {"llm": device}
        return SimpleNamespace(
            package=package, targets=targets, backends={"cpu": None}, devices=devices, stale=("seal: old",)
        )

    monkeypatch.setattr(golden_table, "bind_here", bind)
    monkeypatch.setattr(parity, "golden_answers", lambda bound: answers)
    monkeypatch.setattr(parity, "hear", lambda path, board, recordings, **_: [Heard(str(recordings[0][0]), "a", "b")])
    file = tmp_path / "here.json"
    asked = ["verify", str(TINY), "--allow-unsigned", "--answers", str(file), "--speech", "a.wav", "hello"]

    assert main([*asked, "--board", "host"]) == 0
    found = read_side(file)
    assert (found.target, found.package["name"], found.machine["device"]) == ("on-host", "tiny", "cpu")
    assert found.speech == (Heard("a.wav", "a", "b"),)
    answers[0] = dataclasses.replace(answers[0], result=dataclasses.replace(result, max_abs=1.0))
    assert main(asked) == 1
    assert main([*asked[:3], "--answers", str(tmp_path)]) == 1


class ToyRuntime:
    """A runtime that hears the same in every recording."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        pass

    def transcribe(self, samples: bytes, audio: Any) -> list[Any]:
        """Two utterances."""
        assert (len(samples), audio.rate) == (320, 16000)
        return [SpeechStarted(1, 0, 0), Transcript(1, 0, "hello", 0, 1), Transcript(1, 0, "there", 1, 2)]


def recording(path: Path, channels: int = 1) -> Path:
    """160 frames of silence."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(320 * channels))
    return path


def test_hear__joins_the_transcripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording is known by the digest of its samples, wherever the file lies."""
    monkeypatch.setattr("dpfedge.runtime.Runtime.open", lambda *_, **__: ToyRuntime())
    one, other = (hear(TINY, "auto", [(recording(tmp_path / name), "hello")]) for name in ("a.wav", "b.wav"))

    assert one == other
    whole = (tmp_path / "b.wav").read_bytes().replace(b"data\x40\x01", b"data\xff\x01")
    (tmp_path / "a.wav").write_bytes(b"RIFF\xff\xff\0\0" + whole[8:] + b"x")
    assert hear(TINY, "auto", [(tmp_path / "a.wav", "hello")]) == one  # it ends within a sample
    assert (one[0].said, one[0].heard) == ("hello", "hello there")


def test_hear__what_is_no_recording_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, no WAV file, a chunk that is longer than the file, two channels."""
    monkeypatch.setattr("dpfedge.runtime.Runtime.open", lambda *_, **__: ToyRuntime())
    (tmp_path / "text.wav").write_text("no sound")
    (tmp_path / "long.wav").write_bytes(b"RIFFsizeWAVE" + b"\xff" * 50)
    recording(tmp_path / "stereo.wav", 2)
    for path in (tmp_path / f"{name}.wav" for name in ("missing", "text", "long", "stereo")):
        with pytest.raises(UsageError, match=path.name):
            hear(TINY, "auto", [(path, "")])
