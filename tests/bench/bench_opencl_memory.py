# SPDX-License-Identifier: Apache-2.0
"""Zero copy through OpenCL: wrapping, one kernel and reading the answer, for 1 MiB to 1 GiB of a link's arena.

    python tests/bench/bench_opencl_memory.py [--rounds 30] [--json FILE]

The memory is a shared mapping, as a link's arena is. `wrap`: the caller's array as a memory object; `run`: a bound
graph whose kernel writes 4 KiB at the buffer's end, its output read in place; beside it a driver's copy of the same
bytes (`COPY_HOST_PTR`). Each figure is the median of the rounds. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.plan import Kernel, Launch, Plan, Slot, Tensor
from dpfedge_opencl.runtime import open_runtime

from dpfedge.backend.api import GraphView
from dpfedge.bench.measure import machine
from dpfedge.tensors import TensorSpec

SIZES_MIB = (1, 16, 256, 1024)
_TAIL = 4096
_COPY_HOST_PTR, _READ_ONLY = 32, 4
SOURCE = """__kernel void tail(__global uchar *a, const ulong ao, __global uchar *b, const ulong bo, const ulong n) {
  ulong i = get_global_id(0);
  b[bo + n - get_global_size(0) + i] = a[ao + n - get_global_size(0) + i] + 1;
}
"""


def median_us(call: Callable[[], object], rounds: int) -> float:
    """The median time of a call."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        found.append(time.perf_counter() - started)
    return statistics.median(found) * 1e6


def arena(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """A shared mapping that takes memory only where it is written."""
    file = os.memfd_create("arena")
    os.ftruncate(file, size)
    mapped = mmap.mmap(file, size)
    os.close(file)
    return np.frombuffer(mapped, np.uint8)


def graph(size: int) -> OpenClExecutable:
    """y = x + 1 for the last 4 KiB, in place of all of y."""
    slots = {"x": Slot("input", 0, "u8", (size,), "x"), "y": Slot("output", 0, "u8", (size,), "y")}
    step = Launch(Kernel("tail", SOURCE), (Tensor("x"), Tensor("y"), np.uint64(size)), (_TAIL,), (64,), "tail")
    plan = Plan((step,), slots, 0, {"y": (size,)})
    view = GraphView("tail", memoryview(b""), *((TensorSpec(name, "u8", (size,)),) for name in "xy"), {})
    return OpenClExecutable(Graph(view, lambda shapes, shared: plan), open_runtime("opencl:0"))


def measure(mib: int, rounds: int) -> dict[str, float]:
    """Microseconds for one size, and the bytes that were copied."""
    size = mib << 20
    x, y, made = arena(size), arena(size), graph(size)
    call, memory = made.bind(), made.runtime.memory
    before = memory.copied
    call.set_input("x", x)
    call.set_output("y", y)

    def run() -> None:
        call.run()
        assert y[-1] == x[-1] + 1

    run()
    row = {"wrap_us": median_us(lambda: memory.wrap(x, write=True), rounds), "run_us": median_us(run, rounds)}
    native, context = made.runtime.native, made.runtime.context
    address = int(x.__array_interface__["data"][0])
    copy = median_us(
        lambda: native.buffer(context, _READ_ONLY | _COPY_HOST_PTR, size, address, "bench"), 3 if mib > 16 else rounds
    )
    return row | {"copy_us": copy, "copied_bytes": memory.copied - before}


def main(arguments: list[str] | None = None) -> int:
    """Measure each size and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    rows = {str(mib): measure(mib, args.rounds) for mib in SIZES_MIB}
    way = open_runtime("opencl:0").memory.name
    print(f"memory: {way}\n{'MiB':>5} {'wrap µs':>9} {'run µs':>9} {'copy µs':>11} {'copied':>9}")
    for mib, row in rows.items():
        print(f"{mib:>5} {row['wrap_us']:9.1f} {row['run_us']:9.1f} {row['copy_us']:11.1f} {row['copied_bytes']:9.0f}")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "memory": way, "sizes": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
