# SPDX-License-Identifier: Apache-2.0
"""How long binding takes: opening and deciding in this process, and the whole command as a process of its own.

Beside wall time each row has the processor time per call (resource.getrusage), which other load disturbs less.
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


def measure(call: Callable[[], object], count: int, who: int) -> tuple[list[float], float]:
    """Wall milliseconds of each call in order of size, and the mean processor milliseconds of one."""
    for _ in range(3):
        call()
    walls, before = [], resource.getrusage(who)
    for _ in range(count):
        start = time.perf_counter()
        call()
        walls.append((time.perf_counter() - start) * 1e3)
    after = resource.getrusage(who)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return sorted(walls), used / count * 1e3


def show(title: str, walls: list[float], cpu: float) -> None:
    """One row."""
    count = len(walls)
    p50, p99, p999 = (walls[min(count - 1, int(count * share))] for share in (0.5, 0.99, 0.999))
    print(f"{title:<34} {count:>6} {p50:>9.3f} {p99:>9.3f} {p999:>9.3f} {walls[-1]:>9.3f} {cpu:>9.3f}", flush=True)


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


def commands(path: Path, count: int) -> None:
    """`dpfedge bind` from the shell; compiled modules lie in a folder of this bench, as after any first run."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = cache
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
    print(f"page cache warmed with {len(blob)} bytes; milliseconds; P99.9 of fewer than 1000 calls is their maximum")
    print(f"{'':<34} {'n':>6} {'P50':>9} {'P99':>9} {'P99.9':>9} {'max':>9} {'CPU/call':>9}")
    del blob
    in_process(path, calls)
    commands(path, runs)


if __name__ == "__main__":
    main()
