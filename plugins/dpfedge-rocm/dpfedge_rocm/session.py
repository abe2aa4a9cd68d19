# SPDX-License-Identifier: Apache-2.0
"""One onnxruntime session on MIGraphX: a graph and a device in, the session and HIP's number of the device out.

Nothing of a graph may stay on the CPU: what MIGraphX does not take is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpfedge_cpu.placed import Hold
from dpfedge_cpu.provider import Provider, Providers, open_on

from dpfedge.backend.api import Array, Budget, Device, GraphView
from dpfedge.backend.bounded import bounded
from dpfedge.errors import Unsupported
from dpfedge_rocm.hip import hip, number_of
from dpfedge_rocm.programs import FOLDER, sealed_folder

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["RocmMemory", "open_at", "open_session", "providers"]

_OPEN_S = 1800.0  # MIGraphX tries kernels out while it compiles
_REMEDY = "install ROCm 7 with MIGraphX, and `pip install onnxruntime-migraphx` as the only onnxruntime"


class RocmMemory:
    """The GPU's memory as bindings see it: host memory is copied, linked outputs stay."""

    kind = "gpu"

    def __init__(self, number: int) -> None:
        self.number = number

    def hold(self, array: Array) -> Hold | None:
        """None: the provider reads its own memory only."""
        return None

    def wait(self) -> None:
        """Return when the GPU has done what was begun."""
        hip().synchronise(self.number)


def providers(number: int, folder: str = "") -> Providers:
    """MIGraphX on the device with HIP's `number`, with its folder of programs."""
    options = {"device_id": str(number), **({FOLDER: folder} if folder else {})}
    provider = Provider("MIGraphXExecutionProvider", options, "libonnxruntime_providers_migraphx.so")
    return Providers("rocm", [provider], _REMEDY, level="ORT_DISABLE_ALL", host=frozenset())


def open_session(graph: GraphView, device: Device, budget: Budget) -> tuple[onnxruntime.InferenceSession, int]:
    """A session over `graph` from its sealed program, or compiled now."""
    number = _checked(graph, device)
    if not graph.sealed:
        return _opened(graph, budget, providers(number)), number
    return sealed_folder(
        graph.name, graph.sealed, lambda folder: _opened(graph, budget, providers(number, folder))
    ), number


def open_at(graph: GraphView, device: Device, budget: Budget, folder: str) -> object:
    """A session that keeps what it compiles in `folder`."""
    return _opened(graph, budget, providers(_checked(graph, device), folder))


def _opened(graph: GraphView, budget: Budget, told: Providers) -> onnxruntime.InferenceSession:
    """A session; Unavailable when it never opens."""
    return bounded(lambda: open_on(graph, budget, told)[0], f"graph {graph.name}: onnxruntime", _OPEN_S)


def _checked(graph: GraphView, device: Device) -> int:
    """HIP's number of `device`, for a graph that was lowered for it and whose sizes are all fixed."""
    arch = graph.options.get("arch")
    if arch is not None and arch != device.arch:
        raise Unsupported(
            "the graph was lowered for another GPU", where=f"graph {graph.name}", found=device.arch, allowed=arch,
            remedy="compile the package for this board",
        )  # fmt: skip
    loose = sorted({str(dim) for spec in graph.inputs for dim in spec.dims if isinstance(dim, str)})
    if loose:
        raise Unsupported(
            "a size is left open, and MIGraphX compiles a program for each", where=f"graph {graph.name}",
            found=", ".join(loose), remedy="compile the package with buckets for it",
        )  # fmt: skip
    return number_of(device)
