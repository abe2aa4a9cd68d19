# SPDX-License-Identifier: Apache-2.0
"""RotaryEmbedding of `com.microsoft`: heads turned by their positions; inside of attention see attention.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.source import divided, i32, i64, kernel, launch, tensors

__all__ = ["RotaryEmbedding"]


@op("com.microsoft.RotaryEmbedding")
class RotaryEmbedding:
    """x [b, s, h·d] or [b, h, s, d]; positions [b, s], or one for the first token."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if node.attrs.get("is_packed_batching"):
            return "is_packed_batching"
        floats = dtypes[0] == dtypes[2] == dtypes[3] == "f32"
        return None if floats and dtypes[1] in ("i32", "i64") else f"dtypes {dtypes}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [("f32", x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        x, at, table = (to.value(name) for name in node.inputs[:3])
        wide = int(node.attrs.get("rotary_embedding_dim") or 2 * table.shape[-1])
        if len(x.shape) == 4:
            batch, heads, count, size = x.shape
            strides = (heads * count * size, size, count * size)
        else:
            batch, count, width = x.shape
            heads = int(node.attrs.get("num_heads") or width // wide)
            size = width // heads
            strides = (count * width, width, size)
        each = heads if to.facts.cpu else 1
        made = kernel(
            "attention", "turn_heads", to.facts, HEAD=4, V=1, POSITION="long" if at.dtype == "i64" else "int",
            INTERLEAVED=int(bool(node.attrs.get("interleaved"))),
        )  # fmt: skip
        numbers = [count, heads, batch, size, wide, table.shape[0], each, math.prod(at.shape)]
        arguments = [*tensors((*node.inputs, node.outputs[0])), *(i32(one) for one in numbers)]
        arguments += [i64(strides[0]), i32(strides[1]), i32(strides[2])]
        if math.prod(x.shape):
            launch(to, made, arguments, (count, divided(heads, each), batch), (8, 8, 1))
