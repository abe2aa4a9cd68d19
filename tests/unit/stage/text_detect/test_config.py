# SPDX-License-Identifier: Apache-2.0
"""The text detector's settings."""

from __future__ import annotations

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.text_detect.config import SCHEMA, TextDetectConfig


def test_of__defaults_are_the_schemas() -> None:
    """What the schema says is what is used."""
    defaults = {name: rule["default"] for name, rule in SCHEMA["properties"].items()}

    assert TextDetectConfig.of(defaults) == TextDetectConfig.of({})


def test_of__refuses() -> None:
    """Unknown keys and values out of range."""
    with pytest.raises(ConfigError, match=r"unknown key 'treshold'.*did you mean threshold\?"):
        TextDetectConfig.of({"treshold": 0.5})
    with pytest.raises(ConfigError, match="lines: out of range; found 2000; allowed at most 1024"):
        TextDetectConfig.of({"lines": 2000})
