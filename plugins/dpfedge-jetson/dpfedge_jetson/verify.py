# SPDX-License-Identifier: Apache-2.0
"""What a Jetson can show beside the common checks: a device in, what was found, point by point, out.

`dpfedge doctor --backend jetson --verify` runs it after the conformance suite, a whole pipeline and the bench. What a
point raises is its failure. A module's DLAs are checked with its GPU.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from dpfedge_cuda.verify import EXPECTED, UNSUPPORTED

from dpfedge.backend.api import Array, Budget, Device, GraphView, LowerRequest, SealedView
from dpfedge.backend.sensors import TegraSensors
from dpfedge.errors import BackendError, Unsupported
from dpfedge_jetson.backend import JetsonBackend
from dpfedge_jetson.devices import DLA_ARCHS
from dpfedge_jetson.versions import libraries

__all__ = ["EXPECTED", "UNSUPPORTED", "checks"]

_SHAPE = (1, 16, 16, 16)
_TOLERANCE = 1e-2  # a DLA computes in f16


def checks(backend: JetsonBackend, device: Device) -> Iterator[tuple[str, str]]:
    """(what was looked at, what was found) for each point."""
    yield "module", f"{device.facts.get('module', 'not known')}, {device.drivers}"
    yield "libraries", str(libraries())
    yield "sensors", str(TegraSensors().sample())
    yield "power", str(TegraSensors().power())
    yield "health", str(backend.health(device))
    for dla in backend.devices(Path("/")):
        if dla.arch in DLA_ARCHS:
            yield from _dla(backend, dla)


def _dla(backend: JetsonBackend, dla: Device) -> Iterator[tuple[str, str]]:
    """Sealed, opened again, run in place and right; what it cannot run is refused."""
    graph = _graph(backend, dla, "Relu")
    made = backend.seal(graph, dla, Budget()) or {}
    sealed = {name: SealedView(memoryview(_joined(parts)), -1, 0) for name, parts in made.items()}
    yield f"{dla.id}: engine", f"{sum(view.data.nbytes for view in sealed.values())} bytes, without the GPU's help"
    call = backend.load(_with(graph, sealed), dla, Budget()).bind()
    x, y = _mapped(), _mapped()
    x[...] = np.linspace(-1, 1, x.size, dtype=np.float32).reshape(x.shape)
    call.set_input("x", x)
    call.set_output("y", y)
    call.run()
    off = float(np.abs(y - np.maximum(x, 0)).max())
    if off > _TOLERANCE:
        raise BackendError("the DLA computes something else", where=dla.id, found=off, allowed=_TOLERANCE)
    yield f"{dla.id}: run", f"off by {off:.1e}, {getattr(call, 'copies', 0)} copies"
    try:
        _graph(backend, dla, "Erf")
    except Unsupported as error:
        yield f"{dla.id}: what it cannot run", f"refused: {error}"
        return
    raise BackendError("a graph that a DLA cannot run was lowered for it", where=dla.id)


def _graph(backend: JetsonBackend, device: Device, op: str) -> GraphView:
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "verify", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    low = backend.lower(LowerRequest("verify", bytes(model.SerializeToString()), device.arch, device.features))
    return GraphView("verify", memoryview(low.code), low.inputs, low.outputs, {}, {"arch": device.arch})


def _joined(parts: Sequence[Array]) -> bytes:
    return b"".join(np.asarray(part).tobytes() for part in parts)


def _mapped() -> Array:
    """Memory as a link's arena has it: pages of its own."""
    count = int(np.prod(_SHAPE))
    return np.frombuffer(mmap.mmap(-1, 4 * count), np.float32, count).reshape(_SHAPE)


def _with(graph: GraphView, sealed: dict[str, SealedView]) -> GraphView:
    return GraphView(graph.name, graph.code, graph.inputs, graph.outputs, graph.weights, graph.options, sealed)
