# SPDX-License-Identifier: Apache-2.0
"""The decoder stage as the pipeline sees it."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ConfigError, ModelError
from dpfedge.stage.decoder import DecoderStage


def test_stage__warm_and_facts(driver: Any, toys: Any) -> None:
    """A stage warms up and names its times."""
    stage = DecoderStage(driver.Model("toy", {"vad": toys()}, {}), {"endpoint_ms": 320}, Budget())
    stage.warm()

    assert stage.facts() == {"rate": 16000, "draft_ms": 200, "endpoint_ms": 320, "pre_roll_ms": 320}


def test_stage__wrong_model(driver: Any, toys: Any) -> None:
    """A model with other graphs or ports is refused by name."""
    with pytest.raises(ModelError, match="one graph"):
        DecoderStage(driver.Model("toy", {"a": toys(), "b": toys()}, {}), {}, Budget())
    other = toys()
    other.graph.output[0].name = "other"
    other.graph.node[-2].output[0] = "other"
    with pytest.raises(ModelError, match="not a Silero model's ports"):
        DecoderStage(driver.Model("toy", {"vad": other}, {}), {}, Budget())


def test_stage__unknown_setting(driver: Any, toys: Any) -> None:
    """A misspelt setting is found before the model is loaded."""
    with pytest.raises(ConfigError, match="did you mean pre_roll_ms"):
        DecoderStage(driver.Model("toy", {"vad": toys()}, {}), {"preroll_ms": 1}, Budget())
