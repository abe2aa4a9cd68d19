# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's basic optimiser leaves: nodes of constants are computed, nodes that do the same become one.

It also folds what our importers write as a second, small product into the blocks' own offsets. Results stay the same
but for the order of sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpfedge.tensors import dtype_name
from dpfedge_opencl.hostvalues import GROWING, HOST, evaluate
from dpfedge_opencl.lower_onnx import Source
from dpfedge_opencl.ops.api import Node

__all__ = ["simplify"]

_FRESH = ("Random", "Multinomial", "Bernoulli", "Dropout")
_BLOCKS = "com.microsoft.MatMulNBits"


def simplify(source: Source, outputs: set[str]) -> None:
    """Change `source` in place; values in `outputs` keep their names."""
    _fold(source, outputs)
    _merge(source, outputs)
    _offsets(source, outputs)


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


def _offsets(source: Source, outputs: set[str]) -> None:
    """x·W + sums(x)·M, with W in blocks and sums over the same blocks, is a product whose blocks have offsets.

    The importer of block formats writes a format's minimum so; the product's zero points can hold it: (q - z)·s with
    z = 8 - M/s for 4 bits. The kernel multiplies them by sums of x itself, also where it rounds x.
    """
    makers = {out: node for node in source.nodes for out in node.outputs}
    users: dict[str, int] = {}
    for node in source.nodes:
        for one in node.inputs:
            users[one] = users.get(one, 0) + 1
    gone: set[str] = set()
    folded: list[Node] = []
    for place, gemm in enumerate(source.nodes):
        product = makers.get(gemm.inputs[2]) if gemm.op == "Gemm" and len(gemm.inputs) == 3 else None
        if product is None or product.op != _BLOCKS or len(product.inputs) != 3 or users[product.outputs[0]] != 1:
            continue
        sums = _sums_of_blocks(source, makers, gemm, product)
        zeros = None if sums is None else _zeros(source, gemm, product)
        if sums is None or zeros is None or outputs.intersection((product.outputs[0], *sums.outputs)):
            continue
        name = f"{product.name}.zeros"
        source.constants[name], source.dtypes[name] = zeros, "f32"
        made = replace(product, inputs=(*product.inputs, name), outputs=gemm.outputs)
        source.nodes[place] = made
        folded.append(made)
        gone.add(product.name)
        if users[sums.outputs[0]] == 1:
            gone.add(sums.name)
            reshape = makers[sums.inputs[0]]
            gone.update([reshape.name] if users[reshape.outputs[0]] == 1 else [])
        source.protos[made.name].output[0] = gemm.outputs[0]
    source.nodes = [node for node in source.nodes if node.name not in gone or node in folded]


def _sums_of_blocks(source: Source, makers: dict[str, Node], gemm: Node, product: Node) -> Node | None:
    """The node that sums the product's input over its blocks for `gemm`; None when the pattern is another."""
    sums = makers.get(gemm.inputs[0])
    plain = all(float(gemm.attrs.get(key, 1.0)) == 1.0 for key in ("alpha", "beta")) and not gemm.attrs.get("transA")
    if not plain or sums is None or sums.op != "ReduceSum" or sums.attrs.get("keepdims", 1):
        return None
    reshape = makers.get(sums.inputs[0])
    axes = source.constants.get(sums.inputs[1]) if len(sums.inputs) > 1 else None
    if reshape is None or reshape.op != "Reshape" or reshape.inputs[0] != product.inputs[0] or axes is None:
        return None
    sizes = source.constants.get(reshape.inputs[1])
    blocks = product.attrs["K"] // product.attrs["block_size"]
    if sizes is None or sizes.tolist()[1:] != [blocks, product.attrs["block_size"]] or axes.tolist() not in ([2], [-1]):
        return None
    return sums


def _zeros(source: Source, gemm: Node, product: Node) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    """f32 zero points [N, blocks]; None where a scale of 0 cannot hold them."""
    minimum, scales = source.constants.get(gemm.inputs[1]), source.constants.get(product.inputs[2])
    if minimum is None or scales is None:
        return None
    rows = minimum if gemm.attrs.get("transB") else minimum.T
    scales = scales.reshape(rows.shape).astype(np.float32)
    if ((scales == 0) & (rows != 0)).any():
        return None
    middle = float(1 << (int(product.attrs.get("bits", 4)) - 1))
    shifted = np.divide(rows, scales, out=np.zeros_like(scales), where=scales != 0)
    return np.asarray(middle - shifted, np.float32)
