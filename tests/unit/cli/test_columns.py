# SPDX-License-Identifier: Apache-2.0
"""Tables of text."""

from __future__ import annotations

import pytest

from dpfedge.cli.columns import aligned


def test_aligned__words_to_the_left_numbers_to_the_right() -> None:
    """As wide as the widest cell; nothing hangs over at the end."""
    rows = [("name", "bytes", ""), ("a", "1", "FAIL"), ("longer", "1000000", "ok")]
    assert list(aligned(rows, (0, 2))) == ["name      bytes", "a             1  FAIL", "longer  1000000  ok"]


def test_aligned__a_row_that_lacks_a_cell_is_no_table() -> None:
    """Nothing is left out in silence."""
    with pytest.raises(ValueError, match="shorter"):
        list(aligned([("a", "b"), ("c",)], (0,)))
