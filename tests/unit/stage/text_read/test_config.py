# SPDX-License-Identifier: Apache-2.0
"""The text reader's settings."""

from __future__ import annotations

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.text_read.config import SCHEMA, TextReadConfig


def test_of__defaults_are_the_schemas() -> None:
    """What the schema says is what is used."""
    defaults = {name: rule["default"] for name, rule in SCHEMA["properties"].items()}

    assert TextReadConfig.of(defaults) == TextReadConfig.of({})


def test_of__refuses() -> None:
    """Unknown keys and values."""
    with pytest.raises(ConfigError, match="send: unknown value; found 'never'; allowed change, each, end"):
        TextReadConfig.of({"send": "never"})
    with pytest.raises(ConfigError, match="unknown key 'conf'"):
        TextReadConfig.of({"conf": 1})
