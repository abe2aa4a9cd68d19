# SPDX-License-Identifier: Apache-2.0
"""Typed ports: sizes, and what fits what."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.ports import Dim, Port, Ports, difference, text_port

FRAME = Port("u8", (Dim("height", 16, 1080), Dim("width", 16, 1920), 3), rate=30.0, layout="hwc", unit="rgb")


def test_nbytes__is_the_most_a_message_takes() -> None:
    """Every dynamic dimension at its largest."""
    assert FRAME.nbytes == 1080 * 1920 * 3
    assert Port("f32").nbytes == 4
    assert text_port(100).nbytes == 100


@pytest.mark.parametrize(
    ("port", "what"),
    [
        (FRAME, None),
        (Port("u8", (Dim("h", 1, 4000), Dim("w", 1, 4000), 3)), None),
        (Port("f32", FRAME.shape), ("dtype", "u8", "f32")),
        (Port("u8", FRAME.shape[:2]), ("rank", "3 dimensions", "2 dimensions")),
        (Port("u8", (Dim("h", 32, 1080), *FRAME.shape[1:])), ("dimension 0", FRAME.shape[0], Dim("h", 32, 1080))),
        (Port("u8", (*FRAME.shape[:2], 1)), ("dimension 2", 3, 1)),
        (Port("u8", (720, *FRAME.shape[1:])), ("dimension 0", FRAME.shape[0], 720)),
        (Port("u8", FRAME.shape, rate=15.0), ("rate", 30.0, 15.0)),
        (Port("u8", FRAME.shape, layout="chw"), ("layout", "hwc", "chw")),
        (Port("u8", FRAME.shape, unit="bgr"), ("unit", "rgb", "bgr")),
    ],
)
def test_difference__names_the_first_misfit(port: Port, what: Any) -> None:
    """What is not said fits anything; an output may be narrower than an input, never wider."""
    assert difference(FRAME, port) == what


@pytest.mark.parametrize(
    ("dtype", "shape", "words"),
    [
        ("u9", (), "unknown dtype"),
        ("u8", (1, 2, 3, 4), "too many"),
        ("u8", (-1,), "found -1; allowed 0 <= least <= most"),
        ("u8", (0,), "found 0"),
        ("u8", (Dim("n", 5, 4),), "found n 5..4"),
        ("u8", (Dim("n", 0, 0),), "found n 0..0"),
    ],
)
def test_port__that_no_message_can_be(dtype: str, shape: tuple[int | Dim, ...], words: str) -> None:
    """Refused where it is written, not when the first message is sent."""
    with pytest.raises(ConfigError, match=words):
        Port(dtype, shape)


@pytest.mark.parametrize("slots", [0, 1, 4097])
def test_port__that_no_link_can_be_of(slots: int) -> None:
    """As many slots as a pipeline may write."""
    with pytest.raises(ConfigError, match="allowed 2 to 4096"):
        Port("u8", (1,), slots=slots)


@pytest.mark.parametrize("name", ["", "in.put", "UP", "x" * 25, "sink", 5])
def test_ports__of_a_name_that_no_link_can_say(name: Any) -> None:
    """A pipeline could not write it down, or means something else by it."""
    with pytest.raises(ConfigError, match="a port cannot be called that"):
        Ports(outputs={name: FRAME})


def test_ports__of_something_else() -> None:
    """A dtype alone is no port."""
    with pytest.raises(ConfigError, match=r"port a: not a port; found str; allowed Port\(\.\.\.\)"):
        Ports({"a": "f32"})  # type: ignore[dict-item]
