# SPDX-License-Identifier: Apache-2.0
"""Settings of the llm stage."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.llm.config import LIVE, SCHEMA, LlmConfig
from dpfedge.stage.llm.sampling import Sampling


def test_of__keeps_what_is_given() -> None:
    """Other settings have their defaults."""
    found = LlmConfig.of(
        {"system": "Be brief.", "sampling": {"repeat_penalty": 1.1}, "examples": [{"user": "a", "assistant": "b"}]}
    )
    assert found == LlmConfig(
        "", "Be brief.", ({"user": "a", "assistant": "b"},), sampling=Sampling(repeat_penalty=1.1)
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"systen": "x"}, "did you mean system"),
        ({"sampling": {"temprature": 1}}, "did you mean temperature"),
        ({"examples": [{"user": "a"}]}, "assistant"),
        ({"places": 0}, "at least 1"),
        ({"replies": [{"match": []}]}, "out of range|missing"),
    ],
)
def test_of__refuses_and_says_why(data: dict[str, Any], message: str) -> None:
    """Unknown keys at any depth, missing ones, ranges."""
    with pytest.raises(ConfigError, match=message):
        LlmConfig.of(data)


def test_live__are_settings_that_there_are() -> None:
    """What may change while the stage runs is among what it has."""
    assert set(LIVE) <= set(SCHEMA["properties"])
