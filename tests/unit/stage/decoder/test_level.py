# SPDX-License-Identifier: Apache-2.0
"""Making quiet speakers louder."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.stage.decoder.level import Level


def after(*peaks: float) -> Level:
    level = Level()
    for peak in peaks:
        level.follow(np.array([0, -peak, peak / 2], np.float32))
    return level


def test_now__usual_level() -> None:
    """A speaker at a usual level is left alone."""
    assert (after(0.2).now, after(0.2).utterance) == (1.0, 1.0)


def test_now__quiet_speaker() -> None:
    """At −50 dB both models get a usual peak."""
    level = after(0.003)

    assert level.now * 0.003 == pytest.approx(0.05)
    assert level.utterance == level.now


def test_now__digital_silence() -> None:
    """The gain is bounded where there is nothing."""
    assert after(0.0).now == 24


def test_now__loud_frame_after_silence() -> None:
    """The gain falls at once and comes back slowly."""
    assert after(0.0, 0.5).now == 1
    assert after(0.0, 0.5, *[0.0] * 94).now == 1
    assert after(0.0, 0.5, *[0.0] * 940).now > 10


def test_utterance__medium_level() -> None:
    """Words that are a little quiet reach the recogniser as they were spoken."""
    level = after(0.02)

    assert level.now == pytest.approx(2.5)
    assert level.utterance == 1
