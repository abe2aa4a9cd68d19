# SPDX-License-Identifier: Apache-2.0
"""Work that is not urgent while memory is low."""

from __future__ import annotations

import pytest

from dpfedge.errors import UsageError
from dpfedge.pipeline.demoting import Demoting


def test_urgency__of_new_work_while_memory_is_low() -> None:
    """Under 15 % free until 20 % are: what is over the usual 3 goes last; the rest as it wants."""
    free = [0.5]
    demoting = Demoting(lambda: free[0])
    assert [demoting.urgency(wanted) for wanted in range(8)] == [0, 1, 2, 3, 4, 5, 6, 7]
    free[0] = 0.1499
    assert [demoting.urgency(wanted) for wanted in range(8)] == [0, 1, 2, 3, 7, 7, 7, 7]
    free[0] = 0.1999
    assert (demoting.urgency(4), demoting.figures()) == (7, {"low": True, "demoted": 4})
    free[0] = 0.2
    assert (demoting.urgency(4), demoting.figures()) == (4, {"low": False, "demoted": 4})


def test_urgency__of_usual_work_asks_nobody() -> None:
    """What a conversation waits for reads no file."""

    def ask() -> float:
        raise AssertionError("somebody asked")

    assert [Demoting(ask).urgency(wanted) for wanted in range(4)] == [0, 1, 2, 3]


def test_urgency__where_nobody_knows_the_memory() -> None:
    """Nothing is demoted; what was known last holds."""
    free: list[float | None] = [None]
    demoting = Demoting(lambda: free[0])
    assert demoting.urgency(5) == 5
    free[0] = 0.01
    assert demoting.urgency(5) == 7
    free[0] = None
    assert demoting.urgency(5) == 7


def test_urgency__that_there_is_not() -> None:
    """As everywhere."""
    with pytest.raises(UsageError, match="urgency"):
        Demoting(lambda: 0.5).urgency(8)
