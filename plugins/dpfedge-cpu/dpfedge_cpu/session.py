# SPDX-License-Identifier: Apache-2.0
"""One onnxruntime session as an `Executable`, and calls prepared on memory the caller owns.

Weights are read where the package maps them, inputs and outputs where the caller keeps them; nothing here copies a
tensor.
It optimises nothing: graphs were optimised when the package was compiled. Other providers than the CPU's are opened in
`provider.py`, and what they need of a binding is in `placed.py`.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfedge.backend.api import Array, Budget, GraphView
from dpfedge.backend.host import check_writable
from dpfedge.errors import BackendError, RunCancelled, Unavailable, Unsupported
from dpfedge.tensors import TensorSpec
from dpfedge_cpu.kernels import DOMAIN, register

if TYPE_CHECKING:
    import onnxruntime

__all__ = [
    "CpuBinding",
    "CpuExecutable",
    "address_of",
    "forget_pages",
    "graph_options",
    "mapped_errors",
    "open_session",
    "run_options",
    "runtime",
    "session_options",
]

_DOMAIN = DOMAIN.encode()
_SPIN_US = "50"  # waking a worker takes about 20 µs, and a step of a language model has 570 operators


def runtime(backend: str = "cpu") -> Any:
    """onnxruntime, imported with its telemetry off: otherwise it writes a database into the user's cache.

    Unavailable, naming `backend`, where it is not installed.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnxruntime
    except ImportError as error:
        raise Unavailable(
            "onnxruntime is not installed", where=f"backend {backend}", remedy=f"pip install dpfedge-{backend}"
        ) from error
    return onnxruntime


# an operator, a version or a dtype of one that this onnxruntime, or its provider, was not built with
_LACKING = (
    "NOT_IMPLEMENTED",
    "is not a registered function/op",
    "is under development",
    "Unsupported model IR version",
    "has been explicitly disabled by the user",
)


def _native_errors() -> tuple[type[BaseException], ...]:
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    names = ("Fail", "InvalidArgument", "NoSuchFile", "NoModel", "EngineError", "RuntimeException", "InvalidProtobuf",
             "ModelLoaded", "NotImplemented", "InvalidGraph", "EPFail", "NotFound")  # fmt: skip
    return (*(getattr(native, name) for name in names if hasattr(native, name)), RuntimeError, ValueError)


@contextmanager
def mapped_errors(where: str) -> Iterator[None]:
    """Turn every error of onnxruntime into a BackendError that names the graph; Unsupported where it lacks a kernel."""
    try:
        yield
    except _native_errors() as error:
        text = " ".join(str(error).split())
        lacking = any(phrase in text for phrase in _LACKING)
        raise (Unsupported if lacking else BackendError)(text, where=where) from error


def _affinities(budget: Budget) -> str | None:
    """onnxruntime counts processors from 1 and pins only its own workers, not the calling thread."""
    workers = budget.cores[1 : budget.threads]
    return ";".join(str(core + 1) for core in workers) if len(workers) == budget.threads - 1 and workers else None


def session_options(budget: Budget, *, log_level: int = 3) -> onnxruntime.SessionOptions:
    """Options every session shares: the budget's threads, no spinning, errors only, no optimiser."""
    ort = runtime()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = budget.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = log_level
    # both keep memory per shape ever seen; speech and text bring a new shape with every request
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "1" if budget.spin or budget.threads > 1 else "0"
    )
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if not budget.spin:
        # long enough to meet the next operator of the same run, too short to be seen when idle
        options.add_session_config_entry("session.intra_op.spin_duration_us", _SPIN_US)
    if affinities := _affinities(budget):
        options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
    return options


