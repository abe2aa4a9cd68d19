# SPDX-License-Identifier: Apache-2.0
"""The encoder stage as the pipeline sees it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ConfigError
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.encoder import EncoderStage
from dpfedge.stage.encoder.stage import _hiss


def test_stage__warm_and_facts(toy: Any) -> None:
    """A stage warms up and names its model."""
    stage = EncoderStage(toy(), {}, Budget())
    stage.warm()

    assert stage.facts() == {"name": "toy", "languages": ["en"]}


def test_stage__unknown_setting(toy: Any) -> None:
    """A misspelt setting is found before the model is loaded."""
    with pytest.raises(ConfigError, match="did you mean partial_share"):
        EncoderStage(toy(), {"partialshare": 1}, Budget())


def test_adjust__counts_at_once_for_requests_that_run(toy: Any, driver: Any, heard: Any, said: Any) -> None:
    """Partial transcripts stop in the middle of a session, and come back with the settings the stage started with."""
    stage = EncoderStage(toy(), {}, Budget())
    io = driver.IO(Mode.CONVERSE, {}, ("sink", "text"))
    steps = stage.request(io)
    heard(io, said(2, 10000), partial=True)
    driver.drive(steps, io)
    assert io.of(Kind.DRAFT) == ["one two"]

    stage.adjust({"partials": False})
    heard(io, said(4, 30000), partial=True)
    driver.drive(steps, io)
    assert io.of(Kind.DRAFT) == ["one two"]

    stage.adjust({})
    heard(io, said(5, 50000), partial=True)
    driver.drive(steps, io)
    assert io.of(Kind.DRAFT) == ["one two", "one two three four five"]
    steps.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"repeats": 2}, "cannot change while the stage runs; found repeats"), ({"partial_ms": 1}, "partial_ms")],
)
def test_adjust__refuses_all_or_nothing(toy: Any, settings: dict[str, Any], words: str) -> None:
    """A setting that cannot change now, or a value out of range, changes nothing."""
    stage = EncoderStage(toy(), {}, Budget())
    before = stage._config

    with pytest.raises(ConfigError, match=words):
        stage.adjust({"partials": False, **settings})
    assert stage._config == before


def test_hiss__has_no_pattern() -> None:
    """As loud as the noise of a quiet room, the same each time, no tone in it; made without numpy.random."""
    hiss = _hiss(16000)
    loudness = np.abs(np.fft.rfft(hiss))[1:]
    assert (hiss.dtype.str, hiss.size) == ("<f4", 16000)
    assert abs(float(hiss.mean())) < 1e-4
    assert 9e-4 < float(np.abs(hiss).mean()) < 1.1e-3
    assert float(loudness.max()) < 5 * float(loudness.mean())
    code = (
        "import sys; from dpfedge.stage.encoder.stage import _hiss; _hiss(9); sys.exit('numpy.random' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
