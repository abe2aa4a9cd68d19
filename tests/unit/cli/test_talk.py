# SPDX-License-Identifier: Apache-2.0
"""`dpfedge talk` without a sound system says what is missing."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from dpfedge.cli import main, talk

Output = pytest.CaptureFixture[str]


def test_talk__without_the_library(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 5 with the two things to install; what was prepared is given back."""
    closed: list[int] = []
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    monkeypatch.setattr(talk, "prepare", lambda package, **_: SimpleNamespace(close=lambda: closed.append(1)))

    assert main(["talk", "voice.dpfbin"]) == 5
    shown = capsys.readouterr().err
    assert "talk: no sound library" in shown
    assert "the extra dpfedge[talk]" in shown
    assert closed == [1]


def test_talk__a_package_that_is_refused(capsys: Output) -> None:
    """Also where there is no sound."""
    assert main(["talk", "missing.dpfbin"]) == 4
    assert "there is no such file" in capsys.readouterr().err
