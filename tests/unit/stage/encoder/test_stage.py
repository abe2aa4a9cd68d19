# SPDX-License-Identifier: Apache-2.0
"""The encoder stage as the pipeline sees it."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ConfigError
from dpfedge.stage.encoder import EncoderStage


def test_stage__warm_and_facts(toy: Any) -> None:
    """A stage warms up and names its model."""
    stage = EncoderStage(toy(), {}, Budget())
    stage.warm()

    assert stage.facts() == {"name": "toy", "languages": ["en"]}


def test_stage__unknown_setting(toy: Any) -> None:
    """A misspelt setting is found before the model is loaded."""
    with pytest.raises(ConfigError, match="did you mean partial_share"):
        EncoderStage(toy(), {"partialshare": 1}, Budget())
