# SPDX-License-Identifier: Apache-2.0
"""The camera's settings, a request's, and those that change while it runs."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import ConfigError, InputError
from dpfedge.stage.camera.config import SCHEMA, CameraConfig


def test_of__defaults_are_the_schemas() -> None:
    """What the schema says is what is used."""
    defaults = {name: rule["default"] for name, rule in SCHEMA["properties"].items()}

    assert CameraConfig.of({}) == CameraConfig.of(defaults)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rat": 3}, r"unknown key 'rat'.*did you mean rate\?"),
        ({"rate": 0}, "rate: out of range"),
        ({"width": 9000}, "width: out of range; found 9000; allowed at most 8192"),
        ({"count": "all"}, "count: wrong type"),
        ({"multiple": 64, "height": 48}, "frames are smaller than `multiple`; found 64; allowed at most 48"),
    ],
)
def test_of__refuses(settings: dict[str, Any], message: str) -> None:
    """Unknown keys, wrong types and impossible sizes."""
    with pytest.raises(ConfigError, match=message):
        CameraConfig.of(settings)


def test_for_request__brings_its_own() -> None:
    """A source where there is none, fewer frames, a lower rate; never a higher one."""
    config = CameraConfig.of({"rate": 5}).for_request({"mode": 5, "source": "a.mp4", "count": 2, "rate": 50})

    assert (config.source, config.count, config.rate) == ("a.mp4", 2, 5)
    assert CameraConfig.of({"source": "b"}).for_request({}).source == "b"


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({}, {}, "no source; allowed a video file or /dev/videoN; add source"),
        ({"source": "a"}, {"source": "/etc/passwd"}, "the source is a setting of the stage; found /etc/passwd"),
        ({"source": "a"}, {"count": 0}, "count: out of range"),
        ({}, {"source": 3}, "source: wrong type"),
    ],
)
def test_for_request__refuses(settings: dict[str, Any], options: dict[str, Any], message: str) -> None:
    """The request's own mistake is an InputError."""
    with pytest.raises(InputError, match=message):
        CameraConfig.of(settings).for_request(options)


def test_adjusted__within_the_ports() -> None:
    """Rate and size may sink and rise again, up to what the link's slots hold."""
    most = CameraConfig.of({"width": 640, "height": 480, "multiple": 32})
    lower = most.adjusted({"rate": 2, "width": 320}, most)

    assert (lower.rate, lower.width, lower.height) == (2, 320, 480)
    assert lower.adjusted({"rate": None, "width": 640}, most) == most
    for settings, message in (
        ({"width": 641}, "width is out of range; found 641; allowed 32 to 640"),
        ({"height": 16}, "height is out of range"),
        ({"source": "x"}, "this cannot change while it runs; found source; allowed rate, width, height"),
        ({"rate": -1}, "rate: out of range"),
    ):
        with pytest.raises(ConfigError, match=message):
            most.adjusted(settings, most)
