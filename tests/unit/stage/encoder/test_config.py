# SPDX-License-Identifier: Apache-2.0
"""The encoder's settings."""

from __future__ import annotations

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.encoder.config import LIVE, SCHEMA, EncoderConfig


def test_of__given_and_default() -> None:
    """Given settings replace defaults."""
    config = EncoderConfig.of({"partials": False, "invented": ["hm"]})

    assert (config.partials, config.invented, config.partial_ms) == (False, ("hm",), 600)


def test_of__unknown_key() -> None:
    """A misspelt key names the nearest one."""
    with pytest.raises(ConfigError, match="did you mean partial_ms"):
        EncoderConfig.of({"partials_ms": 3})


def test_live__are_settings_that_there_are() -> None:
    """What may change while the stage runs is among what it has."""
    assert set(LIVE) <= set(SCHEMA["properties"])
