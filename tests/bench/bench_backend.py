# SPDX-License-Identifier: Apache-2.0
"""What the contract costs over the bare library: the same onnxruntime session called both ways, turn about.

    python tests/bench/bench_backend.py [--rounds 15] [--calls 2000] [--json FILE]

`run`: `Executable.run` beside `InferenceSession.run`. `bound`: `Binding.run` with every buffer bound beside
`run_with_iobinding`. `one output`: the same with one output that onnxruntime allocates, and that is looked at. `steps`:
60 outputs linked to inputs beside the bare loop that rebinds them, as a language model's step does. Each figure is the
median over rounds of the mean of a round's calls; a cost is the median of the rounds' differences. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dpfedge_cpu import CpuBackend
from onnx import TensorProto, helper

from dpfedge.bench.measure import machine
from dpfedge.testing.loading import load
from dpfedge.testing.models import affine, rows

TARGET_US = 15.0
_STATES = 60
Pair = tuple[Callable[[], Any], Callable[[], Any]]


def states(count: int = _STATES) -> onnx.ModelProto:
    """`count` states, each passed on."""
    names = [f"s{index}" for index in range(count)]
    nodes = [helper.make_node("Add", [name, name], [f"n{name}"], name=f"n{name}") for name in names]
    before, after = (
        [helper.make_tensor_value_info(f"{mark}{name}", TensorProto.FLOAT, [4]) for name in names] for mark in ("", "n")
    )
    graph = helper.make_graph(nodes, "states", before, after)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def pairs() -> dict[str, Pair]:
    """Name → (through the contract, the bare library), each one call."""
    backend = CpuBackend()
    device = backend.devices(Path("/"))[0]
    graph, x = load(backend, device, affine(1)), rows(1)
    session: Any = graph.session  # type: ignore[attr-defined]
    feeds, names = {"x": x}, ["y", "z"]
    y, z = np.empty_like(x), np.empty_like(x)
    call, io = graph.bind(), session.io_binding()
    call.set_input("x", x)
    io.bind_input("x", "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    for name, array in (("y", y), ("z", z)):
        call.set_output(name, array)
        io.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return {
        "run": (lambda: graph.run(feeds), lambda: session.run(names, feeds)),
        "bound": (call.run, lambda: session.run_with_iobinding(io)),
        "one output": _allocated(graph, session, x, y),
        "steps": _steps(load(backend, device, states())),
    }


def _allocated(graph: Any, session: Any, x: Any, y: Any) -> Pair:
    call, io = graph.bind(), session.io_binding()
    call.set_input("x", x)
    call.set_output("y", y)
    io.bind_input("x", "cpu", 0, x.dtype, x.shape, x.ctypes.data)
    io.bind_output("y", "cpu", 0, y.dtype, y.shape, y.ctypes.data)

    def ours() -> Any:
        call.run()
        return call.output("z")

    def bare() -> Any:
        io.bind_output("z", "cpu", 0)
        session.run_with_iobinding(io)
        return io.get_outputs()[1].numpy()

    return ours, bare


def _steps(graph: Any) -> Pair:
    session, zero = graph.session, np.zeros(4, np.float32)
    names = [f"s{index}" for index in range(_STATES)]
    call, io = graph.bind(), session.io_binding()
    for name in names:
        call.set_input(name, zero)
        call.link(f"n{name}", name)
        io.bind_input(name, "cpu", 0, zero.dtype, zero.shape, zero.ctypes.data)

    def bare() -> None:
        for name in names:
            io.bind_output(f"n{name}", "cpu", 0)
        session.run_with_iobinding(io)
        for name, value in zip(names, io.get_outputs(), strict=True):
            io.bind_ortvalue_input(name, value)

    return call.run, bare


def mean_us(call: Callable[[], Any], calls: int) -> float:
    """Microseconds of one call."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - start) / calls / 1000


def measure(rounds_: int, calls: int) -> dict[str, dict[str, float]]:
    """Every pair in each round, one after the other."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds_):
        for name, (ours, bare) in PAIRS.items():
            few = max(50, calls // (20 if name == "steps" else 1))
            found.setdefault(name, []).append((mean_us(ours, few), mean_us(bare, few)))
    return {
        name: {
            "contract_us": statistics.median(a for a, _ in row),
            "bare_us": statistics.median(b for _, b in row),
            "cost_us": statistics.median(a - b for a, b in row),
        }
        for name, row in found.items()
    }


PAIRS = pairs()


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    table = measure(args.rounds, args.calls)
    print(f"{'call':12}{'contract µs':>14}{'bare µs':>10}{'cost µs':>10}   target ≤ {TARGET_US:g}")
    for name, row in table.items():
        print(f"{name:12}{row['contract_us']:14.2f}{row['bare_us']:10.2f}{row['cost_us']:10.2f}")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "target_us": TARGET_US, "calls": table}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
