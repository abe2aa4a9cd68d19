# SPDX-License-Identifier: Apache-2.0
"""`dpfedge talk` without a sound system says what is missing."""

from __future__ import annotations

import sys

import pytest

from dpfedge.cli import main

Output = pytest.CaptureFixture[str]


def test_talk__without_the_library(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 5 with the two things to install; the package is not even opened."""
    monkeypatch.setitem(sys.modules, "sounddevice", None)

    assert main(["talk", "missing.dpfbin"]) == 5
    shown = capsys.readouterr().err
    assert "talk: no sound library" in shown
    assert "the extra dpfedge[talk]" in shown
