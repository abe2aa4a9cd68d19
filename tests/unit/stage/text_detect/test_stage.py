# SPDX-License-Identifier: Apache-2.0
"""The text detector: frames in place in, one message of lines per frame out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ConfigError, ModelError, StageError
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.text_detect.stage import TextDetectStage
from dpfedge.stage.text_lines import read_lines


def frame(*bars: tuple[int, int, int, int], size: tuple[int, int] = (96, 192)) -> np.ndarray:
    """Dark bars (left, top, right, low) on white, read-only as a link gives it."""
    made = np.full((*size, 3), 255, np.uint8)
    for left, top, right, low in bars:
        made[top:low, left:right] = (10, 200, 30)
    made.flags.writeable = False
    return made


def run(driver: Any, stage: TextDetectStage, *frames: np.ndarray) -> Any:
    """A request of these frames, to its end."""
    io = driver.IO(Mode.RUN, {}, ("sink", "lines"))
    io.inputs = frozenset(("frames",))
    for number, data in enumerate(frames):
        message = io.put(Kind.DATA, data, turn=0)
        message.port, message.captured_ns = "frames", number + 1
    io.put(Kind.END).port = "frames"
    driver.drive(stage.request(io), io)
    return io


def test_frames__one_message_each(driver: Any, detect_stage: Callable[..., TextDetectStage]) -> None:
    """Also for a frame without text; lines are upright, in reading order, with the frame's colours."""
    two = frame((100, 20, 180, 36), (10, 60, 60, 76))
    io = run(driver, detect_stage(), two, frame())

    first, second = io.of(Kind.DATA, "lines")
    lines = read_lines(first)
    assert [round(float(line.corners[0, 1])) // 30 for line in lines] == [0, 1]
    assert [line.pixels.shape[0] for line in lines] == [48, 48]
    assert [line.pixels.shape[1] % 8 for line in lines] == [0, 0]
    assert lines[0].pixels[24, 60].tolist() == pytest.approx([10, 200, 30], abs=3)
    assert read_lines(second) == []
    done = io.of(Kind.DONE)[0]
    assert (done["messages"], done["lines"], done["left_out"], done["scaled"]) == (2, 2, 0, 0)
    assert io.of(Kind.END, "lines") == [""]


def test_frames__of_another_size(driver: Any, detect_stage: Callable[..., TextDetectStage]) -> None:
    """They are scaled for the model and counted; lines are cut from the frame itself."""
    large = frame((100, 40, 300, 80), size=(200, 400))
    io = run(driver, detect_stage(side_max=192), large)

    line = read_lines(io.of(Kind.DATA, "lines")[0])[0]
    assert line.corners.mean(axis=0) == pytest.approx((200, 60), abs=3)
    assert line.corners[0, 0] < 100
    assert line.corners[1, 0] > 300
    assert io.of(Kind.DONE)[0]["scaled"] == 1


def test_adjust__a_smaller_picture_for_the_model(driver: Any, detect_stage: Callable[..., TextDetectStage]) -> None:
    """Live; anything else would change the links, or what text is."""
    stage, large = detect_stage(), frame((10, 20, 180, 36))
    assert run(driver, stage, large).of(Kind.DONE)[0]["scaled"] == 0

    stage.adjust({"side_max": 96})
    assert run(driver, stage, large).of(Kind.DONE)[0]["scaled"] == 1
    with pytest.raises(ConfigError, match="cannot change while the stage runs; found columns; allowed side_max"):
        stage.adjust({"columns": 100})
    stage.adjust({})
    assert run(driver, stage, large).of(Kind.DONE)[0]["scaled"] == 0


def test_lines__that_find_no_room(driver: Any, detect_stage: Callable[..., TextDetectStage]) -> None:
    """The message never grows beyond its slot: what does not fit is counted."""
    two = frame((10, 20, 180, 36), (10, 60, 180, 76))
    io = run(driver, detect_stage(columns=400), two)

    data = io.of(Kind.DATA, "lines")[0]
    done = io.of(Kind.DONE)[0]
    assert (len(read_lines(data)), done["lines"], done["left_out"]) == (1, 1, 1)
    assert data.nbytes <= detect_stage(columns=400).ports({"columns": 400}, None).outputs["lines"].nbytes


def test_frame__cancelled_before_it_is_cut(driver: Any, detect_stage: Callable[..., TextDetectStage]) -> None:
    """Nothing is sent for it."""
    stage = detect_stage()
    io = driver.IO(Mode.RUN, {}, ("sink", "lines"))
    io.inputs = frozenset(("frames",))
    io.put(Kind.DATA, frame((10, 20, 90, 36)), turn=0).port = "frames"
    steps = stage.request(io)
    next(steps)
    io.cancel_before = 1
    io.put(Kind.END).port = "frames"
    driver.drive(steps, io)

    assert io.of(Kind.DATA, "lines") == []
    assert not stage._counts


@pytest.mark.parametrize(
    "data", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)]
)
def test_frame__that_is_none(driver: Any, detect_stage: Callable[..., TextDetectStage], data: np.ndarray) -> None:
    """Another shape or dtype is refused; the request's counts are forgotten."""
    stage = detect_stage()
    with pytest.raises(StageError, match=r"not a frame; found .*; allowed u8\[height, width, 3\]"):
        run(driver, stage, data)
    assert not stage._counts


def test_stage__facts_and_models(driver: Any, detect_stage: Callable[..., TextDetectStage]) -> None:
    """Fixed shapes are told; without a model there is no stage."""
    assert detect_stage((64, 96)).facts() == {"name": "detect", "sizes": [[64, 96]]}
    assert TextDetectStage.name == "text-detect"
    with pytest.raises(ModelError, match="the stage needs a model; allowed family ppocr-detect"):
        TextDetectStage(None, {}, Budget())
