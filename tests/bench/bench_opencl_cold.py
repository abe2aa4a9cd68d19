# SPDX-License-Identifier: Apache-2.0
"""Cold start from a seal: every graph of a package loaded and run once in a new process, with no cache of the driver's.

    python tests/bench/bench_opencl_cold.py PACKAGE [--board host-opencl] [--rounds 5] [--json FILE]

The package must lie beside its seal (`dpfedge seal`). Each round is a process of its own whose POCL_CACHE_DIR is new.
`load`: from the opened package to an executable; `first`: its first run on the package's golden inputs, for which
programs are taken from the seal and shapes are planned; `device`: the context, once. `processor`: the process' own
time for all of it. Figures are medians over rounds. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dpfedge.bench.measure import machine

TARGET_S = 1.0


def once(package: Path, board: str) -> dict[str, Any]:
    """Load and run every graph, in this process."""
    from dpfedge_opencl.runtime import open_runtime

    from dpfedge.backend.api import Budget
    from dpfedge.binding import bind_here
    from dpfedge.binding.golden import golden_inputs
    from dpfedge.package import open_package

    bound = bind_here(open_package(package, check="fast"), board)
    assert bound.sidecar is not None, "no seal that fits"
    rows, begun, busy = {}, time.perf_counter(), time.process_time()
    for model in bound.models:
        for graph in bound.model(model).graphs:
            started = time.perf_counter()
            made = bound.model(model).load(graph, Budget(threads=2))
            loaded = time.perf_counter()
            made.run(golden_inputs(bound, model, graph)[0])
            rows[f"{model}.{graph}"] = {"load": loaded - started, "first": time.perf_counter() - loaded}
    total, own = time.perf_counter() - begun, time.process_time() - busy
    programs = open_runtime(next(iter(bound.devices.values()))).programs
    return {
        "graphs": rows, "all": total, "processor": own, "sealed": programs.from_seal, "compiled": programs.from_source,
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Rounds in processes of their own; a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--board", default="host-opencl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.once:
        print(json.dumps(once(args.package, args.board)))
        return 0
    found = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as cache:
            command = [sys.executable, __file__, str(args.package), "--board", args.board, "--once"]
            done = subprocess.run(command, capture_output=True, env={**os.environ, "POCL_CACHE_DIR": cache}, check=True)
            found.append(json.loads(done.stdout))
    for graph in found[0]["graphs"]:
        load, first = (statistics.median(one["graphs"][graph][part] for one in found) for part in ("load", "first"))
        print(f"{graph:22} load {load * 1e3:7.1f} ms   first run {first * 1e3:7.1f} ms")
    whole, own = (statistics.median(one[part] for one in found) for part in ("all", "processor"))
    last = found[-1]
    print(f"all {whole:.2f} s, of it {own:.2f} s of processor time; allowed {TARGET_S} s; "
          f"{last['sealed']} programs of the seal, {last['compiled']} compiled")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "rounds": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
