# SPDX-License-Identifier: Apache-2.0
"""Reading a package: how fast all of it is verified, and which bytes are read before anything can run.

    python tests/bench/bench_package.py verify  build/voice.dpfbin [rounds]
    python tests/bench/bench_package.py touched build/voice.dpfbin

verify: `open_package(check="full")` in a process of its own, as `dpfedge verify` does, beside `sha256sum` of the same
file, the file in memory, one after the other in each round. Peers are timed from start to end of their process; ours
without and with the interpreter's start and imports. OpenSSL's SHA-256 in one thread is there as the faster peer.

touched: a copy of the package that is in nobody's memory; which of its pages the kernel has read after opening, after
binding and after loading every graph, by what lies in them. Kernel read-ahead counts as reading.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from peers import header, rounds, show

sys.path.insert(0, str(Path(__file__).parents[1]))

from cached_pages import cached_pages, make_cold

from dpfedge.package import Package, open_package

PAGE = 4096
_OPEN = """
import sys, time
from dpfedge.package import open_package
started = time.perf_counter()
open_package(sys.argv[1])
print(time.perf_counter() - started)
"""


def verify(path: Path, count: int) -> None:
    """Seconds of each, and MB/s."""

    def timed(*command: str) -> float:
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started

    def inner() -> float:
        command = [sys.executable, "-c", _OPEN, str(path)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    engines = {
        "dpfedge, open_package(full)": inner,
        "dpfedge, whole process": lambda: timed(sys.executable, "-c", _OPEN, str(path)),
        "sha256sum": lambda: timed("sha256sum", str(path)),
        "openssl dgst -sha256": lambda: timed("openssl", "dgst", "-sha256", str(path)),
    }
    if shutil.which("openssl") is None:
        engines.pop("openssl dgst -sha256")
        print("openssl is not here: that row is left out")
    found = rounds(count, engines)
    show(f"{path.name}, {path.stat().st_size / 1e6:.0f} MB, in memory", found, "dpfedge, open_package(full)")
    show("the same, whole processes", found, "dpfedge, whole process")


def touched(path: Path) -> None:
    """Bytes in memory by section kind, after each step."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(shutil.copy(path, folder))
        if not make_cold(copy):
            sys.exit(f"the kernel does not forget {copy}: its file system is memory")
        _touch(copy)


def _touch(copy: Path) -> None:
    from dpfedge.backend.api import Budget
    from dpfedge.binding import bind_here

    package = open_package(copy, check="fast")
    limit = package.header.header_bytes + package.header.manifest_bytes
    limit += sum(section.size for section in package.manifest.sections if section.kind == "graph")
    print(f"header + manifest + graphs: {limit / 1e3:.1f} kB; pages of {PAGE} bytes")
    _report("opened", copy, package)
    bound = bind_here(package)
    _report("bound", copy, package)
    held = []
    for name in bound.models:
        model = bound.model(name)
        held += [model.load(graph, Budget()) for graph in model.graphs]
    _report(f"loaded, {len(held)} graphs", copy, package)


def _report(step: str, copy: Path, package: Package) -> None:
    pages = cached_pages(copy)
    kinds = {"all": len(pages)} | dict.fromkeys(sorted({section.kind for section in package.manifest.sections}), 0)
    total = dict(kinds)
    for section in package.manifest.sections:
        here = pages[section.offset // PAGE : -(-section.end // PAGE)]
        kinds[section.kind] += sum(here)
        total[section.kind] += len(here)
    kinds["all"] = sum(pages)
    print(f"\n{step}")
    for kind, count in kinds.items():
        print(f"  {kind:10s} {count * PAGE / 1e3:11.1f} kB of {total[kind] * PAGE / 1e3:11.1f} kB")


def main() -> None:
    """One of the two."""
    what, path = sys.argv[1], Path(sys.argv[2])
    header()
    if what == "verify":
        verify(path, int(sys.argv[3]) if len(sys.argv) > 3 else 15)
    elif what == "touched":
        touched(path)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
