# SPDX-License-Identifier: Apache-2.0
"""Rows of quantised tables in ONNX's own operators: a graph in, the same function without GatherBlockQuantized out.

MIGraphX multiplies by quantised matrices (MatMulNBits) and has no operator that gathers their rows. Codes and scales
are gathered apart, so that the table stays small: 8-bit codes take a byte, and 4-bit ones become one when the package
is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from dpfedge_cpu.branches import rewrite
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.api import Array

__all__ = ["spell_out"]

_OP, _DOMAIN = "GatherBlockQuantized", "com.microsoft"


def spell_out(model: onnx.ModelProto) -> int:
    """Rewrite each GatherBlockQuantized over a constant table of u8 codes; how many there were."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    made: dict[str, onnx.TensorProto] = {}
    wanted = (_OP, _DOMAIN)
    return rewrite(
        graph, lambda node: _rows(node, constants, made) if (node.op_type, node.domain) == wanted else (), made
    )


def _rows(
    node: onnx.NodeProto, constants: dict[str, onnx.TensorProto], made: dict[str, onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """Gathered codes minus their zeros, times gathered scales, block by block; none where a form is not known."""
    values = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    bits, block = int(values.get("bits", 4)), int(values.get("block_size", 128))
    table, at, scales, zeros = [*node.input, ""][:4]
    codes, factors = constants.get(table), constants.get(scales)
    if codes is None or factors is None or codes.data_type != TensorProto.UINT8 or len(codes.dims) != 2 or zeros:
        return
    width, blocks = codes.dims[1] * 8 // bits, factors.dims[1]
    if values.get("gather_axis", 0) or values.get("quantize_axis", 1) not in (1, -1) or width != blocks * block:
        return
    out, kind = node.output[0], factors.data_type
    if bits != 8:
        made.setdefault(f"{table}.bytes", _tensor(f"{table}.bytes", _unpacked(numpy_helper.to_array(codes), bits)))
        table = f"{table}.bytes"
    shapes = {f"{out}.blocks": [-1, blocks, block], f"{out}.factors": [-1, blocks, 1]}
    made |= {name: _tensor(name, np.array(shape, np.int64)) for name, shape in shapes.items()}
    zero = np.array(1 << bits - 1, helper.tensor_dtype_to_np_dtype(kind))
    made[f"{out}.zero"] = _tensor(f"{out}.zero", zero)
    yield _node("Gather", [table, at], f"{out}.codes")
    yield _node("Cast", [f"{out}.codes"], f"{out}.numbers", to=kind)
    yield _node("Sub", [f"{out}.numbers", f"{out}.zero"], f"{out}.signed")
    yield _node("Reshape", [f"{out}.signed", f"{out}.blocks"], f"{out}.parts")
    yield _node("Gather", [scales, at], f"{out}.scales")
    yield _node("Reshape", [f"{out}.scales", f"{out}.factors"], f"{out}.scale")
    yield _node("Mul", [f"{out}.parts", f"{out}.scale"], f"{out}.scaled")
    yield _node("Shape", [f"{out}.codes"], f"{out}.shape")
    yield _node("Reshape", [f"{out}.scaled", f"{out}.shape"], out)


def _unpacked(codes: Array, bits: int) -> Array:
    """Codes of `bits` bits, the first in the lowest, as bytes."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts: Array = (codes[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(len(codes), -1)


def _tensor(name: str, values: Array) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name)


def _node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [output], name=output, **attributes)
