# SPDX-License-Identifier: Apache-2.0
"""What our importers write behind products with blocks of 4 or 8 bits is folded into the product itself.

A format's minimum, and channels that are kept out of rounding, are a second, small product there: (x·S)·M, where S sums
x over its blocks. The kernel has both: zero points, which multiply exact sums of x, and `loud` channels.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.lower_onnx import Source
from dpfedge_opencl.ops.api import OPS, Node
from dpfedge_opencl.ops.nbits import BLOCKED
from dpfedge_opencl.partition import Where

__all__ = ["fold_blocks"]

_LOUD = 16


@dataclass(frozen=True, slots=True)
class _Sums:
    """What makes x·S: its nodes; the channels whose rows in S are more than plain sums, and what they have more."""

    nodes: tuple[Node, ...]
    channels: Array
    more: Array


def fold_blocks(source: Source, places: MutableMapping[str, Where], outputs: set[str]) -> None:
    """Fold where every node concerned is a kernel's; `source.nodes` changes, a folded node has its product's name."""
    makers = {out: node for node in source.nodes for out in node.outputs}
    users: dict[str, int] = {}
    for node in source.nodes:
        for one in node.inputs:
            users[one] = users.get(one, 0) + 1
    gone: set[int] = set()
    for place, gemm in enumerate(source.nodes):
        product = makers.get(gemm.inputs[2]) if gemm.op == "Gemm" and len(gemm.inputs) == 3 else None
        if product is None or product.op != BLOCKED or len(product.inputs) != 3 or users[product.outputs[0]] != 1:
            continue
        sums = _sums(source, makers, gemm, product)
        if sums is None or any(places[one.name] != "kernel" for one in (gemm, product, *sums.nodes)):
            continue
        made = _folded(source, gemm, product, sums)
        if made is None or outputs.intersection((product.outputs[0], *(one.outputs[0] for one in sums.nodes))):
            continue
        source.nodes[place] = made
        gone.add(id(product))
        for maker in sums.nodes:
            users[maker.outputs[0]] -= 1
            if users[maker.outputs[0]]:
                break
            gone.add(id(maker))
    source.nodes = [node for node in source.nodes if id(node) not in gone]


def _sums(source: Source, makers: Mapping[str, Node], gemm: Node, product: Node) -> _Sums | None:
    """The nodes that sum the product's input over its blocks for `gemm`, the last first; None for another pattern."""
    plain = all(float(gemm.attrs.get(key, 1.0)) == 1.0 for key in ("alpha", "beta")) and not gemm.attrs.get("transA")
    last = makers.get(gemm.inputs[0])
    if not plain or last is None:
        return None
    size = int(product.attrs["block_size"])
    blocks = int(product.attrs["K"]) // size
    if last.op == "MatMul" and last.inputs[0] == product.inputs[0]:
        matrix = source.constants.get(last.inputs[1])
        return None if matrix is None else _of_matrix(last, matrix, blocks, size)
    before = makers.get(last.inputs[0])
    axes = source.constants.get(last.inputs[1]) if len(last.inputs) > 1 else None
    if last.op != "ReduceSum" or last.attrs.get("keepdims", 1) or axes is None or axes.tolist() not in ([2], [-1]):
        return None
    sizes = source.constants.get(before.inputs[1]) if before is not None and before.op == "Reshape" else None
    if before is None or sizes is None or before.inputs[0] != product.inputs[0] or sizes.tolist()[1:] != [blocks, size]:
        return None
    return _Sums((last, before), np.zeros(0, np.int32), np.zeros((0, blocks), np.float32))


def _of_matrix(node: Node, matrix: Array, blocks: int, size: int) -> _Sums | None:
    """S as plain sums over blocks, and what a few channels have more; None where those are many or too many to take."""
    if matrix.ndim != 2 or matrix.shape[0] != blocks * size or matrix.shape[1] < blocks:
        return None
    more = matrix.astype(np.float32)
    more[np.arange(blocks * size), np.arange(blocks * size) // size] -= 1
    channels = np.flatnonzero(more.any(1)).astype(np.int32)
    most = _LOUD if getattr(OPS.get(BLOCKED), "loud", False) else 0
    return _Sums((node,), channels, more[channels]) if len(channels) <= most else None


def _folded(source: Source, gemm: Node, product: Node, sums: _Sums) -> Node | None:
    """The product with zero points and loud channels; None where a scale of 0 cannot hold an offset."""
    minimum, scales = source.constants.get(gemm.inputs[1]), source.constants.get(product.inputs[2])
    if minimum is None or scales is None:
        return None
    minimum = np.asarray(minimum.T if gemm.attrs.get("transB") else minimum, np.float32)
    scales = scales.reshape(minimum.shape[1], -1).astype(np.float32)
    offsets = minimum[: scales.shape[1]].T
    if ((scales == 0) & (offsets != 0)).any():
        return None
    middle = float(1 << (int(product.attrs.get("bits", 4)) - 1))
    zeros = middle - np.divide(offsets, scales, out=np.zeros_like(scales), where=scales != 0)
    inputs = [*product.inputs, _constant(source, f"{product.name}.zeros", zeros.astype(np.float32))]
    attrs = dict(product.attrs)
    if len(sums.channels):
        inputs += ["", "", _constant(source, f"{product.name}.channels", sums.channels)]
        inputs.append(_constant(source, f"{product.name}.loud", np.ascontiguousarray(sums.more @ minimum, np.float32)))
        attrs["loud"] = len(sums.channels)
    return replace(product, inputs=tuple(inputs), outputs=gemm.outputs, attrs=attrs)


def _constant(source: Source, name: str, array: Array) -> str:
    source.constants[name] = array
    source.dtypes[name] = "i32" if array.dtype.kind == "i" else "f32"
    return name
