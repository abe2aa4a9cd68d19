# SPDX-License-Identifier: Apache-2.0
"""A program of its own: runs a small graph while the stand-in of a driver fails as each argument says, and prints what
came of it as JSON. `call=what` is an item of STANDIN (`standins/standin.h`), `` the driver as it is.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
from dpfedge_opencl.devices import devices_of
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.runtime import Runtime, native_device
from dpfedge_opencl.seal import identity
from made_plans import affine_plan, right

from dpfedge.backend.api import GraphView
from dpfedge.errors import DpfError
from dpfedge.tensors import TensorSpec

PORTS = (TensorSpec("x", "f32", ("n",)),), (TensorSpec("y", "f32", ("n",)),)


def whole() -> dict[str, object]:
    """Everything from the device to an answer."""
    device = devices_of(Path("/"))[0]
    if any(word in os.environ["STANDIN"] for word in ("hang", "silent")):
        os.environ["DPFEDGE_OPENCL_HANG_S"] = "0.3"  # compiling may take twenty times that
    runtime = Runtime(native_device(device))
    view = GraphView("g", memoryview(b""), *PORTS, {})
    graph = OpenClExecutable(Graph(view, lambda shapes, shared: affine_plan(shapes["x"][0])), runtime)
    x = np.arange(70, dtype=np.float32)
    answer = graph.run({"x": x})["y"]
    assert np.array_equal(answer, right(x)), answer
    programs = runtime.programs
    programs.binaries(set(programs._built), "graph g")
    return {
        "device": [device.kind, device.arch, device.name, sorted(device.features)], "memory": runtime.memory.name,
        "copied": runtime.memory.copied, "driver": identity(device, "1").driver,
    }  # fmt: skip


def attempt(told: str) -> object:
    """What came of one way to fail."""
    os.environ["STANDIN"] = told
    try:
        return whole()
    except DpfError as error:
        return [type(error).__name__, str(error)]
    finally:
        os.environ["STANDIN"] = ""
        os.environ["DPFEDGE_OPENCL_HANG_S"] = "30"


if __name__ == "__main__":
    print(json.dumps({told: attempt(told) for told in sys.argv[1:]}))
    sys.stdout.flush()
    os._exit(0)  # threads that hang in the driver stay behind
