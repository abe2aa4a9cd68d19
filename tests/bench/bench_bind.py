# SPDX-License-Identifier: Apache-2.0
"""How long binding takes: opening and deciding in this process, and the whole command as a process of its own.

Beside wall time each row has the processor time of the calls (resource.getrusage), which other load disturbs less.
Usage: python tests/bench/bench_bind.py build/voice.dpfbin [calls] [commands]
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dpfedge.binding import bind_here, look
from dpfedge.binding.bind import bind
from dpfedge.hardware.probe import probe
from dpfedge.package import open_package


def measure(call: Callable[[], object], count: int, who: int) -> tuple[list[float], list[float]]:
    """Wall and processor milliseconds of each call, both in order of size."""
    for _ in range(3):
        call()
    walls, used = [], []
    for _ in range(count):
        before, start = _used(who), time.perf_counter()
        call()
        walls.append((time.perf_counter() - start) * 1e3)
        used.append((_used(who) - before) * 1e3)
    return sorted(walls), sorted(used)


def _used(who: int) -> float:
    if who == resource.RUSAGE_SELF:
        return time.process_time()  # the same clock as getrusage, in nanoseconds
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def show(title: str, walls: list[float], used: list[float]) -> None:
    """One row: wall, then processor time."""
    count = len(walls)
    cells = [row[min(count - 1, int(count * share))] for row in (walls, used) for share in (0.5, 0.99, 0.999)]
    print(f"{title:<34} {count:>6} " + " ".join(f"{cell:>9.3f}" for cell in cells), flush=True)


def in_process(path: Path, count: int) -> None:
    """What a program that embeds dpfedge waits for, imports done and the file in the page cache."""

    def whole() -> None:
        with open_package(path, check="fast") as package:
            bind_here(package)

    here = look()
    with open_package(path, check="fast") as package:
        show("decision: bind()", *measure(lambda: bind(package, here.board, here.found), count, resource.RUSAGE_SELF))
    show("probe()", *measure(probe, count, resource.RUSAGE_SELF))
    show("open_package(check='fast')", *measure(lambda: open_package(path, check="fast").close(), count,
         resource.RUSAGE_SELF))  # fmt: skip
    show("open, probe, board, plugins, bind", *measure(whole, count, resource.RUSAGE_SELF))


FIRST = """
import sys, time
import dpfedge_cpu
from dpfedge.binding import bind_here
from dpfedge.binding.bind import bind
from dpfedge.package import open_package
wall, used = time.perf_counter(), time.process_time()
bind_here(open_package(sys.argv[1], check="fast"))
print(time.perf_counter() - wall, time.process_time() - used)
"""


def first_calls(path: Path, count: int, environment: dict[str, str]) -> None:
    """The first binding of a process, imports done: nothing is known yet of boards, plugins and the package."""
    rows = []
    for _ in range(count):
        command = [sys.executable, "-c", FIRST, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        rows.append([float(text) * 1e3 for text in done.stdout.split()])
    show("first of a process, after import", sorted(row[0] for row in rows), sorted(row[1] for row in rows))


def commands(path: Path, count: int) -> None:
    """`dpfedge bind` from the shell; compiled modules lie in a folder of this bench, as after any first run."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
        first_calls(path, count, environment)
        for title, command in (
            ("command: python -c pass", [sys.executable, "-c", "pass"]),
            ("command: dpfedge bind", [str(Path(sys.executable).with_name("dpfedge")), "bind", str(path)]),
        ):

            def run(command: list[str] = command) -> None:
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)

            show(title, *measure(run, count, resource.RUSAGE_CHILDREN))


def main() -> None:
    """One table, and where it was made."""
    path = Path(sys.argv[1])
    calls, runs = (int(text) for text in [*sys.argv[2:4], *["2000", "30"][len(sys.argv) - 2 :]])
    machine = probe()
    cores = f"{len(machine.cpu.allowed)} cores"
    print(f"{machine.cpu.model}, {cores}, kernel {machine.kernel}, Python {sys.version.split()[0]}")
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB; load {' '.join(f'{load:.1f}' for load in os.getloadavg())}")
    blob = path.read_bytes()  # warm page cache
    print(f"page cache warmed with {len(blob)} bytes; milliseconds; P99.9 of few calls is their maximum")
    head = [f"{clock} {share}" for clock in ("wall", "CPU") for share in ("P50", "P99", "P99.9")]
    print(f"{'':<34} {'n':>6} " + " ".join(f"{title:>9}" for title in head))
    del blob
    in_process(path, calls)
    commands(path, runs)


if __name__ == "__main__":
    main()
