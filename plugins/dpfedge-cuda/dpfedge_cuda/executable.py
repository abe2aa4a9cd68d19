# SPDX-License-Identifier: Apache-2.0
"""Executables and bindings on a GPU: captured CUDA graphs where everything stands still, native errors in words.

A graph is captured for one set of addresses: a link's slots come round again, so a binding keeps one for each of a
bounded number of sets. Nothing is captured for shapes that may change or memory the GPU does not reach in place.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpfedge_cpu.placed import Memory, PlacedBinding, PlacedExecutable
from dpfedge_cpu.session import address_of, run_options

from dpfedge.backend.api import Array, GraphView
from dpfedge.errors import BackendError, Unavailable, Unsupported
from dpfedge_cuda.turns import CAPTURES

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["CudaBinding", "CudaExecutable", "cuda_errors"]

_GRAPHS_MOST = 16
_RUNS_UNTIL_CAPTURED = 3  # onnxruntime runs once or twice as usual, then captures
_FAILURE = re.compile(r"(C[A-Z]+ failure \d+: [^;]*?) ?; .*?expr=(\w+)")
_RESTART = "the device's context is lost: restart the process"
_WORDS: tuple[tuple[str, type[BackendError], str, str], ...] = (
    # a part of onnxruntime's or CUDA's text → kind, in our words, what to do
    (
        r"CUDA failure 209:|no kernel image is available", Unsupported,
        "this build of onnxruntime has no kernels for this GPU", "install a build for this GPU's architecture",
    ),
    (
        r"CUDA failure 3[56]:|driver version is insufficient", Unavailable,
        "the NVIDIA driver is older than this build's CUDA", "upgrade the driver, or install a build for an older CUDA",
    ),
    (
        r"CUDA failure 10[01]:|no CUDA-capable device|invalid device ordinal", Unavailable, "the device is not there",
        "CUDA_VISIBLE_DEVICES may hide it; `dpfedge doctor --backend cuda` looks",
    ),
    (
        r"out of memory|Failed to allocate memory|ALLOC_FAILED|CUDA failure 2:", BackendError, "device memory is full",
        "place fewer stages on this device, or give it smaller buckets",
    ),
    (
        r"illegal memory access|CUDA failure 700|unspecified launch failure|uncorrectable ECC|CUDA failure 7[01][0-9]",
        BackendError, "the device failed", _RESTART,
    ),
)  # fmt: skip


@contextmanager
def cuda_errors() -> Iterator[None]:
    """Say what a native error means, and what to do, where it is known; its own text stays as what was found."""
    try:
        yield
    except BackendError as error:
        for words, kind, what, remedy in _WORDS:
            if type(error) in (BackendError, Unsupported) and re.search(words, error.what):
                raise kind(what, where=error.where, found=_short(error.what), remedy=remedy) from error
        raise


def _short(text: str) -> str:
    """What onnxruntime says of a failed call of CUDA, without its places in files and the machine's name."""
    match = _FAILURE.search(text)
    return f"{match[1]} ({match[2]})" if match else text


