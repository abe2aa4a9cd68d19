# SPDX-License-Identifier: Apache-2.0
"""The camera's settings, a request's, and those that change while it runs."""

from __future__ import annotations

from dataclasses import replace
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


def test_within__what_the_links_were_made_for() -> None:
    """Frames may become smaller and as large as before, never larger."""
    most = CameraConfig.of({"width": 640, "height": 480, "multiple": 32})

    assert replace(most, width=320).within(most).width == 320
    assert most.within(most) is most
    with pytest.raises(ConfigError, match="width is out of range; found 641; allowed 32 to 640, as the link's slots"):
        replace(most, width=641).within(most)
    with pytest.raises(ConfigError, match="height is out of range; found 16"):
        replace(most, height=16).within(most)
