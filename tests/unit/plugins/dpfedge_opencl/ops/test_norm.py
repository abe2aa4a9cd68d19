# SPDX-License-Identifier: Apache-2.0
"""Normalisation."""

from __future__ import annotations

import numpy as np
import pytest
from made_flavours import BOTH, agree, floats, one
from made_nodes import compare, model, port
from onnx import helper


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("size", [5, 37, 64])
def test_layer_normalization__of_any_width(size: int, flavour: str) -> None:
    """Vectors and what is left of a row; far from zero, where squares lose digits."""
    feeds = {"x": floats(2, 3, size, seed=1) + 100}
    constants = {"scale": floats(size, seed=2), "b": floats(size, seed=3)}
    agree(one("LayerNormalization", feeds, constants), flavour, feeds, 1e-4)


def test_layer_normalization__over_two_axes() -> None:
    """From `axis` on."""
    feeds = {"x": floats(2, 3, 8, seed=1)}
    agree(one("LayerNormalization", feeds, {"scale": floats(3, 8, seed=2)}, axis=1), "wide", feeds)


@pytest.mark.parametrize("op", ["ms:SkipSimplifiedLayerNormalization", "ms:SkipLayerNormalization"])
@pytest.mark.parametrize("flavour", BOTH)
def test_skip_norms__give_the_sum_too(op: str, flavour: str) -> None:
    """The fourth output."""
    feeds = {"x": floats(1, 3, 37, seed=1), "skip": floats(1, 3, 37, seed=2)}
    made = model(
        [helper.make_node(op[3:], ["x", "skip", "g"], ["y", "", "", "total"], "n", "", "com.microsoft", epsilon=1e-5)],
        [port("x", (1, 3, 37)), port("skip", (1, 3, 37))], [port("y", (1, 3, 37)), port("total", (1, 3, 37))],
        {"g": floats(37, seed=3)},
    )  # fmt: skip
    compare(made, **feeds)
    agree(one(op, feeds, {"g": floats(37, seed=3)}, epsilon=1e-5), flavour, feeds)


@pytest.mark.parametrize("flavour", BOTH)
def test_instance_and_batch_normalization__by_channel(flavour: str) -> None:
    """With an image's two axes."""
    feeds = {"x": floats(2, 4, 5, 7, seed=1)}
    four = {name: np.abs(floats(4, seed=at)) + np.float32(0.5) for at, name in enumerate(("s", "b", "mean", "var"))}
    agree(one("InstanceNormalization", feeds, {"s": four["s"], "b": four["b"]}), flavour, feeds)
    agree(one("BatchNormalization", feeds, four), flavour, feeds)
