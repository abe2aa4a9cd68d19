# SPDX-License-Identifier: Apache-2.0
"""Round trips between two processes over links, beside their peers and beside C without Python, in one run.

    python tests/bench/bench_link.py [--rounds 9] [--trips 400] [--cores each|one|free] [--json FILE]

Every round measures every way at every size, one after the other, each with two processes of its own; P50 and P99 are
of all trips of all rounds, a ratio is the median of the rounds' ratios of P50s. The payload lies in place: ways without
copies write and read its first 8 bytes, ways that must copy (`copies`) copy all of it; 64 bytes come back. Sleepers
are compared with sleepers and spinners with spinners; `dpfedge, blocking` is the default, which looks for up to 50 µs
before it sleeps as long as that pays. Peers: `pip install 'dpfedge[bench]'`. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench_link_ways import WAYS, Way
from peers import header

from dpfedge.bench.measure import machine, median_ratio

SIZES = (64, 65_536, 1_000_000, 3_000_000, 25_000_000)
COPIED_BYTES = 50_000_000  # per round: what a copying way's trips are cut down to, and 5 trips at least
Found = dict[tuple[str, int], list[list[int]]]


@dataclass(frozen=True, slots=True)
class Target:
    """`ours` beside `theirs`: the ratio of their P50s at every size, at most `most` (None: shown only)."""

    ours: str
    theirs: str
    most: float | None


TARGETS = (
    Target("dpfedge, blocking", "futex in C", 1.4),
    Target("dpfedge, blocking", "iceoryx2, event", 0.65),
    Target("dpfedge, spinning", "iceoryx2, polled", 0.5),
    Target("dpfedge, asleep at once", "futex in C", None),
    Target("dpfedge, asleep at once", "iceoryx2, event", None),
    Target("dpfedge, spinning", "links in C, spinning", None),
    Target("dpfedge, blocking", "pyzmq ipc", None),
    Target("dpfedge, blocking", "unix socket", None),
    Target("dpfedge, blocking", "multiprocessing.Pipe", None),
)
FLAT = ("dpfedge, blocking", "dpfedge, spinning")
FLAT_MOST = 1.2


def cores_of(wanted: str) -> tuple[int, int] | None:
    """A core for each side, one core for both, or None: where the kernel puts them."""
    cores = sorted(os.sched_getaffinity(0))
    return {"each": (cores[0], cores[-1]), "one": (cores[0], cores[0]), "free": None}[wanted]


def measure(ways: Sequence[Way], sizes: Sequence[int], rounds: int, trips: int, cores: tuple[int, int] | None) -> Found:
    """Nanoseconds of each trip, by way and size, a list for each round."""
    found: Found = {(way.name, size): [] for way in ways for size in sizes}
    for number in range(rounds):
        print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for size in sizes:
            for way in ways:
                count = min(trips, max(5, COPIED_BYTES // size)) if way.copies else trips
                found[way.name, size].append(way.measure(size, count, cores))
    print("\r", end="", file=sys.stderr)
    return found


def p50(times: Sequence[int]) -> float:
    """Median in µs."""
    return float(np.median(times)) / 1000


def rows(ways: Sequence[Way], sizes: Sequence[int], found: Found) -> list[dict[str, Any]]:
    """One for each way and size."""
    table = []
    for way in ways:
        for size in sizes:
            every = np.concatenate([np.asarray(times) for times in found[way.name, size]]) / 1000
            low, high = (round(float(value), 2) for value in np.percentile(every, (50, 99)))
            measured = {"p50_us": low, "p99_us": high, "trips": every.size}
            table.append({"way": way.name, "copies": way.copies, "size": size, **measured})
    return table


def beside(found: Found, ours: tuple[str, int], theirs: tuple[str, int]) -> float:
    """Median of the rounds' ratios of P50s."""
    return median_ratio([p50(times) for times in found[ours]], [p50(times) for times in found[theirs]])


def figures(found: Found, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Every target with its ratio at each size, and whether all of them keep it; None where there is no target."""
    names, made = {name for name, _ in found}, []
    for target in TARGETS:
        if {target.ours, target.theirs} <= names:
            ratios = [round(beside(found, (target.ours, size), (target.theirs, size)), 3) for size in sizes]
            made.append(asdict(target) | {"ratios": ratios})
    for name in FLAT:
        if name in names:
            ratios = [round(beside(found, (name, size), (name, sizes[0])), 3) for size in sizes]
            made.append({"ours": name, "theirs": f"itself at {sizes[0]} B", "most": FLAT_MOST, "ratios": ratios})
    return [row | {"reached": None if row["most"] is None else max(row["ratios"]) <= row["most"]} for row in made]


def show(sizes: Sequence[int], table: Sequence[dict[str, Any]], targets: Sequence[dict[str, Any]]) -> None:
    """Print both tables."""
    print(f"\n{'P50 / P99 µs':26s}" + "".join(f"{size:>19,} B" for size in sizes))
    for name in dict.fromkeys(row["way"] for row in table):
        mine = [row for row in table if row["way"] == name]
        cells = "".join(f"{row['p50_us']:>11.1f} / {row['p99_us']:7.1f}" for row in mine)
        print(f"{name + (' (copies)' if mine[0]['copies'] else ''):29s}{cells}")
    print(f"\n{'ratio of P50s':48s}" + "".join(f"{size:>12,}" for size in sizes) + "   target")
    for row in targets:
        verdict = "" if row["most"] is None else f"   <= {row['most']}: {'reached' if row['reached'] else 'MISSED'}"
        cells = "".join(f"{ratio:12.2f}" for ratio in row["ratios"])
        print(f"{row['ours'] + ' / ' + row['theirs']:48s}{cells}{verdict}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--trips", type=int, default=400, help="of each way, size and round")
    parser.add_argument("--cores", choices=("each", "one", "free"), default="each", help="a core each, one for both")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="ways whose names have one of these")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    cores = cores_of(options.cores)
    wanted = [way for way in WAYS if any(word in way.name for word in options.only)]
    # two spinners on one core wait for each other's time slice
    ways = [way for way in wanted if way.here and (way.sleeps or options.cores != "one")]
    header()
    print(f"{options.rounds} rounds of {options.trips} trips, cores: {options.cores} {cores or ''}")
    for way in wanted:
        if not way.here:
            print(f"{way.name}: not measured, no module {way.needs}; pip install 'dpfedge[bench]'")
    found = measure(ways, options.sizes, options.rounds, options.trips, cores)
    table, targets = rows(ways, options.sizes, found), figures(found, options.sizes)
    show(options.sizes, table, targets)
    if options.json:
        method = {"rounds": options.rounds, "trips": options.trips, "cores": options.cores, "ratios": "of P50s, median"}
        report = {"machine": machine(), "method": method, "rows": table, "figures": targets}
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