class CudaExecutable(PlacedExecutable):
    """A loaded graph on a GPU. `captures`: its shapes are fixed and its session may capture graphs."""

    def __init__(
        self,
        graph: GraphView,
        session: onnxruntime.InferenceSession,
        memory: Memory,
        *,
        captures: bool,
        admit: Callable[[Callable[[], bool]], None] | None = None,
    ) -> None:
        super().__init__(graph, session, memory, admit=admit)
        self.captures = captures
        self._graphs = itertools.count(1)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run; onnxruntime copies inputs to the device and outputs from it."""
        with cuda_errors(), CAPTURES.shared:
            return super().run(feeds)

    def bind(self) -> CudaBinding:
        """A new prepared call."""
        return CudaBinding(self)

    def new_graph(self) -> int:
        """A number for a graph to be captured, its own in this session."""
        return next(self._graphs)

    def forget_graph(self, number: int) -> None:
        """Give the memory of a captured graph back, where this onnxruntime can."""
        release = getattr(self.session, "release_captured_graph", None)
        if release is not None:
            release(number)


class CudaBinding(PlacedBinding):
    """One prepared call on a GPU."""

    def __init__(self, executable: CudaExecutable) -> None:
        self._gpu = executable
        self._captured: OrderedDict[tuple[int, ...], _Graph] = OrderedDict()
        self._switching = threading.Lock()
        self._thread = 0
        self._now: _Graph | None = None
        self._turns = _Turn(self, executable.turn)
        super().__init__(executable)
        self._plain = _Graph(0, self._options, runs=_RUNS_UNTIL_CAPTURED)

    def set_output(self, name: str, array: Array | None) -> None:
        """Write `name` into `array` in place where the GPU reaches it, or let onnxruntime allocate it."""
        super().set_output(name, array)
        self._now = None

    def run(self) -> None:
        """Run once; from the third run on the same memory as one captured graph, where shapes are fixed."""
        with cuda_errors():
            super().run()

    def _run(self) -> None:
        thread = threading.get_ident()  # onnxruntime captures for each thread
        if self._now is None or self._thread != thread:
            self._now, self._thread = self._choose(thread), thread
        super()._run()

    def cancel(self) -> None:
        """End the run in progress before its next operator, and each later one until `rearm`; a captured graph ends by
        itself."""
        with self._switching:
            super().cancel()

    def _place(self, name: str, array: Array, *, written: bool) -> tuple[str, int, int]:
        self._now = None
        return super()._place(name, array, written=written)

    def _turn(self) -> AbstractContextManager[Any]:
        return self._turns

    def begin(self) -> AbstractContextManager[Any]:
        """Take the options of the next run; whether it is made beside others, or alone because it may be captured.

        While something is being loaded nothing is captured, and runs are plain: a load may take minutes.
        """
        graph = self._now or self._plain
        capturing = graph.runs < _RUNS_UNTIL_CAPTURED
        if capturing and not CAPTURES.claim():
            graph, capturing = self._plain, False
        graph.runs += 1
        if self._options is not graph.options:
            with self._switching:
                graph.options.terminate = self._options.terminate
                self._options = graph.options
        return CAPTURES.alone if capturing else CAPTURES.shared

    def _choose(self, thread: int) -> _Graph:
        """The graph for where the ports lie now and who runs it; the plain way where nothing may be captured."""
        if not self._gpu.captures or not self.in_place():
            return self._plain
        key = (thread, *self._places(self._bound), *self._places(self._fixed))
        graph = self._captured.pop(key, None)
        if graph is None:
            if len(self._captured) == _GRAPHS_MOST:
                self._gpu.forget_graph(self._captured.popitem(last=False)[1].number)
            number = self._gpu.new_graph()
            graph = _Graph(number, run_options(number))
        self._captured[key] = graph
        return graph

    @staticmethod
    def _places(arrays: Mapping[str, Array]) -> Iterator[int]:
        return (address_of(arrays[name]) for name in sorted(arrays))


@dataclass(slots=True)
class _Graph:
    """One way to run: a captured graph's number, the options that name it, and how often it was run."""

    number: int
    options: Any
    runs: int = 0


class _Turn:
    """A run's turn on its executable, and then in the process; one for a binding, whose runs follow one another."""

    __slots__ = ("_binding", "_process", "_turn")

    def __init__(self, binding: CudaBinding, turn: AbstractContextManager[Any]) -> None:
        self._binding, self._turn = binding, turn

    def __enter__(self) -> None:
        self._turn.__enter__()
        try:
            self._process = self._binding.begin()
            self._process.__enter__()
        except BaseException:
            self._turn.__exit__(None, None, None)
            raise

    def __exit__(self, *raised: Any) -> None:
        self._process.__exit__(*raised)
        self._turn.__exit__(*raised)
