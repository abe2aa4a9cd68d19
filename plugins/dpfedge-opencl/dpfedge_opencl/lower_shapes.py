# SPDX-License-Identifier: Apache-2.0
"""Shapes at compile time: the graph walked with two sets of made-up sizes, so that fusion knows which shapes are equal.

A value has no shape here where an operator refuses the sizes, or behind a part whose results' sizes only a run tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.tensors import TensorSpec, dtype_name
from dpfedge_opencl.graph import SEGMENT
from dpfedge_opencl.hostvalues import evaluate
from dpfedge_opencl.ops.api import OPS, Node, Value

__all__ = ["Shapes", "sample_shapes"]

_PRIMES = ((65, 67, 71, 73, 79, 83, 89, 97), (101, 103, 107, 109, 113, 127, 131, 137))
_STEP = 32  # what networks for pictures halve most often
Shapes = Mapping[str, tuple[tuple[int, ...], ...]]
"""Value → its shape with the first and with the second set of sizes."""


def sample_shapes(
    nodes: Sequence[Node], host: Set[str], inputs: Sequence[TensorSpec], constants: Mapping[str, Array]
) -> Shapes:
    """Shapes of every value that has one with both sets."""
    both = [_walk(nodes, host, inputs, constants, primes) for primes in _PRIMES]
    return {name: (one.shape, both[1][name].shape) for name, one in both[0].items() if name in both[1]}


def _walk(
    nodes: Sequence[Node], host: Set[str], inputs: Sequence[TensorSpec], constants: Mapping[str, Array],
    primes: Sequence[int],
) -> dict[str, Value]:  # fmt: skip
    sizes: dict[str, int] = {}
    values = {name: Value(name, dtype_name(array.dtype), array.shape, array) for name, array in constants.items()}
    for spec in inputs:
        for dim in spec.dims:
            if isinstance(dim, str):
                sizes.setdefault(dim, _STEP * primes[len(sizes) % len(primes)])
        values[spec.name] = Value(
            spec.name, spec.dtype, tuple(sizes[d] if isinstance(d, str) else d for d in spec.dims)
        )
    for node in nodes:
        _visit(node, node.name in host, values)
    return values


def _visit(node: Node, on_host: bool, values: dict[str, Value]) -> None:
    if node.op == SEGMENT:
        for op, name, inputs, outputs, attrs, host in node.attrs["inner"] or ():
            _visit(Node(op, name, tuple(inputs), tuple(outputs), attrs), host, values)
        return
    if any(one and one not in values for one in node.inputs):
        return
    given = [values[one] if one else None for one in node.inputs]
    try:
        if on_host:
            known = [None if one is None else one.known for one in given]
            with np.errstate(all="ignore"):
                found = evaluate(node.op, node.attrs, known, [() if one is None else one.shape for one in given])
            made: list[Value] = [Value("", dtype_name(array.dtype), array.shape, array) for array in found]
        else:
            made = [Value("", dtype, tuple(shape)) for dtype, shape in OPS[node.op].shape(node, given)]
    except (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError, AssertionError):
        return  # not with these sizes
    values.update((name, one) for name, one in zip(node.outputs, made, strict=False) if name)
