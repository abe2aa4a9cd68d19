# SPDX-License-Identifier: Apache-2.0
"""When samples arrived."""

from __future__ import annotations

from dpfedge.stage.decoder.arrivals import Arrivals


def test_at__the_piece_that_held_the_sample() -> None:
    """A sample's time is that of its piece."""
    arrivals = Arrivals()
    for count, at in ((1600, 10), (3200, 20), (4800, 30)):
        arrivals.mark(count, at)

    assert [arrivals.at(sample) for sample in (0, 1600, 1601, 4800, 9999)] == [10, 10, 20, 30, 30]


def test_at__nothing_arrived() -> None:
    """0 stands for no time."""
    assert Arrivals().at(5) == 0


def test_mark__single_samples_need_no_memory_each() -> None:
    """A sender of single samples leaves few marks, and old ones go."""
    arrivals = Arrivals()
    for count in range(0, 1_000_000, 7):
        arrivals.mark(count, count + 1)

    assert len(arrivals._marks) <= 20 * 100 + 2
    assert arrivals.at(999_000) >= 999_000


def test_live__as_fast_as_spoken() -> None:
    """Real time is live; a file that comes all at once is not."""
    live, file = Arrivals(), Arrivals()
    for piece in range(1, 100):
        live.mark(piece * 320, 1 + piece * 20_000_000)
        file.mark(piece * 320, 1)

    assert live.live()
    assert not file.live()
    assert not Arrivals().live()
