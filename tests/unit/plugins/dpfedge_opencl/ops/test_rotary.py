# SPDX-License-Identifier: Apache-2.0
"""Rotary positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_flavours import BOTH, agree, floats, one


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("at", [np.array([2]), np.array([[0, 5, 9], [1, 2, 3]])], ids=["first", "each"])
def test_rotary_embedding__turns_heads(at: Any, interleaved: int, flavour: str) -> None:
    """A part of each head, by the position of the first token or of each."""
    angles = floats(16, 4, seed=3)
    feeds = {"x": floats(2, 3, 20, seed=1), "at": at.astype(np.int64)}
    tables = {"cos": np.cos(angles), "sin": np.sin(angles)}
    made = one("ms:RotaryEmbedding", feeds, tables, num_heads=2, rotary_embedding_dim=8, interleaved=interleaved)
    agree(made, flavour, feeds)
