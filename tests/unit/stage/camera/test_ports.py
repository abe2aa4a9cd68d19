# SPDX-License-Identifier: Apache-2.0
"""The camera's port follows its settings."""

from __future__ import annotations

from dpfedge.stage.camera.ports import NEEDS_MODEL, ports


def test_ports__hold_the_largest_frame() -> None:
    """A slot is as large as the settings allow a frame to be; the rate is said when there is one."""
    made = ports({"width": 640, "height": 480, "rate": 5}, None)

    frames = made.outputs["frames"]
    assert (frames.nbytes, frames.rate, frames.layout, frames.unit) == (640 * 480 * 3, 5, "hwc", "rgb")
    assert ports({}, None).outputs["frames"].rate is None
    assert not made.inputs
    assert NEEDS_MODEL is False
