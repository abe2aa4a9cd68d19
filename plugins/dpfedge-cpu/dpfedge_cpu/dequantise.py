# SPDX-License-Identifier: Apache-2.0
"""Products over activations quantised while running, made products of floats: a graph in, the same function out.

A GPU's tensor cores multiply floats faster than a CPU's int8; what is lost is the smaller weights in the device's
memory. Rounding of activations goes, so results come nearer to the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dpfedge.backend.api import Array
from dpfedge_cpu.branches import rewrite

__all__ = ["dequantise"]

_MICROSOFT = "com.microsoft"


def dequantise(model: onnx.ModelProto) -> int:
    """Rewrite MatMulIntegerToFloat and DynamicQuantizeMatMul over constant weights; how many products there were."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    sources = {node.output[0]: node for node in graph.node if node.op_type == "DynamicQuantizeLinear"}
    made: dict[str, onnx.TensorProto] = {}
    return rewrite(
        graph, lambda node: _product(node, constants, sources, made) if node.domain == _MICROSOFT else (), made
    )


def _product(
    node: onnx.NodeProto,
    constants: dict[str, onnx.TensorProto],
    sources: dict[str, onnx.NodeProto],
    made: dict[str, onnx.TensorProto],
) -> Iterator[onnx.NodeProto]:
    """The nodes in a product's place; none where its weights are no constants."""
    names = [*node.input, *[""] * 7]
    if node.op_type == "DynamicQuantizeMatMul":
        source, weight, scale, zero, bias = names[:5]
        quantised = None
    elif node.op_type == "MatMulIntegerToFloat":
        quantised, weight, scale, zero, bias = names[0], names[1], names[3], names[5], names[6]
        origin = sources.get(quantised)
        own = origin is not None and names[2] == origin.output[1] and names[4] in ("", origin.output[2])
        source = origin.input[0] if origin is not None and own else ""
    else:
        return
    if any(name not in constants for name in (weight, scale)) or (zero and zero not in constants):
        return
    floats = f"{weight}.floats"
    if floats not in made:
        values = _floats(*(constants.get(name) for name in (weight, scale, zero)))
        made[floats] = numpy_helper.from_array(values, floats)
    target = node.output[0]
    if not source:
        source = f"{target}.floats"
        yield helper.make_node("DequantizeLinear", [str(quantised), names[2], *[names[4]][: bool(names[4])]], [source],
                               name=source)  # fmt: skip
    product = f"{target}.product" if bias else target
    yield helper.make_node("MatMul", [source, floats], [product], name=product)
    if bias:
        yield helper.make_node("Add", [product, bias], [target], name=target)


def _floats(weight: onnx.TensorProto | None, scale: onnx.TensorProto | None, zero: onnx.TensorProto | None) -> Array:
    """f32[k, n] of quantised weights; scale and zero are one number, or one for each column."""
    assert weight is not None
    assert scale is not None
    values = numpy_helper.to_array(weight).astype(np.float32)
    if zero is not None:
        values -= numpy_helper.to_array(zero).astype(np.float32)
    return np.ascontiguousarray(values * numpy_helper.to_array(scale).astype(np.float32))
