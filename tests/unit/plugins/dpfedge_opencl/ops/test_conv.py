# SPDX-License-Identifier: Apache-2.0
"""Convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dpfedge_opencl.ops.conv import channels_of_tile, pack_taps
from made_flavours import BOTH, agree, floats, one

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "points": ((1, 12, 9, 11), (24, 12, 1, 1), {}),
    "few positions": ((1, 40, 3, 3), (33, 40, 1, 1), {}),
    "few, with pads and strides": ((2, 9, 5), (32, 9, 3), {"pads": [1, 1], "strides": [2]}),
    "pads": ((1, 5, 13, 17), (8, 5, 3, 3), {"pads": [1, 2, 0, 1]}),
    "strides": ((2, 3, 20, 19), (8, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 3]}),
    "dilations": ((1, 4, 50), (6, 4, 5), {"pads": [6, 6], "dilations": [3]}),
    "strides and dilations": ((1, 3, 21, 22), (8, 3, 3, 2), {"strides": [2, 2], "dilations": [3, 2]}),
    "depthwise": ((1, 20, 9, 9), (20, 1, 5, 5), {"group": 20, "pads": [2, 2, 2, 2]}),
    "depthwise, strides": ((2, 6, 15, 40), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1], "strides": [2, 2]}),
    "groups": ((1, 8, 30), (12, 4, 3), {"group": 2}),
    "same": ((1, 3, 10, 10), (4, 3, 2, 2), {"auto_pad": "SAME_UPPER"}),
    "long strides": ((1, 1, 640), (34, 1, 128), {"strides": [64]}),
}


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_conv__of_every_kind(case: Any, flavour: str) -> None:
    """With a bias."""
    x, w, attrs = case
    feeds = {"x": floats(*x, seed=1)}
    agree(one("Conv", feeds, {"w": floats(*w, seed=2), "b": floats(w[0], seed=3)}, **attrs), flavour, feeds)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Sigmoid", "Tanh"])
def test_fused_conv__adds_and_activates(activation: str) -> None:
    """activation(Conv + z)."""
    feeds = {"x": floats(1, 4, 30, seed=1), "z": floats(1, 6, 30, seed=4)}
    made = one(
        "ms:FusedConv", feeds, {"w": floats(6, 4, 3, seed=2), "b": floats(6, seed=3)}, names="x w b z", pads=[1, 1],
        activation=activation, activation_params=[0.2],
    )  # fmt: skip
    agree(made, "wide", feeds)


def test_pack_taps__lets_an_item_read_its_channels_together() -> None:
    """[group][tile][tap][channel in][row]."""
    weights = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)  # 3 out, 2 in, 2 taps
    found = pack_taps(weights, 2)
    assert found.shape == (1, 2, 2, 2, 2)
    assert found[0, 0, 1, 0].tolist() == [1, 5]
    assert found[0, 1, 0, 1].tolist() == [10, 0]


def test_channels_of_tile__wastes_little() -> None:
    """One for a depthwise convolution."""
    assert channels_of_tile("x86-64-v4", 1) == 1
    assert channels_of_tile("x86-64-v4", 12) == 4
    assert channels_of_tile("x86-64-v4", 96) == 8
    assert channels_of_tile("mali-g610", 96) == 4
