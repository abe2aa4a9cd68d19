# SPDX-License-Identifier: Apache-2.0
"""Any ONNX or ORT-format files in, their graphs as they are out, made fit for every target.

Nothing is known of what the graphs mean. Products of unsigned and signed bytes get unsigned weights: the same numbers,
and no x86 CPU saturates their sums; where signed ones are faster, lowering turns them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.compiler.importer.onnx import import_onnx, subgraphs
from dpfedge.compiler.importer.ort import import_ort, is_ort
from dpfedge.errors import ModelError

__all__ = ["import_graphs", "unsign_products"]

_PRODUCTS: Mapping[str, tuple[int, int, int]] = {
    "MatMulInteger": (0, 1, 3), "ConvInteger": (0, 1, 3), "MatMulIntegerToFloat": (0, 1, 5), "QLinearMatMul": (0, 3, 5),
    "QLinearConv": (0, 3, 5), "DynamicQuantizeMatMul": (0, 1, 3),
}  # fmt: skip
"""Operator → its inputs: left side, constant right side, the right side's zero point."""


def import_graphs(files: Mapping[str, Path]) -> dict[str, onnx.ModelProto]:
    """Graph name → model; ModelError names the file, and a graph without outputs."""
    graphs = {}
    for name, path in files.items():
        model = import_ort(path) if is_ort(path) else import_onnx(path)
        if not model.graph.output:
            raise ModelError("the graph has no output", where=str(path))
        unsign_products(model)
        graphs[name] = model
    return graphs


def unsign_products(model: onnx.ModelProto) -> int:
    """Give products of u8 activations and constant s8 weights u8 weights; how many were changed.

    Only where weights and zero point are constants that nothing else reads.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    uses = [name for graph in subgraphs(model.graph) for node in graph.node for name in node.input]
    done = 0
    for node in model.graph.node:
        places = _PRODUCTS.get(node.op_type)
        if places is None or len(node.input) <= places[1]:
            continue
        _, weight, zero = places
        names = [node.input[place] for place in (weight, zero) if place < len(node.input) and node.input[place]]
        if not all(_is_signed(constants.get(name)) and uses.count(name) == 1 for name in names):
            continue
        for name in names:
            tensor = constants[name]
            codes = (numpy_helper.to_array(tensor).view(np.uint8) ^ 128).astype(np.uint8)
            tensor.CopyFrom(numpy_helper.from_array(codes, name))
        if len(names) == 1:
            _add_zero(model.graph, node, zero)
        done += 1
    return done


def _is_signed(tensor: onnx.TensorProto | None) -> bool:
    return tensor is not None and tensor.data_type == onnx.TensorProto.INT8


def _add_zero(graph: onnx.GraphProto, node: onnx.NodeProto, place: int) -> None:
    """An absent zero point meant 0, which is 128 now."""
    name = f"{node.input[1] or node.output[0]}.zero_point"
    graph.initializer.append(numpy_helper.from_array(np.array(128, np.uint8), name))
    while len(node.input) <= place:
        node.input.append("")
    node.input[place] = name