def graph_options(graph: GraphView, budget: Budget) -> onnxruntime.SessionOptions:
    """The options of a session over `graph`: those all share, the graph's own, and its weights where they lie."""
    options = session_options(budget)
    if _DOMAIN in bytes(graph.code):
        with mapped_errors(f"graph {graph.name}"):
            register(options)
    for key, value in graph.options.get("session", {}).items():
        options.add_session_config_entry(key, value)
    # a graph may name only the package's sections: without this it could read files of the working directory
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", "/dev/null/none")
    if graph.weights:
        options.add_session_config_entry("session.use_external_initializer_file_buffers_directly", "1")
        views = list(graph.weights.values())
        options.add_external_initializers_from_files_in_memory(
            list(graph.weights), views, [view.nbytes for view in views]
        )
    return options


def open_session(graph: GraphView, budget: Budget) -> onnxruntime.InferenceSession:
    """A session over `graph`; its weights are pages of the package, shared by every process that maps it."""
    options = graph_options(graph, budget)
    with mapped_errors(f"graph {graph.name}"):
        session = runtime().InferenceSession(bytes(graph.code), options, providers=["CPUExecutionProvider"])
    for view in graph.weights.values():
        forget_pages(view)
    return session


def forget_pages(view: memoryview) -> None:
    """Unmap pages that were read once: onnxruntime packed most matrices into memory of its own.

    Only for a mapping that was made read-only: there a page holds nothing but the file's bytes, and comes back when it
    is read.
    """
    mapping = view.obj
    if not isinstance(mapping, mmap.mmap) or not memoryview(mapping).readonly:
        return
    start = address_of(np.frombuffer(view, np.uint8)) - address_of(np.frombuffer(mapping, np.uint8))
    aligned = start - start % mmap.PAGESIZE
    mapping.madvise(mmap.MADV_DONTNEED, aligned, view.nbytes + start - aligned)


def run_options(graph: int = -1) -> Any:
    """Options of a run that may be ended; `graph`: the captured graph it is, on devices that capture (-1: none)."""
    options = runtime().RunOptions()
    options.log_severity_level = 4  # a cancelled run is no error worth a line
    # onnxruntime's wrapper looks for this on every run, and a missing entry costs an exception: 37 µs
    options.add_run_config_entry("gpu_graph_id", str(graph))
    return options


