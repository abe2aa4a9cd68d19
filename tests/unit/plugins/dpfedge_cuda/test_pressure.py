# SPDX-License-Identifier: Apache-2.0
"""Work that is not urgent waits while device memory is low."""

from __future__ import annotations

import pytest
from dpfedge_cuda.pressure import Pressure

from dpfedge.errors import BackendError


def test_low__until_a_fifth_is_free() -> None:
    """Below 15 % it begins, at 20 % it ends, as in routing."""
    shares = iter([0.16, 0.14, 0.16, 0.19, 0.21, 0.16])
    pressure = Pressure(lambda: next(shares), look_s=0.0)
    assert [pressure.low() for _ in range(6)] == [False, True, True, True, False, False]


def test_low__asks_seldom() -> None:
    """Between looks the last answer stands."""
    asked: list[int] = []

    def share() -> float:
        asked.append(1)
        return 0.1

    pressure = Pressure(share, look_s=60.0)
    assert [pressure.low() for _ in range(5)] == [True] * 5
    assert len(asked) == 1


def test_admit__waits_and_goes_on() -> None:
    """As soon as there is memory."""
    shares = iter([0.1, 0.1, 0.1, 0.5])
    Pressure(lambda: next(shares), look_s=0.001).admit(lambda: False)
    assert list(shares) == []


def test_admit__a_named_error_at_the_deadline() -> None:
    """With what is free, what is needed and what to do."""
    with pytest.raises(BackendError, match=r"stays low.*waited 0\.05 s; found 12% free; allowed 15% .*urgency of 3"):
        Pressure(lambda: 0.12, wait_s=0.05, look_s=0.01).admit(lambda: False)


def test_admit__a_cancel_ends_the_waiting() -> None:
    """The run then says it was cancelled."""
    Pressure(lambda: 0.0, wait_s=60.0, look_s=0.01).admit(lambda: True)
