# SPDX-License-Identifier: Apache-2.0
"""What proving the OpenCL backend on a machine with a device looks at beside the common checks.

`dpfedge doctor --backend opencl --verify` runs the suite for backends, a pipeline, a bench, and then `checks`.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median

import numpy as np

from dpfedge.backend.api import Backend, Budget, Device, GraphView, SealedView
from dpfedge.tensors import TensorSpec
from dpfedge.testing.loading import lowered, view
from dpfedge.testing.models import affine, right_affine, rows
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.plan import Kernel, Launch, Plan, Slot, Tensor
from dpfedge_opencl.runtime import Runtime, open_runtime

__all__ = ["checks"]

_SIZES_MIB = (1, 64)
_ROUNDS = 9
_HALF = """#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__kernel void half_sum(__global uchar *a, const ulong ao, __global uchar *b, const ulong bo) {
  uint i = get_global_id(0);
  half found = ((__global half *)(a + ao))[i] * (half)2.0f + (half)1.0f;
  ((__global half *)(b + bo))[i] = found;
}
"""
_TAIL = """__kernel void tail(__global uchar *a, const ulong ao, __global uchar *b, const ulong bo) {
  uint i = get_global_id(0);
  b[bo + i] = a[ao + i] + 1;
}
"""


def checks(backend: Backend, device: Device) -> Iterator[tuple[str, str]]:
    """(what was looked at, what was found) of what only a driver shows; AssertionError where it is not so."""
    runtime = open_runtime(device)
    facts = ", ".join(f"{name} {value}" for name, value in device.facts.items())
    yield "what the driver tells", f"{facts}; {runtime.facts}"
    yield "memory shared with the device", _memory(runtime)
    if runtime.facts.fp16:
        yield "16-bit floats in kernels", _half(runtime)
    yield "programs out of a seal", _sealed(backend, device)


def _graph(runtime: Runtime, source: str, entry: str, dtype: str, count: int, items: int) -> OpenClExecutable:
    slots = {"x": Slot("input", 0, dtype, (count,), "x"), "y": Slot("output", 0, dtype, (count,), "y")}
    step = Launch(Kernel(entry, source), (Tensor("x"), Tensor("y")), (items,), None, entry)
    plan = Plan((step,), slots, 0, {"y": (count,)})
    x, y = (TensorSpec(name, dtype, (count,)) for name in "xy")
    graph = GraphView(entry, memoryview(b""), (x,), (y,), {})
    return OpenClExecutable(Graph(graph, lambda shapes, shared: plan), runtime)


def _memory(runtime: Runtime) -> str:
    """How long wrapping and using a mapping takes, small and large: the same where nothing is copied."""
    found = []
    for mib in _SIZES_MIB:
        size = mib << 20
        x, y = (np.frombuffer(mmap.mmap(-1, size), np.uint8) for _ in range(2))
        call = _graph(runtime, _TAIL, "tail", "u8", size, 4096).bind()
        call.set_input("x", x)
        call.set_output("y", y)
        times = []
        for round_ in range(_ROUNDS):
            x[:4096] = round_
            started = time.perf_counter()
            call.run()
            times.append(time.perf_counter() - started)
            assert (y[:4096] == round_ + 1).all(), f"{mib} MiB: the kernel's bytes are not in our memory"
        found.append(f"{mib} MiB {median(times) * 1e6:.0f} µs")
    return f"{runtime.memory.name}: {', '.join(found)}; {runtime.memory.copied} bytes copied"


def _half(runtime: Runtime) -> str:
    x = np.linspace(-8, 8, 64, dtype=np.float16)
    found = _graph(runtime, _HALF, "half_sum", "f16", 64, 64).run({"x": x})["y"]
    assert np.allclose(found, x * np.float16(2) + np.float16(1), atol=2e-2), "another sum"
    return "64 values right"


def _sealed(backend: Backend, device: Device) -> str:
    """A graph with its programs and one without: the same bits, and how much earlier the first is there."""
    from dpfedge_opencl.backend import OpenClBackend

    assert isinstance(backend, OpenClBackend)
    plain = replace(view(backend, lowered(backend, device, affine("n")), "affine"), samples=[{"x": rows(3)}])
    built = backend.seal(plain, device, Budget())
    assert built is not None
    sealed = {name: SealedView(memoryview(bytes(pieces[0])), -1, 0) for name, pieces in built.items()}
    answers = [
        backend.load(one, device, Budget()).run({"x": rows(4)}) for one in (plain, replace(plain, sealed=sealed))
    ]
    assert all(np.array_equal(answers[0][name], answers[1][name]) for name in answers[0]), "a seal changed a bit"
    assert all(np.allclose(answers[0][name], right, atol=1e-4) for name, right in right_affine(rows(4)).items())
    return f"{sum(len(one.data) for one in sealed.values())} bytes, the same answers to the bit"
