# SPDX-License-Identifier: Apache-2.0
"""Executable and binding for backends that compute in this process: a function of arrays in, the contract's calls out.

It checks what the caller gives and writes results into the caller's arrays. It computes nothing, and no backend has to
use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, GraphView
from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec

__all__ = ["Compute", "HostBinding", "HostExecutable", "check_writable"]

Compute = Callable[[Mapping[str, Array]], Sequence[Any]]
"""Every input by name → every output in the order of the graph; raises BackendError only."""


class HostExecutable:
    """A graph ready to be computed by a function."""

    def __init__(self, graph: GraphView, compute: Compute) -> None:
        self.name, self.inputs, self.outputs = graph.name, graph.inputs, graph.outputs
        self.where = f"graph {graph.name}"
        self._compute: Compute | None = compute

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run with new arrays as outputs."""
        if self._compute is None:
            raise BackendError("the executable is closed", where=self.where)
        if unknown := feeds.keys() - {spec.name for spec in self.inputs}:
            raise _no_port(self.where, unknown.pop(), self.inputs)
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            if spec.name not in feeds:
                raise BackendError("an input is missing", where=self.where, found=f"none for {spec.name}")
            _check(self.where, spec, feeds[spec.name])
            _check_shape(self.where, spec, feeds[spec.name], sizes)
        found = self._compute(dict(feeds))
        return {spec.name: _result(self.where, spec, one) for spec, one in zip(self.outputs, found, strict=True)}

    def bind(self) -> HostBinding:
        """A new prepared call."""
        return HostBinding(self)

    def close(self) -> None:
        """Forget the function and all that it holds."""
        self._compute = None


class HostBinding:
    """One prepared call."""

    def __init__(self, executable: HostExecutable) -> None:
        self._executable, self._where = executable, executable.where
        self._inputs = {spec.name: spec for spec in executable.inputs}
        self._outputs = {spec.name: spec for spec in executable.outputs}
        self._feeds: dict[str, Array] = {}
        self._fixed: dict[str, Array] = {}
        self._links: dict[str, str] = {}
        self._found: dict[str, Array] | None = None

    def set_input(self, name: str, array: Array) -> None:
        """Read `name` from `array` on each following run."""
        if name not in self._inputs:
            raise _no_port(self._where, name, self._executable.inputs)
        _check(self._where, self._inputs[name], array)
        self._feeds[name] = array

    def set_output(self, name: str, array: Array | None) -> None:
        """Write `name` into `array`, or into a new array on each run."""
        if name not in self._outputs:
            raise _no_port(self._where, name, self._executable.outputs)
        if array is None:
            self._fixed.pop(name, None)
            return
        _check(self._where, self._outputs[name], array)
        check_writable(self._where, name, array)
        self._fixed[name] = array

    def link(self, output: str, input: str) -> None:
        """Feed this run's `output` to `input` of the next run."""
        if output not in self._outputs or input not in self._inputs:
            raise BackendError("no such port", where=self._where, found=f"{output} → {input}")
        self._links[output] = input

    def run(self) -> None:
        """Run once; fixed outputs must have the result's shape."""
        found = self._executable.run(self._feeds)
        for name, array in self._fixed.items():
            if found[name].shape != array.shape:
                raise BackendError(
                    "the output has another shape", where=f"{self._where}: {name}", found=array.shape,
                    allowed=found[name].shape,
                )  # fmt: skip
            array[...] = found[name]
            found[name] = array
        self._found = found
        for output, input in self._links.items():
            self._feeds[input] = found[output]

    def output(self, name: str) -> Array:
        """The last run's `name`."""
        if name not in self._outputs:
            raise _no_port(self._where, name, self._executable.outputs)
        if name in self._fixed:
            return self._fixed[name]
        if self._found is None:
            raise BackendError("nothing has run yet", where=self._where)
        return self._found[name]


def check_writable(where: str, name: str, array: Array) -> None:
    """BackendError for read-only memory: a library that wrote there would end the process."""
    if not array.flags.writeable:
        raise BackendError("an output needs memory that may be written", where=f"{where}: {name}", found="read-only")


def _no_port(where: str, name: str, specs: Sequence[TensorSpec]) -> BackendError:
    return BackendError("no such port", where=where, found=name, allowed=", ".join(spec.name for spec in specs))


def _check(where: str, spec: TensorSpec, array: Array) -> None:
    if array.dtype != spec.numpy or not array.flags.c_contiguous:
        raise BackendError(
            "array does not fit the port", where=f"{where}: {spec.name}",
            found=f"{array.dtype}, contiguous {array.flags.c_contiguous}", allowed=f"C-contiguous {spec.dtype}",
        )  # fmt: skip


def _check_shape(where: str, spec: TensorSpec, array: Array, sizes: dict[str, int]) -> None:
    fits = array.ndim == len(spec.dims) and all(
        size == (sizes.setdefault(dim, size) if isinstance(dim, str) and not dim.startswith("?") else dim)
        for dim, size in zip(spec.dims, array.shape, strict=True)
        if not (isinstance(dim, str) and dim.startswith("?"))
    )
    if not fits:
        raise BackendError("shape does not fit", where=f"{where}: {spec.name}", found=array.shape, allowed=spec.dims)


def _result(where: str, spec: TensorSpec, value: Any) -> Array:
    array = np.ascontiguousarray(value).reshape(np.shape(value))  # ascontiguousarray makes a scalar a vector
    if array.dtype != spec.numpy:
        raise BackendError("the result has another dtype", where=f"{where}: {spec.name}", found=array.dtype,
                           allowed=spec.dtype)  # fmt: skip
    return array
