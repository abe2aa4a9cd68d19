# SPDX-License-Identifier: Apache-2.0
"""What the store costs: `python tests/bench/bench_store.py build/voice.dpfbin [FOLDER]` prints a line for each figure.

Installing (copied, again), looking up and opening by name in each state of the file, and the sample with a cold cache.
Take a FOLDER on the disk that matters; nothing is left there.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dpfedge.package import Package, open_package
from dpfedge.signing import Signer
from dpfedge.store import Store, locate, record
from dpfedge.store.sample import check_sample

ROUNDS = 20


class Yes:
    """A judge that runs nothing: what remains is the store's own work."""

    def accept(self, package: Package) -> Signer | None:
        return None

    def prove(self, package: Package) -> str:
        return "none"


def measure(what: str, work: Callable[[], object], rounds: int = ROUNDS, before: Callable[[], object] = list) -> None:
    """Print median and largest of `rounds` runs in milliseconds."""
    times = []
    for _ in range(rounds):
        before()
        started = time.perf_counter_ns()
        work()
        times.append((time.perf_counter_ns() - started) / 1e6)
    print(f"{what:<44} median {statistics.median(times):9.2f} ms   max {max(times):9.2f} ms   n={rounds}")


def forget(path: Path) -> None:
    """Drop the file's pages from the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def main() -> None:
    """Measure."""
    package = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        store = Store(Path(folder, "store"))
        name = store.install(package, Yes()).installed.name

        def fresh() -> None:
            store.remove(name)

        measure("install, copied and checked in full", lambda: store.install(package, Yes()), 3, fresh)
        measure("install of what is there", lambda: store.install(package, Yes()))
        one = store.active(name)
        measure("open the file, fast", lambda: open_package(one.path, check="fast").close())
        measure("look up and open, unchanged", lambda: locate(name, store.root).open().close())
        real, record.BOOT_ID = record.BOOT_ID, Path(folder, "none")
        measure("look up and open, after a new boot", lambda: locate(name, store.root).open().close())
        record.BOOT_ID = real
        sample = one.verified.sample
        measure(f"sample of {len(sample.pages)} pages, warm", lambda: check_sample(one.path, sample))
        measure("sample, cold", lambda: check_sample(one.path, sample), 5, lambda: forget(one.path))
        measure("open the file, full", lambda: open_package(one.path, check="full").close(), 5)


if __name__ == "__main__":
    main()
