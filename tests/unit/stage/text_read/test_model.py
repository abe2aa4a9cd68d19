# SPDX-License-Identifier: Apache-2.0
"""The reader's graphs: any width, or one of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import ModelError, StageError
from dpfedge.stage.text_read.model import Reader


def test_any_width__in_place(red_model: Callable[..., Any], written: Callable[..., np.ndarray]) -> None:
    """One row of shares for every eight columns."""
    reader = Reader(red_model(), Budget())

    assert reader.run(written("ab_c")).argmax(axis=1).tolist() == [1, 2, 0, 3]
    assert (reader.rows, reader.widths) == (48, ())


def test_fixed_widths__filled_up(red_model: Callable[..., Any], written: Callable[..., np.ndarray]) -> None:
    """The next width is taken, and nothing of the filling or of an earlier line is read."""
    reader = Reader(red_model(64, 32), Budget())

    assert reader.widths == (32, 64)
    assert reader.run(written("abcdeabc")).argmax(axis=1).tolist() == [1, 2, 3, 4, 5, 1, 2, 3]
    assert reader.run(written("edcba")).argmax(axis=1).tolist() == [5, 4, 3, 2, 1]
    assert reader.run(written("ab")).argmax(axis=1).tolist() == [1, 2]
    with pytest.raises(StageError, match="the line is too wide; found 72; allowed at most 64; set line_columns"):
        reader.run(written("abcdeabcd"))


def test_lines_and_models__of_another_kind(driver: Any, red_model: Callable[..., Any]) -> None:
    """Lines of another height, and models without the graph."""
    with pytest.raises(StageError, match="lines of another height; found 32; allowed 48; set rows: 48"):
        Reader(red_model(), Budget()).run(np.zeros((32, 64, 3), np.uint8))
    with pytest.raises(ModelError, match="no graph of a text reader; found detect; allowed read"):
        Reader(driver.Model("m", {"detect": red_model()._graphs["read"]}, {}), Budget())
