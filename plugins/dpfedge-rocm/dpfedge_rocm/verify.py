# SPDX-License-Identifier: Apache-2.0
"""What a machine with an AMD GPU can show beside the common checks: a device in, what was found, point by point, out.

`dpfedge doctor --backend rocm --verify` runs it after the conformance suite, a whole pipeline and the bench. What a
point raises is its failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dpfedge.backend.api import Budget, Device, GraphView, LoweredGraph, LowerRequest, SealedView
from dpfedge.errors import BackendError
from dpfedge_rocm.backend import RocmBackend
from dpfedge_rocm.health import Watch
from dpfedge_rocm.hip import hip, number_of
from dpfedge_rocm.ops import OPERATORS
from dpfedge_rocm.programs import collect
from dpfedge_rocm.session import open_at

__all__ = ["OPS", "UNSUPPORTED", "checks"]

_REWRITTEN = ("DynamicQuantizeMatMul", "GatherBlockQuantized", "MatMulIntegerToFloat")
OPS: Sequence[str] = tuple(f"{op}{rest}" for op in sorted({*OPERATORS, *_REWRITTEN}) for rest in ("/*", "-*"))
"""Tests of the suite for operators that MIGraphX has, or that lowering says in those it has."""
UNSUPPORTED: Mapping[str, str] = {
    "cancel": "a compiled program cannot be ended on its way",
    "arena": "inputs and outputs are copied to the GPU's memory",
}
"""Tests of the suite → why they will never work."""
_WIDTH = 256


def checks(backend: RocmBackend, device: Device) -> Iterator[tuple[str, str]]:
    """(what was looked at, what was found) for each point."""
    yield "HIP runtime", f"{hip().name}, HIP {hip().version()}"
    yield "HIP's number", f"{device.id} at {device.facts['pci']} is HIP's {number_of(device)}"
    modes = [str(device.facts.get(key, "not told")) for key in ("compute_partition", "memory_partition")]
    yield "partition modes", f"{' '.join(modes)}, partition {device.facts['partition']} of {device.facts['partitions']}"
    watch = Watch(str(device.facts["pci"]))
    yield "health", str(watch.health())
    yield "AMD SMI", watch.without or "answers"
    yield "identity", str(backend.identity(device))
    yield from _seal(backend, device)
    yield from _resident(backend, device)


def _seal(backend: RocmBackend, device: Device) -> Iterator[tuple[str, str]]:
    """A sealed program is used, gives the same bits, and one for another graph is refused."""
    graph = _graph(backend, device, "y")
    x = np.linspace(-1, 1, _WIDTH, dtype=np.float32).reshape(1, _WIDTH)
    plain = backend.load(graph, device, Budget()).run({"x": x})["y"]
    made = collect(graph.name, lambda at: open_at(graph, device, Budget(), at))
    files = {name: b"".join(np.asarray(part).tobytes() for part in parts) for name, parts in made.items()}
    sealed = {name: SealedView(memoryview(data), -1, 0) for name, data in files.items()}
    again = backend.load(_with(graph, sealed), device, Budget()).run({"x": x})["y"]
    if again.tobytes() != plain.tobytes():
        raise BackendError("a sealed program gives other bits", where="backend rocm")
    yield "sealed program", f"{', '.join(files)}: {sum(map(len, files.values()))} bytes, the same bits"
    other = _with(_graph(backend, device, "z"), sealed)
    try:
        backend.load(other, device, Budget())
    except BackendError as error:
        yield "program of another graph", f"refused: {error}"
        return
    raise BackendError("a program of another graph was taken, or compiled anew without a word", where="backend rocm")


def _resident(backend: RocmBackend, device: Device) -> Iterator[tuple[str, str]]:
    """A linked output stays on the GPU: only the input is copied, once for each run."""
    call = backend.load(_graph(backend, device, "y"), device, Budget()).bind()
    call.set_input("x", np.ones((1, _WIDTH), np.float32))
    call.link("y", "x")
    for _ in range(3):
        call.run()
    yield "linked output", f"{call.copies} copies in 3 runs; 1 is the first input's"


def _graph(backend: RocmBackend, device: Device, output: str) -> GraphView:
    """A product and a root of a constant matrix, small enough to have no weights apart."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, _WIDTH]) for name in ("x", output)]
    scale = numpy_helper.from_array(np.full(1, 0.5, np.float32), "scale")
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Mul", ["t", "scale"], [output])]
    model = helper.make_model(
        helper.make_graph(nodes, "verify", ports[:1], ports[1:], [scale]),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=10,
    )  # fmt: skip
    low: LoweredGraph = backend.lower(LowerRequest("verify", onnx.ModelProto.SerializeToString(model), device.arch,
                                                   device.features))  # fmt: skip
    return GraphView("verify", memoryview(low.code), low.inputs, low.outputs, {}, {"arch": device.arch})


def _with(graph: GraphView, sealed: dict[str, SealedView]) -> GraphView:
    return GraphView(graph.name, graph.code, graph.inputs, graph.outputs, graph.weights, graph.options, sealed)
