# SPDX-License-Identifier: Apache-2.0
"""A process that loads one model of a package and holds it; commands and figures as JSON lines.

Usage: python made_holder.py PACKAGE MODEL (packed | plain | unpacked). `plain` leaves the sidecar alone, `unpacked`
tells onnxruntime to pack nothing: what grows then are the graph's objects, no weights.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.backend.api import Budget, Executable
from dpfedge.binding import BoundModel, bind_here
from dpfedge.package import open_package
from dpfedge.package.residency import anonymous_bytes

RUNS = {
    "vad": {"n": 576}, "encode": {"n": 16000, "T": 9}, "decode": {"n": 40}, "decode_first": {"t": 3, "s": 41},
    "decode_step": {"p": 3, "s": 41}, "llm": {"n": 5, "total": 5},
}  # fmt: skip


def main() -> None:
    """Load, close, load again: what the first load leaves behind for ever is no part of the second's growth."""
    package = open_package(Path(sys.argv[1]), check="fast")
    bound = bind_here(package, sidecar=sys.argv[3] == "packed")
    model = bound.model(sys.argv[2])
    if sys.argv[3] == "unpacked":
        settings = {"session": {"session.disable_prepacking": "1"}}
        graphs = {key: replace(graph, options={**graph.options, **settings}) for key, graph in model._graphs.items()}
        model = replace(model, _graphs=graphs)
    warm = load(model)
    for executable in warm.values():
        executable.close()
    del warm, executable
    before = private_bytes()
    held = load(model)
    grown = private_bytes() - before
    compiled = bound.places[model.name].target.models[model.name]
    sections = {name for graph in compiled.graphs.values() for name in graph.weights}
    weights = sum(package.find(name).size for name in sections)
    tell(grown=grown, weights=weights, anonymous=anonymous_bytes(os.getpid()))
    for line in sys.stdin:
        tell(outputs={name: digest(held[name]) for name in line.split()}, grown=private_bytes() - before)


def load(model: BoundModel) -> dict[str, Executable]:
    """Every graph of the model."""
    return {name: model.load(name, Budget()) for name in model.graphs}


def private_bytes() -> int:
    """Memory of this process that no other one shares and that is not just free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    fields = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) * 1024 for name in ("Private_Clean", "Private_Dirty"))


def digest(executable: Executable) -> str:
    """Of every output of one run on inputs that depend on the ports alone."""
    sizes: dict[str, Any] = RUNS[executable.name.rpartition("/")[2]]
    random, feeds = np.random.default_rng(5), {}
    for spec in executable.inputs:
        dims = [dim if isinstance(dim, int) else sizes.get(dim, 3) for dim in spec.dims]
        values = random.integers(1, 9, dims) if spec.dtype == "i64" else random.standard_normal(dims) * 0.1
        feeds[spec.name] = values.astype(spec.numpy)
    outputs = executable.run(feeds)
    return hashlib.sha256(b"".join(outputs[name].tobytes() for name in sorted(outputs))).hexdigest()


def tell(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main()