class CpuExecutable:
    """A loaded graph; holds the package's weight views for as long as the session reads them."""

    def __init__(self, graph: GraphView, session: onnxruntime.InferenceSession) -> None:
        self.name, self.inputs, self.outputs = graph.name, graph.inputs, graph.outputs
        self._weights = graph.weights
        self._session: onnxruntime.InferenceSession | None = session

    @property
    def session(self) -> onnxruntime.InferenceSession:
        """The open session; BackendError after `close`."""
        if self._session is None:
            raise BackendError("the executable is closed", where=f"graph {self.name}")
        return self._session

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run with every output allocated by onnxruntime."""
        names = [spec.name for spec in self.outputs]
        with mapped_errors(f"graph {self.name}"):
            return dict(zip(names, self.session.run(names, dict(feeds)), strict=True))

    def bind(self) -> CpuBinding:
        """A new prepared call; until told otherwise onnxruntime allocates each output."""
        return CpuBinding(self)

    def close(self) -> None:
        """Drop the session and the weight views."""
        self._session, self._weights = None, {}


class CpuBinding:
    """One prepared call: buffers stay bound between runs, and memory that did not change is not bound again."""

    def __init__(self, executable: CpuExecutable) -> None:
        self._executable = executable
        self._where = f"graph {executable.name}"
        self._ports = {spec.name: spec for spec in executable.inputs}
        self._results = {spec.name: index for index, spec in enumerate(executable.outputs)}
        self._outputs = {spec.name: spec for spec in executable.outputs}
        self._io = executable.session.io_binding()
        self._bound: dict[str, Array] = {}
        self._fixed: dict[str, Array] = {}
        self._links: dict[str, str] = {}
        self._values: Any = None
        self._options = run_options()
        self._allocate(self._results)

    def set_input(self, name: str, array: Array) -> None:
        """Read `name` from `array` in place on each following run; unchanged memory is not bound again."""
        bound = self._bound.get(name)
        if bound is array:
            return
        self._check(self._ports, name, array)
        if bound is None or address_of(bound) != address_of(array) or bound.shape != array.shape:
            device, number, address = self._place(name, array, written=False)
            with mapped_errors(self._where):
                self._io.bind_input(name, device, number, array.dtype, array.shape, address)
        self._bound[name] = array

    def set_output(self, name: str, array: Array | None) -> None:
        """Write `name` into `array` in place, or let onnxruntime allocate it on each run."""
        if array is None:
            self._fixed.pop(name, None)
            return
        self._check(self._outputs, name, array)
        check_writable(self._where, name, array)
        device, number, address = self._place(name, array, written=True)
        with mapped_errors(self._where):
            self._io.bind_output(name, device, number, array.dtype, array.shape, address)
        self._fixed[name] = array

    def link(self, output: str, input: str) -> None:
        """Feed this run's `output` to `input` of the next run; the tensor changes its reader, its bytes stay."""
        if output not in self._outputs or input not in self._ports:
            raise BackendError("no such port", where=self._where, found=f"{output} → {input}")
        self._links[output] = input

    def run(self) -> None:
        """Run once; outputs that onnxruntime allocates are new on each run."""
        try:
            self._run()
        except BackendError as error:
            if self._options.terminate:
                raise RunCancelled("the run was cancelled", where=self._where) from error
            raise

    def cancel(self) -> None:
        """End the run in progress before its next operator, and each later one until `rearm`."""
        self._options.terminate = True

    def rearm(self) -> None:
        """Runs are allowed again."""
        self._options.terminate = False

    def _run(self) -> None:
        with mapped_errors(self._where):
            self._allocate(name for name in self._results if name not in self._fixed)
            self._values = None  # the last run's outputs end here, not behind this run's
            self._executable.session.run_with_iobinding(self._io, self._options)
            if len(self._fixed) == len(self._results) and not self._links:
                return  # nothing came from onnxruntime, and asking costs a microsecond per output
            self._values = self._io.get_outputs()
            for output, input in self._links.items():
                self._io.bind_ortvalue_input(input, self._values[self._results[output]])
                self._bound.pop(input, None)

    def output(self, name: str) -> Array:
        """The last run's `name`: the bound array, or a view of onnxruntime's memory valid until the next run."""
        if name in self._fixed:
            return self._fixed[name]
        if self._values is None:
            raise BackendError("nothing has run yet", where=self._where)
        value = self._values[self._results[name]]
        return _view(value.data_ptr(), value.shape(), self._outputs[name].numpy)

    def _place(self, name: str, array: Array, *, written: bool) -> tuple[str, int, int]:
        """Where the provider reads input `name`, or writes output `name`: kind of memory, number of device, address."""
        return "cpu", 0, address_of(array)

    def _allocate(self, names: Iterable[str]) -> None:
        for name in names:
            self._io.bind_output(name, "cpu", 0)

    def _check(self, ports: Mapping[str, TensorSpec], name: str, array: Array) -> None:
        if name not in ports:
            raise BackendError("no such port", where=self._where, found=name, allowed=", ".join(ports))
        if array.dtype != ports[name].numpy or not array.flags.c_contiguous:
            raise BackendError(
                "array does not fit the port",
                where=f"{self._where}: {name}",
                found=f"{array.dtype}, contiguous {array.flags.c_contiguous}",
                allowed=f"C-contiguous {ports[name].dtype}",
            )


_READ = 0x100  # PyBUF_READ
_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.restype = ctypes.py_object
_memory.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)


def address_of(array: Array) -> int:
    """Where its first element lies in this process."""
    return int(array.__array_interface__["data"][0])


def _view(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Read-only memory of onnxruntime as an array, without a copy."""
    size = math.prod(shape) * dtype.itemsize
    return np.ndarray(shape, dtype, _memory(address, size, _READ) if size else b"")
