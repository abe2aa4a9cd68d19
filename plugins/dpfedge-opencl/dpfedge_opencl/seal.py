# SPDX-License-Identifier: Apache-2.0
"""Sealing: a graph is tuned and run with the package's own samples, and the programs that took are kept as compiled.

Drivers specialise a program when it first runs (PoCL: per work-group size), so it is run before it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, Budget, Device, GraphView, Identity
from dpfedge_opencl import graph as graphs
from dpfedge_opencl import sealed
from dpfedge_opencl.executable import OpenClExecutable
from dpfedge_opencl.joining import Joiner
from dpfedge_opencl.loading import load_on
from dpfedge_opencl.plan import Plan
from dpfedge_opencl.runtime import Runtime, open_runtime
from dpfedge_opencl.specialise import specialise
from dpfedge_opencl.tune import Stopwatch, tune

__all__ = ["identity", "samples", "seal"]

_TUNING_S = 20.0
"""What trying kernels may take for one sample of one graph."""


def identity(device: Device, version: str) -> Identity:
    """What programs of `device` are bound to."""
    facts = {name: str(device.facts.get(name, "")) for name in ("platform", "platform_version", "version")}
    facts |= {"kind": device.kind, "arch": device.arch, "name": device.name}
    facts["features"] = " ".join(sorted(device.features))
    return Identity(facts, {"dpfedge-opencl": version}, str(device.facts.get("driver", "")))


def seal(view: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
    """The programs of `view` and what its kernels were tuned to; None when nothing can be run: a graph with dynamic
    sizes and without samples."""
    feeds = samples(view)
    if not feeds:
        return None
    runtime = open_runtime(device)
    tuning = _tuned(view, runtime, feeds)
    store = sealed.Store({}, tuning, runtime.memory.name, runtime.lanes)
    joiner = Joiner(runtime.facts)
    with runtime.programs.used() as keys:
        executable = load_on(view, runtime, budget, store, joiner)
        try:
            for one in feeds:
                executable.run(one)
                _run_in_place(executable, one)
        finally:
            executable.close()
    if not keys:
        return None
    binaries = runtime.programs.binaries(keys, f"graph {view.name}")
    data = sealed.write(binaries, tuning, runtime.memory.name, runtime.lanes, joiner.texts)
    return {sealed.SEALED: [np.frombuffer(data, np.uint8)]}


def _run_in_place(executable: OpenClExecutable, feeds: Mapping[str, Array]) -> None:
    """As a language model's stage does: outputs of fixed size are written into the inputs that are like them, which may
    take other programs."""
    free = [spec for spec in executable.inputs if all(isinstance(dim, int) for dim in spec.dims)]
    call, own = executable.bind(), {name: array.copy() for name, array in feeds.items()}
    for name, array in own.items():
        call.set_input(name, array)
    for output in executable.outputs:
        like = next((spec for spec in free if (spec.dtype, spec.dims) == (output.dtype, output.dims)), None)
        if like is not None:
            free.remove(like)
            call.set_output(output.name, own[like.name])
    call.run()


def _tuned(view: GraphView, runtime: Runtime, feeds: Sequence[Mapping[str, Array]]) -> dict[str, Any]:
    """What is better than the usual for the samples' shapes, on this device."""
    graph, watch = graphs.read(view.code, f"graph {view.name}"), Stopwatch(runtime)
    found: dict[str, Any] = {}
    for one in feeds:
        shapes = {name: array.shape for name, array in one.items()}

        def plan(tuning: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]] = shapes) -> Plan:
            return specialise(graph, shapes, frozenset(), replace(runtime.facts, tuning=tuning))

        found |= tune(plan, watch, _TUNING_S)
    return found


def samples(view: GraphView) -> Sequence[Mapping[str, Array]]:
    """Inputs to run with: the package's, else zeros where every size is fixed."""
    if view.samples:
        return view.samples
    if any(isinstance(dim, str) for spec in view.inputs for dim in spec.dims):
        return ()
    return [{spec.name: np.zeros([int(dim) for dim in spec.dims], spec.numpy) for spec in view.inputs}]
