# SPDX-License-Identifier: Apache-2.0
"""Tables of rotary angles."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.compiler.decoder.rotary import rotary_angles
from dpfedge.compiler.decoder.shape import Rotary
from dpfedge.errors import ModelError


def test_rotary_angles__by_hand() -> None:
    """Position times base^(−2i/d), divided by factors and by the scaling."""
    plain = rotary_angles(Rotary(100.0), 4, 3)
    factors = np.array([1.0, 5.0], np.float32)

    np.testing.assert_allclose(plain, [[0, 0], [1, 0.1], [2, 0.2]], rtol=1e-6)
    np.testing.assert_allclose(rotary_angles(Rotary(100.0, 0.5), 4, 3), plain / 2, rtol=1e-6)
    np.testing.assert_allclose(rotary_angles(Rotary(100.0), 4, 3, factors), plain / factors, rtol=1e-6)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_rotary_angles__factors_that_are_none(bad: float) -> None:
    """Factors no frequency can be divided by are refused."""
    with pytest.raises(ModelError, match=r"rope_freqs\.weight: rotary factors must be positive numbers"):
        rotary_angles(Rotary(100.0), 4, 3, np.array([1.0, bad], np.float32))
