# SPDX-License-Identifier: Apache-2.0
"""The text detector's ports fit a camera's and a reader's."""

from __future__ import annotations

from dpfedge.stage.camera.ports import ports as camera_ports
from dpfedge.stage.ports import difference
from dpfedge.stage.text_detect.ports import ports
from dpfedge.stage.text_read.ports import ports as read_ports


def test_ports__fit_their_neighbours() -> None:
    """Frames of any camera come in, lines go to any reader."""
    made = ports({}, None)

    assert (
        difference(camera_ports({"width": 8192, "height": 8192}, None).outputs["frames"], made.inputs["frames"]) is None
    )
    assert difference(made.outputs["lines"], read_ports({}, {"height": 48}).inputs["lines"]) is None


def test_ports__slots_as_large_as_the_settings_say() -> None:
    """Columns make the size of a slot; frames beyond the bounds do not fit."""
    assert ports({"columns": 1000, "lines": 2}, None).outputs["lines"].nbytes < 1000 * 48 * 3 + 500
    small = ports({"width": 640, "height": 480}, None).inputs["frames"]
    assert difference(camera_ports({}, None).outputs["frames"], small) is not None
