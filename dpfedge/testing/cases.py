# SPDX-License-Identifier: Apache-2.0
"""The operators a backend is asked for, one small graph for each with each dtype: a table in, models and feeds out.

It holds at least every operator of the demo packages as their importers write them. What is right is not known here.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dpfedge.backend.api import Array

__all__ = ["IR_VERSION", "OPSETS", "Case", "Op", "Spec", "cases", "typed", "values"]

OPSETS = (("", 20), ("com.microsoft", 1))
IR_VERSION = 10
_NUMPY = {"f32": "f4", "f16": "f2", "f64": "f8", "i8": "i1", "u8": "u1", "i32": "i4", "i64": "i8", "bool": "?"}
_TOLERANCE = {"f32": 1e-3, "f16": 1e-2, "f64": 1e-6}

Spec = tuple[int, ...] | Array


@dataclass(frozen=True, slots=True)
class Op:
    """One line of the table."""

    op: str
    """With its domain's last part before a slash where it is not the standard's: `microsoft/Gelu`."""
    inputs: Mapping[str, Spec]
    """Shapes to be filled with values of the case's dtype, or arrays; an empty one under `_` leaves an input out."""
    dtypes: str = "f32"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constant: Sequence[str] = ()
    """Inputs that are weights; arrays are weights, too, unless they stand in `fed`."""
    fed: Sequence[str] = ()
    outputs: int = 1
    tolerance: float = 0.0
    """Of the largest value; 0: what its dtype allows, nothing for integers."""
    title: str = ""
    low: float | None = None
    """The least value of floats, where the operator needs one."""


@dataclass(frozen=True)
class Case:
    """One operator with one dtype."""

    line: Op
    dtype: str

    @property
    def op(self) -> str:
        """The operator's name without its domain."""
        return self.line.op.rpartition("/")[2]

    @property
    def name(self) -> str:
        """`Conv/f32`, or `Conv-grouped/f32` for a line with a title."""
        return f"{self.op}{self.line.title and '-'}{self.line.title}/{self.dtype}"

    @property
    def tolerance(self) -> float:
        """Allowed difference as a share of the largest right value."""
        return self.line.tolerance or _TOLERANCE.get(self.dtype, 0.0)

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """Every input that is not left out; the same values on each run."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return {
            name: spec if isinstance(spec, np.ndarray) else values(random, spec, self.dtype, self.line.low)
            for name, spec in self.line.inputs.items()
            if not name.startswith("_")
        }

    @property
    def feeds(self) -> dict[str, Array]:
        """Inputs of a run."""
        return {name: array for name, array in self.arrays.items() if not self._is_constant(name)}

    def _is_constant(self, name: str) -> bool:
        given = isinstance(self.line.inputs[name], np.ndarray)
        return name in self.line.constant or (given and name not in self.line.fed)

    def model(self, outputs: Sequence[Array] | None = None) -> onnx.ModelProto:
        """The graph; its outputs have types once their values are given."""
        names = [f"out{index}" for index in range(self.line.outputs)]
        inputs = ["" if name.startswith("_") else name for name in self.line.inputs]
        domain = "com.microsoft" if "/" in self.line.op else ""
        node = helper.make_node(self.op, inputs, names, name="node", domain=domain, **self.line.attributes)
        weights = [
            numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            for name, array in self.arrays.items()
            if self._is_constant(name)
        ]
        ports = [_port(name, array) for name, array in self.feeds.items()]
        results = [helper.make_empty_tensor_value_info(name) for name in names]
        graph = helper.make_graph([node], self.name.replace("/", "-"), ports, results, weights)
        model = helper.make_model(
            graph, ir_version=IR_VERSION, opset_imports=[helper.make_opsetid(*opset) for opset in OPSETS]
        )
        return model if outputs is None else typed(model, outputs)


def typed(model: onnx.ModelProto, outputs: Sequence[Array]) -> onnx.ModelProto:
    """`model` with the dtypes and shapes of `outputs` on its outputs."""
    ports = [_port(value.name, array) for value, array in zip(model.graph.output, outputs, strict=True)]
    del model.graph.output[:]
    model.graph.output.extend(ports)
    return model


def _port(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))


def values(random: np.random.Generator, shape: Sequence[int], dtype: str, low: float | None = None) -> Array:
    """Values an operator is asked about: normal floats, or small integers."""
    kind = np.dtype(_NUMPY[dtype])
    if kind.kind == "f":
        found = random.standard_normal(shape)
        return np.asarray(found if low is None else np.abs(found) + low, kind)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(kind)
    least = -9 if kind.kind == "i" and low is None else int(low is not None)
    return random.integers(least, 10, shape).astype(kind)


def cases() -> Iterator[Case]:
    """Every case of the table."""
    from dpfedge.testing.operators import TABLE

    for line in TABLE:
        for dtype in line.dtypes.split():
            yield Case(line, dtype)
