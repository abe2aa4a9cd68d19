# SPDX-License-Identifier: Apache-2.0
"""Settings that change while a stage runs."""

from __future__ import annotations

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.live import adjusted


def test_adjusted__wins_over_what_the_stage_started_with() -> None:
    """Without any it is as it was, so that going back is sending none."""
    own = {"partials": True, "repeats": 4}

    assert adjusted(own, {"partials": False}, ("partials",), "stage encoder") == {"partials": False, "repeats": 4}
    assert adjusted(own, {}, ("partials",), "stage encoder") == own


def test_adjusted__of_a_setting_that_cannot_change() -> None:
    """The error lists those that can, and the nearest of them."""
    with pytest.raises(ConfigError, match=r"stage encoder: .*found partal; allowed partials; did you mean partials\?"):
        adjusted({}, {"partal": 1}, ("partials",), "stage encoder")
