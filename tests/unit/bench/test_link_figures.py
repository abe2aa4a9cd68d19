# SPDX-License-Identifier: Apache-2.0
"""What bench_link.py, bench_frames.py and bench_steady.py make of what they measured; no process is started."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

BENCHES = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The benches as modules."""
    monkeypatch.syspath_prepend(str(BENCHES))
    names = ("bench_link", "bench_frames", "bench_steady")
    modules: dict[str, ModuleType] = {name.removeprefix("bench_"): import_module(name) for name in names}
    yield SimpleNamespace(**modules)
    for name in (*names, "bench_link_ways", "peers"):
        sys.modules.pop(name, None)


def test_figures__are_medians_of_the_rounds_ratios(bench: SimpleNamespace) -> None:
    """A slow round is slow for both; one size above the target misses it; without the peer there is no figure."""
    found = {
        ("dpfedge, blocking", 64): [[10, 10, 10], [100, 100, 100]],
        ("dpfedge, blocking", 4096): [[15, 15, 15], [150, 150, 150]],
        ("futex in C", 64): [[10, 10, 10], [100, 100, 100]],
        ("futex in C", 4096): [[10, 10, 10], [100, 100, 100]],
    }

    futex, flat = bench.link.figures(found, (64, 4096))

    assert (futex["theirs"], futex["ratios"], futex["reached"]) == ("futex in C", [1.0, 1.5], False)
    assert (flat["theirs"], flat["ratios"], flat["reached"]) == ("itself at 64 B", [1.0, 1.5], False)


def test_rows__pool_the_trips_of_all_rounds(bench: SimpleNamespace) -> None:
    """In microseconds."""
    [way] = [way for way in bench.link.WAYS if way.name == "unix socket"]

    [row] = bench.link.rows([way], [64], {("unix socket", 64): [[1000] * 50, [3000] * 50]})

    assert row == {"way": "unix socket", "copies": True, "size": 64, "p50_us": 2.0, "p99_us": 3.0, "trips": 100}


def test_cores__for_each_side(bench: SimpleNamespace) -> None:
    """Two, one for both, or the kernel's choice."""
    here, there = bench.link.cores_of("each")

    assert here <= there
    assert bench.link.cores_of("one") == (here, here)
    assert bench.link.cores_of("free") is None


def test_ways__have_names_of_their_own_and_every_target_exists(bench: SimpleNamespace) -> None:
    """A renamed way cannot lose its target silently."""
    names = [way.name for way in bench.link.WAYS]

    assert len(set(names)) == len(names)
    assert {name for target in bench.link.TARGETS for name in (target.ours, target.theirs)} <= set(names)
    assert set(bench.link.FLAT) <= set(names)


def test_verdicts__see_growth_and_a_lost_descriptor(bench: SimpleNamespace) -> None:
    """2 % either way is flat; a descriptor in one sample is a look at a peer, in two it has come to stay."""
    sample = bench.steady.Sample

    def judge(*pairs: tuple[int, int]) -> tuple[bool, bool]:
        [row] = bench.steady.verdicts({"samples": {"one": [sample(*pair) for pair in pairs]}})
        return row["flat"], row["fd_constant"]

    assert judge((1000, 9), (1020, 9), (980, 9)) == (True, True)
    assert judge((1000, 9), (1021, 9), (1000, 9)) == (False, True)
    assert judge((1000, 9), (979, 9)) == (False, True)
    assert judge((1000, 9), (1000, 10), (1000, 9)) == (True, True)
    assert judge((1000, 9), (1000, 10), (1000, 10), (1000, 9)) == (True, False)
    assert judge((1000, 9), (1000, 9), (1000, 10)) == (True, False)
    assert judge((1000, 9), (1000, 8), (1000, 9)) == (True, False)


def test_source__answers_for_every_message(bench: SimpleNamespace) -> None:
    """A stage in this process: all that is sent comes back, cancelled messages without their bytes, nothing is left."""
    with bench.steady.arena_for(3) as arena:
        source = bench.steady.Source(arena, 3, random.Random(7))
        came, out = arena.consumer("source.first", 2), arena.producer("second.source", 3)
        for _ in range(200):
            source.send()
            while (lease := came.receive()) is not None:
                cut = arena.requests.cancelled(lease.request, lease.turn)
                loan = out.loan(0 if cut else lease.nbytes)
                if not cut:
                    loan.view[:] = lease.view
                flags = lease.flags | (bench.steady.CANCELLED if cut else 0)
                out.send(loan, kind=1, request=lease.request, turn=lease.turn, flags=flags)
                lease.release()
            source.drain()

        assert source.sent == source.back == 200
        assert 0 < source.cut < 200
        assert len(arena.requests.keys()) == len(source.open) <= 3
        assert all(stats.in_flight == stats.loaned == stats.depth == 0 for stats in arena.stats().values())
