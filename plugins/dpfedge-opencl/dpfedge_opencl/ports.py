# SPDX-License-Identifier: Apache-2.0
"""What a binding has at the graph's ports: the caller's arrays or memory of ours, each wrapped once.

It checks what the caller gives against the ports and knows no plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.backend.host import check_writable
from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec
from dpfedge_opencl.memory import Memory, Span
from dpfedge_opencl.wraps import Results, Wraps

__all__ = ["Port", "Ports"]


class Port:
    """The memory of one port at present."""

    __slots__ = ("array", "place", "span")

    def __init__(self, array: Array, span: Span, address: int) -> None:
        self.array, self.span, self.place = array, span, (address, array.nbytes)


class Ports:
    """The inputs and outputs of one binding. `changes` counts what kernels have to be told of."""

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], memory: Memory, where: str) -> None:
        self.inputs = {spec.name: spec for spec in inputs}
        self.outputs = {spec.name: spec for spec in outputs}
        self._dtypes = {spec.name: spec.numpy for spec in (*inputs, *outputs)}
        self._memory, self._where = memory, where
        self._wraps = Wraps(memory)
        self._fresh = {spec.name: Results(memory) for spec in outputs}
        self.read: dict[str, Port] = {}
        self.fixed: dict[str, Port] = {}
        self.made: dict[str, Port] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._spare: dict[str, Port] = {}
        self._written: dict[tuple[int, int], str] = {}
        self.changes = 0
        self.same_plan = False
        """Whether shapes of inputs, and what shares memory, are those of the last run."""

    def set_input(self, name: str, array: Array) -> None:
        """Read `name` from `array`."""
        bound = self.read.get(name)
        if bound is not None and bound.array is array:
            return
        self._check(self.inputs, name, array)
        if self._shapes.get(name) != array.shape:
            self._check_dims(self.inputs[name], array)
            self._shapes[name] = array.shape
            self.same_plan = False
        self._replace(name, self._port(array))

    def _port(self, array: Array) -> Port:
        address = array.__array_interface__["data"][0]
        return Port(array, self._wraps.span(array, address), address)

    def _replace(self, name: str, port: Port) -> None:
        bound = self.read.get(name)
        if self._written and (port.place in self._written or (bound is not None and bound.place in self._written)):
            self.same_plan = False
        self.read[name] = port
        self.changes += 1

    def set_output(self, name: str, array: Array | None) -> None:
        """Write `name` into `array`, or into memory of ours."""
        bound = self.fixed.get(name)
        if array is None:
            if bound is not None:
                del self.fixed[name]
                self._outputs_changed()
            return
        if bound is not None and bound.array is array:
            return
        self._check(self.outputs, name, array)
        check_writable(self._where, name, array)
        self.fixed[name] = self._port(array)
        self._outputs_changed()

    def _outputs_changed(self) -> None:
        self._written = {port.place: name for name, port in self.fixed.items() if port.array.nbytes}
        self.same_plan = False
        self.changes += 1

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each input; BackendError when one is missing."""
        if lacking := self.inputs.keys() - self.read.keys():
            raise BackendError("an input is missing", where=self._where, found=f"none for {sorted(lacking)[0]}")
        return {name: self.read[name].array.shape for name in self.inputs}

    def shared(self) -> frozenset[tuple[str, str]]:
        """(output, input) pairs that are one memory."""
        written = self._written
        return frozenset((written[port.place], name) for name, port in self.read.items() if port.place in written)

    def make(self, shapes: Mapping[str, tuple[int, ...]], *, fresh: bool) -> None:
        """Memory of ours for outputs that are not the caller's, `fresh` on each run or kept between them."""
        for name, shape in shapes.items():
            if (fixed := self.fixed.get(name)) is not None:
                if fixed.array.shape != shape:
                    raise BackendError(
                        "the output has another shape", where=f"{self._where}: {name}", found=fixed.array.shape,
                        allowed=shape,
                    )  # fmt: skip
            elif fresh:
                self.made[name] = Port(*self._fresh[name].take(shape, self._dtypes[name]))
                self.changes += 1
            elif (made := self.made.get(name)) is None or made.array.shape != shape:
                self.made[name] = self._port(np.empty(shape, self._dtypes[name]))
                self.changes += 1

    def written(self, name: str) -> Port:
        """The memory of an output."""
        return self.fixed.get(name) or self.made[name]

    def carry(self, output: str, input: str) -> None:
        """An output becomes an input; where both are ours, two memories take turns."""
        port = self.written(output)
        if self._shapes.get(input) != port.array.shape:
            self._shapes[input] = port.array.shape
            self.same_plan = False
        if output not in self.fixed:
            spare = self._spare.get(output)
            if spare is None or spare.array.shape != port.array.shape:
                spare = self._port(np.empty(port.array.shape, port.array.dtype))
            self.made[output], self._spare[output] = spare, port
        self._replace(input, port)

    def forget(self) -> None:
        """Let go of inputs, and of outputs, which are the caller's from now on."""
        self.made.clear()
        self.read.clear()

    def no_port(self, name: str, ports: Mapping[str, TensorSpec]) -> BackendError:
        """The error for a name that is no port."""
        return BackendError("no such port", where=self._where, found=name, allowed=", ".join(ports))

    def _check(self, ports: Mapping[str, TensorSpec], name: str, array: Array) -> None:
        if name not in ports:
            raise self.no_port(name, ports)
        if array.dtype != self._dtypes[name] or not array.flags.c_contiguous:
            raise BackendError(
                "array does not fit the port", where=f"{self._where}: {name}",
                found=f"{array.dtype}, contiguous {array.flags.c_contiguous}",
                allowed=f"C-contiguous {ports[name].dtype}",
            )  # fmt: skip

    def _check_dims(self, spec: TensorSpec, array: Array) -> None:
        dims = spec.dims
        if array.ndim != len(dims) or any(
            isinstance(dim, int) and dim != size for dim, size in zip(dims, array.shape, strict=True)
        ):
            raise BackendError(
                "shape does not fit", where=f"{self._where}: {spec.name}", found=array.shape, allowed=dims
            )
