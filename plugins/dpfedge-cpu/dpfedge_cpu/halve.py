# SPDX-License-Identifier: Apache-2.0
"""Products with weights kept in 16 bits, made products of 16-bit floats: a graph in, fewer bytes to read per run, out.

A package stores such weights with a cast to float32 behind them, which onnxruntime folds: the device would hold and
read twice the bytes. Sums stay in float32 inside the GPU's kernels; inputs and results are rounded to 16 bits, and
those beyond 65504 become infinite: who keeps weights in 16 bits says that the model has none (golden runs show it).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto, helper

from dpfedge_cpu.branches import graphs

__all__ = ["halve"]

_WEIGHT = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1, "Gather": 0}
"""Operators → which input is the weight."""
_ALSO = {"MatMul": (0,), "Gemm": (0, 2), "Conv": (0, 2), "ConvTranspose": (0, 2), "Gather": ()}
"""Operators → their other inputs of floats."""


def halve(model: onnx.ModelProto) -> int:
    """Rewrite the main graph's operators whose weight is a widened float16 constant; how many there were."""
    graph = model.graph
    halves = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT16}
    wide = {node.output[0]: node.input[0] for node in graph.node if _widens(node) and node.input[0] in halves}
    nodes: list[onnx.NodeProto] = []
    count = 0
    for node in graph.node:
        place = _WEIGHT.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if place is None or node.input[place] not in wide:
            nodes.append(node)
            continue
        count += 1
        nodes += _in_half(node, place, wide[node.input[place]])
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    read = {name for inner in graphs(graph) for node in inner.node for name in node.input}
    read |= {value.name for value in graph.output}
    unread = [node for node in graph.node if _widens(node) and node.output[0] not in read]
    for node in unread:
        graph.node.remove(node)
    return count


def _widens(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and any(one.name == "to" and one.i == TensorProto.FLOAT for one in node.attribute)


def _in_half(node: onnx.NodeProto, place: int, weight: str) -> Iterator[onnx.NodeProto]:
    """The node over 16-bit floats, with casts before and behind it."""
    node = onnx.NodeProto.FromString(node.SerializeToString())
    result = node.output[0]
    node.input[place] = weight
    for other in _ALSO[node.op_type]:
        if other < len(node.input) and node.input[other]:
            half = f"{result}.half.{other}"
            yield helper.make_node("Cast", [node.input[other]], [half], name=half, to=TensorProto.FLOAT16)
            node.input[other] = half
    node.output[0] = f"{result}.half"
    yield node
    yield helper.make_node("Cast", [node.output[0]], [result], name=result, to=TensorProto.FLOAT)
