# SPDX-License-Identifier: Apache-2.0
"""The decoder's settings."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import ConfigError, InputError
from dpfedge.stage.decoder.config import DecoderConfig


def test_of__unknown_key() -> None:
    """A misspelt key names the nearest one."""
    with pytest.raises(ConfigError, match="endpoint_ms"):
        DecoderConfig.of({"endpoint": 300})


def test_of__thresholds_crossed() -> None:
    """Speech cannot end above where it starts."""
    with pytest.raises(ConfigError, match="above start_threshold"):
        DecoderConfig.of({"start_threshold": 0.3, "end_threshold": 0.4})


def test_for_request__realtime_names() -> None:
    """A session's own figures replace the package's; what the face decides is passed over."""
    asked = {"type": "server_vad", "threshold": 0.7, "prefix_padding_ms": 100, "silence_duration_ms": 160.0}

    config = DecoderConfig().for_request({**asked, "create_response": True})

    assert (config.start_threshold, config.end_threshold) == (0.7, 0.35)
    assert (config.pre_roll_ms, config.endpoint_ms, config.draft_ms) == (100, 160, 160)


@pytest.mark.parametrize("vad", [{"threshold": 2}, {"silence_duration_ms": "500"}, {"silence_duration_ms": True}])
def test_for_request__out_of_range(vad: dict[str, Any]) -> None:
    """Absurd figures are the request's fault."""
    with pytest.raises(InputError, match="out of range"):
        DecoderConfig().for_request(vad)


def test_for_request__unknown_name() -> None:
    """A setting nobody knows is refused by its name."""
    with pytest.raises(InputError, match="found eagerness"):
        DecoderConfig().for_request({"eagerness": "high"})
