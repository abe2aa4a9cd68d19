# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's basic optimiser leaves: nodes of constants are computed, nodes that do the same become one.

Results stay the same.
"""

from __future__ import annotations

import numpy as np

from dpfedge.tensors import dtype_name
from dpfedge_opencl.hostvalues import GROWING, HOST, evaluate
from dpfedge_opencl.lower_onnx import Source
from dpfedge_opencl.ops.api import Node

__all__ = ["simplify"]

_FRESH = ("Random", "Multinomial", "Bernoulli", "Dropout")


def simplify(source: Source, outputs: set[str]) -> None:
    """Change `source` in place; values in `outputs` keep their names."""
    _fold(source, outputs)
    _merge(source, outputs)


def _fold(source: Source, outputs: set[str]) -> None:
    left = []
    for node in source.nodes:
        known = node.op in HOST and node.op not in GROWING and node.inputs
        if (
            not known
            or outputs.intersection(node.outputs)
            or any(one and one not in source.constants for one in node.inputs)
        ):
            left.append(node)
            continue
        inputs = [source.constants[one] if one else None for one in node.inputs]
        shapes = [() if one is None else one.shape for one in inputs]
        for name, array in zip(node.outputs, evaluate(node.op, node.attrs, inputs, shapes), strict=False):
            source.constants[name] = np.ascontiguousarray(array).reshape(array.shape)
            source.dtypes[name] = dtype_name(array.dtype)
    source.nodes = left


def _merge(source: Source, outputs: set[str]) -> None:
    """One node for all that have the same operator, inputs and attributes."""
    seen: dict[str, Node] = {}
    names: dict[str, str] = {}
    captured = {one for node in source.nodes if _branches(node) for one in node.inputs}
    left = []
    for node in source.nodes:
        _rename(source, node, names)
        key = f"{node.op} {node.inputs} {sorted(node.attrs.items(), key=lambda one: one[0])} {len(node.outputs)}"
        first = seen.get(key)
        fixed = outputs.intersection(node.outputs) or captured.intersection(node.outputs)
        if first is None or fixed or _branches(node) or node.op.startswith(_FRESH):
            seen.setdefault(key, node)
            left.append(node)
            continue
        names.update(zip(node.outputs, first.outputs, strict=True))
    source.nodes = left


def _branches(node: Node) -> bool:
    return "graph" in node.attrs.values()


def _rename(source: Source, node: Node, names: dict[str, str]) -> None:
    if _branches(node) or not any(one in names for one in node.inputs):
        return
    node.inputs = tuple(names.get(one, one) for one in node.inputs)
    proto = source.protos[node.name]
    for place, one in enumerate(proto.input):
        if one in names:
            proto.input[place] = names[one]
