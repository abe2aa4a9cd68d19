# SPDX-License-Identifier: Apache-2.0
"""onnxruntime on something else than the CPU: a graph and providers in, a session that runs on them, or why not, out.

onnxruntime goes on with the CPU where a provider is missing, cannot be loaded or lacks a kernel; here each of these is
an error that says so. Only arithmetic on shapes, which providers leave to the CPU on purpose, may stay there. It knows
no vendor: `dpfedge-cuda`, `dpfedge-jetson` and `dpfedge-rocm` say what theirs are called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.backend import loader
from dpfedge.backend.api import Budget, GraphView
from dpfedge.errors import BackendError, Unavailable, Unsupported
from dpfedge_cpu.session import forget_pages, graph_options, mapped_errors, runtime

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["SHAPE_OPERATORS", "Provider", "Providers", "load_error", "open_on", "placement"]

SHAPE_OPERATORS = frozenset(
    {"Add", "And", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Floor", "Gather", "Greater",
     "Identity", "If", "Less", "Loop", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range", "ReduceMax",
     "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "ScatterND", "Shape", "Size", "Slice", "Split",
     "Squeeze", "Sub", "Tile", "Unsqueeze", "Where"}
)  # fmt: skip
"""Operators that providers of GPUs have for floats: one of them on the CPU computes a shape."""
_CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class Provider:
    """One execution provider as a session is given it."""

    name: str
    """onnxruntime's name: `CUDAExecutionProvider`."""
    options: Mapping[str, str] = field(default_factory=dict)
    library: str = ""
    """Its file among onnxruntime's (`libonnxruntime_providers_cuda.so`), looked at when it does not come up."""
    needed: bool = True
    """Without it the graph must not run; an optional one takes what it can of the graph, before those behind it."""


@dataclass(frozen=True, slots=True)
class Providers:
    """What one backend opens sessions with, in order of precedence."""

    backend: str
    providers: Sequence[Provider]
    remedy: str
    """How its build of onnxruntime and the libraries it needs are installed."""
    session: Mapping[str, str] = field(default_factory=dict)
    """More session configuration entries."""
    level: str = "ORT_ENABLE_EXTENDED"
    """What onnxruntime's optimiser does when a graph is loaded: fusions depend on the provider, which is not there when
    a package is compiled."""
    host: frozenset[str] = SHAPE_OPERATORS
    """Operators that may stay on the CPU."""

    @property
    def where(self) -> str:
        """For errors."""
        return f"backend {self.backend}"


def open_on(
    graph: GraphView, budget: Budget, providers: Providers
) -> tuple[onnxruntime.InferenceSession, Mapping[str, Mapping[str, int]]]:
    """A session over `graph` that runs on `providers`, and provider → operator → count as it was placed.

    Unavailable: a needed provider is not in this build of onnxruntime, or does not come up. Unsupported: an operator
    would run on the CPU. BackendError: whatever else onnxruntime says.
    """
    ort = runtime(providers.backend)
    listed = ort.get_available_providers()
    wanted = [one for one in providers.providers if one.needed or (one.name in listed and _loads(one.library))]
    for one in wanted:
        if one.name not in listed:
            raise Unavailable(
                f"this build of onnxruntime has no {one.name}", where=providers.where,
                found=f"onnxruntime {ort.__version__} with {', '.join(listed)}", remedy=providers.remedy,
            )  # fmt: skip
    options = graph_options(graph, budget)
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, providers.level)
    recorded = hasattr(ort.InferenceSession, "get_provider_graph_assignment_info")
    # a build that cannot tell where nodes went must refuse the CPU by itself, for shapes too
    strict = "session.record_ep_graph_assignment_info" if recorded else "session.disable_cpu_ep_fallback"
    for key, value in {strict: "1", **providers.session}.items():
        options.add_session_config_entry(key, value)
    names = [one.name for one in wanted]
    told = [dict(one.options) for one in wanted]
    try:
        with mapped_errors(f"graph {graph.name}"):
            # enable_fallback: else its Python wrapper prints a line and goes on with the CPU
            session = ort.InferenceSession(bytes(graph.code), options, names, told, enable_fallback=0)
    except BackendError as error:
        # the CPU was refused, perhaps for want of anything else; MIGraphX raises where CUDA writes a line to stderr
        if (isinstance(error, Unsupported) and not recorded) or "Failed to load library" in str(error):
            _check_loads(wanted, providers)
        raise
    up = session.get_providers()
    down = [one for one in wanted if one.needed and one.name not in up]
    _check_loads(down, providers)
    for one in down:
        raise Unavailable(
            f"{one.name} does not come up",
            where=providers.where,
            found="its libraries load, so driver or device refuse; onnxruntime told why on stderr",
            remedy=f"`dpfedge doctor --backend {providers.backend}` looks for the reason",
        )
    for view in graph.weights.values():
        forget_pages(view)
    placed = placement(session) if recorded else {}
    _check_placed(graph.name, placed, providers)
    return session, placed


def _check_loads(wanted: Sequence[Provider], providers: Providers) -> None:
    for one in wanted:
        if one.library and (why := load_error(one.library)):
            missing = loader.missing_library(why)
            what = f"{missing} is missing" if missing else why
            raise Unavailable(
                f"{one.name} does not come up", where=providers.where, found=what, remedy=providers.remedy
            )


def load_error(library: str) -> str:
    """Why the loader cannot load one of onnxruntime's provider libraries; empty when it can.

    In a child process: it reads its host when it is loaded, and would crash a session that finds it there already.
    """
    capi = Path(str(runtime().__file__)).parent / "capi"
    files = [capi / "libonnxruntime_providers_shared.so", capi / library]
    return loader.load_error(files, sorted(capi.parents[1].glob("nvidia/*/lib")))


@cache
def _loads(library: str) -> bool:
    return not load_error(library)


def placement(session: Any) -> dict[str, dict[str, int]]:
    """Provider → operator → how many of them it runs; for a session that records it."""
    placed: dict[str, Counter[str]] = {}
    for part in session.get_provider_graph_assignment_info():
        placed.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())
    return {name: dict(sorted(counts.items())) for name, counts in sorted(placed.items())}


def _check_placed(name: str, placed: Mapping[str, Mapping[str, int]], providers: Providers) -> None:
    if any(one.name == _CPU for one in providers.providers):
        return
    strayed = {op: count for op, count in placed.get(_CPU, {}).items() if op not in providers.host}
    if strayed:
        raise Unsupported(
            f"{providers.providers[-1].name} has no kernel for operators of this graph, and the CPU must not run them",
            where=f"graph {name}",
            found=", ".join(f"{count}×{op}" for op, count in strayed.items()),
            remedy="compile the package anew for this device, or place the stage on the CPU backend",
        )
