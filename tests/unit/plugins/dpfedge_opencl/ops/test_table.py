# SPDX-License-Identifier: Apache-2.0
"""Tables of places."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.table import pad_table


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(2, 1), (0, 3), (9, 8)])
def test_pad_table__is_numpys(mode: str, pads: tuple[int, int]) -> None:
    """Also where the pads are longer than the axis."""
    assert np.array_equal(pad_table(4, pads, mode), np.pad(np.arange(4), pads, mode))  # type: ignore[call-overload]


def test_pad_table__another_mode_is_an_error() -> None:
    """By its name."""
    with pytest.raises(ValueError, match="twist"):
        pad_table(4, (1, 1), "twist")
