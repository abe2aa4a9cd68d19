# SPDX-License-Identifier: Apache-2.0
"""Sealing: a graph is run with the package's own samples, and the programs that took are kept as the driver made them.

Drivers specialise a program when it first runs (PoCL: per work-group size), so it is run before it is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpfedge.backend.api import Array, Budget, Device, GraphView, Identity
from dpfedge_opencl import sealed
from dpfedge_opencl.loading import load_on
from dpfedge_opencl.runtime import open_runtime

__all__ = ["identity", "samples", "seal"]


def identity(device: Device, version: str) -> Identity:
    """What programs of `device` are bound to."""
    facts = {name: str(device.facts.get(name, "")) for name in ("platform", "platform_version", "version")}
    facts |= {"kind": device.kind, "arch": device.arch, "name": device.name}
    facts["features"] = " ".join(sorted(device.features))
    return Identity(facts, {"dpfedge-opencl": version}, str(device.facts.get("driver", "")))


def seal(view: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
    """The programs of `view`; None when nothing can be run: a graph with dynamic sizes and without samples."""
    feeds = samples(view)
    if not feeds:
        return None
    runtime = open_runtime(device)
    with runtime.programs.used() as keys:
        executable = load_on(view, runtime, budget)
        try:
            for one in feeds:
                executable.run(one)
        finally:
            executable.close()
    if not keys:
        return None
    data = sealed.write(runtime.programs.binaries(keys, f"graph {view.name}"), {}, runtime.memory.name)
    return {sealed.SEALED: [np.frombuffer(data, np.uint8)]}


def samples(view: GraphView) -> Sequence[Mapping[str, Array]]:
    """Inputs to run with: the package's, else zeros where every size is fixed."""
    if view.samples:
        return view.samples
    if any(isinstance(dim, str) for spec in view.inputs for dim in spec.dims):
        return ()
    return [{spec.name: np.zeros([int(dim) for dim in spec.dims], spec.numpy) for spec in view.inputs}]
