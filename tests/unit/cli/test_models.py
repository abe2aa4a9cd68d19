# SPDX-License-Identifier: Apache-2.0
"""`dpfedge models` lists, fetches and deletes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpfedge.cli import main
from dpfedge.cli import models as verb
from dpfedge.models import ModelFiles, OnProgress, catalogue


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's cache."""
    monkeypatch.setenv("DPFEDGE_HOME", str(tmp_path))


def test_list__table(capsys: pytest.CaptureFixture[str]) -> None:
    """Each model has a line with size and licence."""
    assert main(["models", "list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(catalogue())
    assert lines[0].split()[:5] == ["silero-vad", "1.3", "MB", "-", "MIT"]


def test_list__json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the same and the digests."""
    assert main(["models", "list", "--json"]) == 0

    first = json.loads(capsys.readouterr().out)["models"][0]
    assert (first["name"], first["cached"], first["source"]) == ("silero-vad", False, "wheel silero-vad 6.2.3")
    assert len(first["files"]["LICENSE"]["sha256"]) == 64


def test_pull__announces_only_downloads(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a download is one line on the error channel; the place goes to the output."""

    def fake(name: str, on_progress: OnProgress | None) -> ModelFiles:
        if name == "silero-vad" and on_progress is not None:
            on_progress(1, 2_000_000)
            on_progress(2, 2_000_000)
        return ModelFiles(catalogue()[name], Path("/cache") / name)

    monkeypatch.setattr(verb, "pull", fake)
    assert main(["models", "pull", "silero-vad", "piper-en-us-joe"]) == 0

    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "silero-vad: /cache/silero-vad (MIT)", "piper-en-us-joe: /cache/piper-en-us-joe (MIT AND CC0-1.0)",
    ]  # fmt: skip
    assert err == "fetching silero-vad: 2.0 MB\n"


def test_pull__unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt name is an error that offers the right one."""
    assert main(["models", "pull", "silero"]) == 1
    assert "did you mean" in capsys.readouterr().err


def test_remove__not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Removing what is not there frees nothing."""
    assert main(["models", "remove", "silero-vad"]) == 0
    assert capsys.readouterr().out == "silero-vad: 0.0 MB freed\n"
