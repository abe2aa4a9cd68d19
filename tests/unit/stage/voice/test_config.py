# SPDX-License-Identifier: Apache-2.0
"""Settings of the voice stage."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.voice.config import VoiceConfig


def test_of__keeps_what_is_given() -> None:
    """Other settings have their defaults."""
    assert VoiceConfig.of({"gain": 2, "noise_w": 0.5}) == VoiceConfig(gain=2, noise_w=0.5)


@pytest.mark.parametrize(
    ("data", "message"),
    [({"spede": 1}, "did you mean speed"), ({"gain": "loud"}, "wrong type"), ({"speed": 9}, "at most 4")],
)
def test_of__refuses_and_says_why(data: dict[str, Any], message: str) -> None:
    """Unknown keys, types and ranges."""
    with pytest.raises(ConfigError, match=message):
        VoiceConfig.of(data)
