# SPDX-License-Identifier: Apache-2.0
"""The detector's graphs: any size, or one of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ModelError, StageError
from dpfedge.stage.text_detect.model import Detector


def test_any_size__in_place_or_scaled(dark_model: Callable[..., Any]) -> None:
    """Multiples within the bound are read as they are; others become the nearest that keep the proportions."""
    detector = Detector(dark_model(), Budget(), 640)

    assert [detector.size_for(shape) for shape in ((480, 640, 3), (64, 96), (481, 650), (1080, 1920), (5, 7))] == [
        (480, 640), (64, 96), (480, 640), (352, 640), (32, 32),
    ]  # fmt: skip
    frame = np.full((64, 96, 3), 255, np.uint8)
    frame[20:40] = 0
    frame.flags.writeable = False
    assert detector.run(frame)[30, 50] == pytest.approx(1)
    assert detector.run(np.full((50, 97, 3), 51, np.uint8)).shape == (64, 96)
    assert detector.run(np.full((50, 97, 3), 51, np.uint8)).mean() == pytest.approx(0.8)


def test_fixed_sizes__the_nearest(dark_model: Callable[..., Any]) -> None:
    """A backend of fixed shapes gets frames of one of them."""
    detector = Detector(dark_model((64, 96), (96, 64)), Budget(), 640)

    assert detector.sizes == ((64, 96), (96, 64))
    assert detector.size_for((480, 640)) == (64, 96)
    assert detector.size_for((640, 480)) == (96, 64)
    assert detector.run(np.zeros((120, 80, 3), np.uint8)).shape == (96, 64)


def test_model__of_something_else(driver: Any, dark_model: Callable[..., Any]) -> None:
    """The graphs it has are named; numbers that are none are no map."""
    with pytest.raises(ModelError, match="no graph of a text detector; found read; allowed detect"):
        Detector(driver.Model("m", {"read": dark_model()._graphs["detect"]}, {}), Budget(), 640)
    broken = dark_model()
    broken._graphs["detect"].graph.initializer[3].float_data[:] = [float("nan")]
    with pytest.raises(StageError, match="no numbers"):
        Detector(broken, Budget(), 640).run(np.zeros((32, 32, 3), np.uint8))
