# SPDX-License-Identifier: Apache-2.0
"""A compiled form of its own: an ONNX graph in, a plan as JSON out, and the plan run in NumPy.

Weights are addressed in the package's sections and never copied.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, GraphView, LoweredGraph, LowerRequest
from dpfedge.backend.host import HostExecutable
from dpfedge.errors import BackendError, Unsupported

__all__ = ["OPERATORS", "finish", "load", "lower"]

OPERATORS: Mapping[str, Callable[..., Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "MatMul": np.matmul,
    "Relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "Tanh": np.tanh,
    "Exp": np.exp,
}
_DTYPES = ("f32", "f16", "f64")


def lower(request: LowerRequest) -> LoweredGraph:
    """The nodes of the graph as steps of a plan."""
    from dpfedge.backend.onnx_graph import graph_ports, read_model, take_weights

    where = f"graph {request.name}"
    model = read_model(request.onnx, where)
    steps = [(node.op_type, [*node.input], [*node.output], node.domain) for node in model.graph.node]
    if unknown := sorted({op for op, _, _, domain in steps if domain or op not in OPERATORS}):
        raise Unsupported(
            "it has no such operators", where=where, found=", ".join(unknown), allowed=", ".join(OPERATORS)
        )
    inputs, outputs = graph_ports(model, where)
    if others := [spec.name for spec in (*inputs, *outputs) if spec.dtype not in _DTYPES]:
        raise Unsupported("it has no such dtype", where=f"{where}: {others[0]}", allowed=", ".join(_DTYPES))
    weights = take_weights(model, least=0)
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in weights.items()}
    plan = {"steps": [step[:3] for step in steps], "weights": shapes, "outputs": [spec.name for spec in outputs]}
    return LoweredGraph(json.dumps(plan, sort_keys=True).encode(), weights, inputs, outputs)


def finish(lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
    """Write each weight's place beside its dtype and shape."""
    plan = json.loads(lowered.code)
    for name, known in plan["weights"].items():
        if name not in places:
            raise BackendError("weight has no place", where="plan", found=name)
        known += places[name][:2]
    return json.dumps(plan, sort_keys=True).encode()


def load(graph: GraphView) -> HostExecutable:
    """Check the plan, view the weights, and keep both for runs."""
    where = f"graph {graph.name}"
    try:
        plan = json.loads(bytes(graph.code))
        steps = [(OPERATORS[op], tuple(inputs), outputs[0]) for op, inputs, outputs in plan["steps"]]
        weights = {name: _weight(graph.weights, *known) for name, known in plan["weights"].items()}
        results = [str(name) for name in plan["outputs"]]
    except (LookupError, TypeError, ValueError) as error:
        raise BackendError(
            "it is no plan of this backend", where=where, found=f"{type(error).__name__}: {error}"
        ) from error

    def compute(feeds: Mapping[str, Array]) -> Sequence[Any]:
        values = {**weights, **feeds}
        try:
            with np.errstate(all="ignore"):
                for operator, inputs, output in steps:
                    values[output] = operator(*(values[name] for name in inputs))
        except ValueError as error:
            raise BackendError("shapes do not fit one another", where=where, found=str(error)) from error
        return [values[name] for name in results]

    return HostExecutable(graph, compute)


def _weight(sections: Mapping[str, memoryview], dtype: str, shape: list[int], section: str, offset: int) -> Array:
    return np.frombuffer(sections[section], np.dtype(dtype), math.prod(shape), offset).reshape(shape)
