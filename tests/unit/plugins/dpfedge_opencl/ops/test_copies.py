# SPDX-License-Identifier: Apache-2.0
"""Copies of whole tensors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from dpfedge_opencl.ops.copies import copy_args
from made_nodes import FACTS, model, node, port, run


@pytest.mark.parametrize("size", [1, 63, 64, 65, 1 << 20])
@pytest.mark.parametrize("cpu", [True, False])
def test_copy__every_byte_has_an_item(size: int, cpu: bool) -> None:
    """The groups cover the size, and no item begins behind it."""
    _, args, items, _ = copy_args("a", "b", size, 4, dataclasses.replace(FACTS, cpu=cpu))
    group = int(np.asarray(args[3]))
    assert (items[0] - 1) * group < size <= items[0] * group


def test_copy__an_input_handed_through_is_copied() -> None:
    """An output is memory of its own."""
    x = np.arange(77, dtype=np.float32)
    made = model(
        [node("Identity", "x", "y"), node("Relu", "x", "z")], [port("x", [77])], [port("y", [77]), port("z", [77])]
    )
    found = run(made, x=x)
    assert np.array_equal(found["y"], x)
