# SPDX-License-Identifier: Apache-2.0
"""The voice activity model's state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.stage.decoder.vad import WINDOW, VoiceActivity


def test_probability__state_goes_from_frame_to_frame(driver: Any, toys: Any) -> None:
    """Each call reads the state the one before it wrote."""
    executable = driver.Model("toy", {"vad": toys(counts=True)}, {}).load("vad", Budget())
    one, other = VoiceActivity(executable), VoiceActivity(executable)

    seen = [one.probability(np.zeros(WINDOW, np.float32)) for _ in range(5)]

    assert seen == pytest.approx([0, 0.01, 0.02, 0.03, 0.04])
    assert other.probability(np.zeros(WINDOW, np.float32)) == 0
    assert one.busy_ns > 0


def test_probability__gain(driver: Any, toys: Any) -> None:
    """The model hears the window times the gain; the window stays as it is."""
    vad = VoiceActivity(driver.Model("toy", {"vad": toys()}, {}).load("vad", Budget()))
    window = np.full(WINDOW, 0.01, np.float32)

    assert vad.probability(window, 10.0) == pytest.approx(0.4)
    assert window[0] == np.float32(0.01)
