# SPDX-License-Identifier: Apache-2.0
"""Routing beside Maglev, jump and ketama in C; the Python module; how fast a decision is everybody's.

    python tests/bench/bench_route.py [--rounds N]

The rounds take C (`firmware_bridge/bench/route_bench.c`) and Python in turn; medians count. 128 instances, one key of
43 bytes. Lookups and changes in processor time, the last figures in real time. Nothing is asserted: the figures stand
beside what was asked for.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import threading
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from statistics import median

from peers import header

from dpfedge.routing import Instance, Publisher, Router, Sample, Table, encode
from dpfedge.routing.health import PERIOD_MS
from dpfedge.routing.key import bits_for

BRIDGE = Path(__file__).parents[2] / "firmware_bridge"
INSTANCES, CALLS = 128, 200_000
WIDE = bits_for(INSTANCES)
KEY = ("llama-3-8b", "user-0123456789abcdef", 1735689600000)  # 12 + 10 + 21 = 43 bytes
WANTED = {
    "table / maglev": "≤ 1.0", "Python: published table": "≤ 150 ns with the key",
    "one fails, keys that move: table": "≤ 0.82 %",
    f"the one that moves most fails: 2^{WIDE} table slots": "≤ 0.82 %",
    f"decision → published, 2^{WIDE} table slots": "≤ 1000 µs",
    f"a million sessions: 2^{WIDE} table slots / maglev of 655373": "≤ 1.0",
    "one fails, of these between instances that did not: table": "0 %", "decision → published": "≤ 1000 µs",
    "unhealthy → no lookup gives it": "≤ 210 ms",
}  # fmt: skip

Figures = dict[str, list[float]]


def native(rounds: int) -> dict[str, tuple[float, str]]:
    """One run of the C bench: name → figure and unit."""
    out = subprocess.check_output([BRIDGE / "build/route_bench", str(rounds), str(INSTANCES)], text=True)
    return {name: (float(figure), unit) for name, figure, unit in re.findall(r"(.+)\t(.+)\t(.+)", out)}


def calls(statement: str, **names: object) -> Callable[[], float]:
    """Nanoseconds of one call, without the loop around it."""
    used = {**names, "model": KEY[0], "user": KEY[1], "ts": KEY[2]}
    timer, empty = (timeit.Timer(text, timer=time.thread_time, globals=used) for text in (statement, "pass"))
    return lambda: (timer.timeit(CALLS) - empty.timeit(CALLS)) / CALLS * 1e9


def decisions(router: Router) -> Callable[[], float]:
    """Microseconds from an instance's fatal sample to the publication of a table without it."""
    fatal, good = Sample(0.1, 0.9, fatal_errors=1), Sample(0.1, 0.9)
    names = [f"10.0.{i // 250}.{i % 250 + 1}:8000" for i in range(INSTANCES)]

    def one() -> float:
        name = random.choice(names)
        started = time.perf_counter_ns()
        change = router.sample(name, fatal)
        spent = (time.perf_counter_ns() - started) / 1000
        assert change is not None
        router.leave(name)
        router.join(name)
        router.sample(name, good)
        return spent

    return one


def most_moved(bits: int) -> float:
    """Percent of keys that move when the instance with the largest share fails: its share, and nothing else."""
    names = [Instance(f"10.0.{i // 250}.{i % 250 + 1}:8000") for i in range(INSTANCES)]
    return 100 * max(Table.of(names, bits).shares(INSTANCES)) / (1 << bits)


def unhealthy(trials: int) -> list[float]:
    """Milliseconds from the moment a device goes bad, at any time of its sampling, to the first lookup elsewhere."""
    spent = []
    for trial in range(trials):
        router = Router()
        router.assign([Instance(f"device-{n}") for n in range(INSTANCES)])
        index = router.published.lookup(*KEY)
        name, bad, ended = f"device-{index}", threading.Event(), threading.Event()

        def sampling(router: Router = router, name: str = name, bad: threading.Event = bad,
                     ended: threading.Event = ended) -> None:  # fmt: skip
            due = time.monotonic()
            while not ended.is_set():
                router.sample(name, Sample(1.0, 0.01) if bad.is_set() else Sample(0.2, 0.8))
                due += PERIOD_MS / 1000
                time.sleep(max(0.0, due - time.monotonic()))

        sampler = threading.Thread(target=sampling)
        sampler.start()
        time.sleep(0.15 + PERIOD_MS / 1000 * trial / trials)
        bad.set()
        started = time.perf_counter()
        while router.published.lookup(*KEY) == index:
            time.sleep(0.0002)
        spent.append((time.perf_counter() - started) * 1000)
        ended.set()
        sampler.join()
    return spent


def _show(name: str, values: list[float], unit: str) -> None:
    print(f"{name:<64}{median(values):>10.3g} {unit:<4}{max(values):>10.3g} max  {WANTED.get(name, '')}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    header()
    subprocess.run(["make", "-s", "-C", BRIDGE, "build/route_bench"], check=True)
    names = [Instance(f"10.0.{i // 250}.{i % 250 + 1}:8000") for i in range(INSTANCES)]
    assert len(encode(*KEY)) == 43
    with Publisher(None) as publisher:
        router = Router(publisher)
        router.assign(names)
        python = {
            "Python: table": calls("lookup(model, user, ts)", lookup=Table.of(names).lookup),
            "Python: published table": calls("lookup(model, user, ts)", lookup=router.published.lookup),
            "Python: Router.route, a Decision": calls("route(model, user, ts)", route=router.route),
        }
        decide = decisions(router)
        found: dict[str, tuple[list[float], str]] = {}
        for _ in range(rounds):
            for name, (figure, unit) in native(51).items():
                found.setdefault(name, ([], unit))[0].append(figure)
            for name, measure in python.items():
                found.setdefault(name, ([], "ns"))[0].append(measure())
            found.setdefault("decision → published", ([], "µs"))[0].extend(decide() for _ in range(100))
    for name, mine, peer in (
        ("table / maglev", "table", "maglev"),
        ("a million sessions: 2^16 table slots / maglev of 65537", "published table", "maglev"),
        (f"a million sessions: 2^{WIDE} table slots / maglev of 655373", f"published table, 2^{WIDE} slots",
         "maglev of 655373 slots"),
    ):  # fmt: skip
        many = "a million sessions, " if "million" in name else ""
        pairs = zip(found[f"lookup: {many}{mine}"][0], found[f"lookup: {many}{peer}"][0], strict=True)
        found[name] = [one / other for one, other in pairs], "×"
    for bits in (16, 18, WIDE):
        found[f"the one that moves most fails: 2^{bits} table slots"] = [most_moved(bits)], "%"
    with Publisher(None, bits=WIDE) as publisher:
        router = Router(publisher)
        router.assign(names)
        decide = decisions(router)
        found[f"decision → published, 2^{WIDE} table slots"] = [decide() for _ in range(100)], "µs"
    found["unhealthy → no lookup gives it"] = unhealthy(20), "ms"
    for name, (values, unit) in found.items():
        _show(name, values, unit)


if __name__ == "__main__":
    main()
