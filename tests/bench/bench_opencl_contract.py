# SPDX-License-Identifier: Apache-2.0
"""What the contract costs over the bare OpenCL library: the same kernels on the same memory, turn about.

    python tests/bench/bench_opencl_contract.py [--rounds 15] [--calls 2000] [--json FILE]

`bare`: enqueue each kernel, flush, finish. `bound`: `Binding.run` with every buffer bound.
`run`: `Executable.run`, outputs in new memory. Each figure is the median over rounds of the median of a round's calls,
since a call that another process interrupts says nothing; a cost is the median of the rounds' differences.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.kernels import Kernels
from dpfedge_opencl.plan import Kernel, Launch, Plan, Slot, Tensor
from dpfedge_opencl.prepared import Prepared
from dpfedge_opencl.runtime import open_runtime

from dpfedge.backend.api import GraphView
from dpfedge.bench.measure import machine
from dpfedge.tensors import TensorSpec

TARGET_US = 15.0
_N = 64
SOURCE = """__kernel void affine(__global uchar *a, const ulong ao, __global uchar *b, const ulong bo) {
  uint i = get_global_id(0);
  ((__global float *)(b + bo))[i] = ((__global float *)(a + ao))[i] * 2.0f + 1.0f;
}
"""


def plan_of(kernels: int) -> Plan:
    """`kernels` small kernels, one after the other."""
    names = ["x", *(f"t{index}" for index in range(kernels - 1)), "y"]
    slots = {name: Slot("arena", 256 * index, "f32", (_N,)) for index, name in enumerate(names[1:-1])}
    slots |= {"x": Slot("input", 0, "f32", (_N,), "x"), "y": Slot("output", 0, "f32", (_N,), "y")}
    made = Kernel("affine", SOURCE)
    pairs = itertools.pairwise(names)
    steps = tuple(Launch(made, (Tensor(one), Tensor(two)), (_N,), (_N,), two) for one, two in pairs)
    return Plan(steps, slots, 256 * kernels, {"y": (_N,)})


def ways(kernels: int) -> dict[str, Callable[[], Any]]:
    """Name → one call."""
    runtime, plan = open_runtime("opencl:0"), plan_of(kernels)
    view = GraphView("affine", memoryview(b""), *((TensorSpec(name, "f32", (_N,)),) for name in "xy"), {})
    graph = OpenClExecutable(Graph(view, lambda shapes, shared: plan), runtime)
    x, y = np.ones(_N, np.float32), np.zeros(_N, np.float32)
    call = graph.bind()
    call.set_input("x", x)
    call.set_output("y", y)
    return {"bare": bare(plan, x, y), "bound": call.run, "run": lambda: graph.run({"x": x})}


def bare(plan: Plan, x: Any, y: Any) -> Callable[[], None]:
    """The library alone, with everything that can be prepared prepared."""
    runtime = open_runtime("opencl:0")
    native, queue = runtime.native, runtime.queue()
    handle = ctypes.c_void_p(queue.value)
    prepared = Prepared(plan, runtime, Kernels(native), handle, "bare")
    spans = {"input": runtime.memory.wrap(x, write=True), "output": runtime.memory.wrap(y, write=True)}
    arena = runtime.memory.allocate(plan.arena_bytes)
    for source in prepared.sources:
        prepared.point(source, arena.span if source[0] == "arena" else spans[source[0]])
    (batch,) = prepared.steps
    (window,) = batch.windows(len(plan.steps))  # type: ignore[union-attr]
    enqueue, flush, finish = native.clEnqueueNDRangeKernel, native.clFlush, native.clFinish
    calls = [(*given[:-1], None) for given in window.calls]

    def run(keep: Any = (prepared, spans, arena, queue)) -> None:
        for given in calls:
            enqueue(*given)
        flush(handle)
        finish(handle)

    return run


def compare(kernels: int, rounds: int, calls: int) -> dict[str, float]:
    """Median microseconds of each way, and what ours cost more than the bare one."""
    found: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, call in (made := ways(kernels)).items():
            call()
            times = []
            for _ in range(calls):
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
            if number:
                found.setdefault(name, []).append(statistics.median(times) * 1e6)
        del made
    row = {f"{name}_us": statistics.median(times) for name, times in found.items()}
    for name in ("bound", "run"):
        row[f"{name}_cost_us"] = statistics.median(
            ours - theirs for ours, theirs in zip(found[name], found["bare"], strict=True)
        )
    return row


def main(arguments: list[str] | None = None) -> int:
    """Measure graphs of several lengths and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    rows = {str(kernels): compare(kernels, args.rounds, args.calls) for kernels in (1, 10)}
    print(f"{'kernels':>8} {'bare µs':>9} {'bound µs':>9} {'run µs':>9} {'bound +µs':>10} {'run +µs':>9}")
    for kernels, row in rows.items():
        figures = (row["bare_us"], row["bound_us"], row["run_us"])
        costs = f"{row['bound_cost_us']:10.1f} {row['run_cost_us']:9.1f}"
        print(f"{kernels:>8} " + " ".join(f"{figure:9.1f}" for figure in figures) + f" {costs}")
    print(f"allowed over the bare library: {TARGET_US} µs")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "kernels": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
