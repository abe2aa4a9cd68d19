# SPDX-License-Identifier: Apache-2.0
"""CumSum: sums along an axis, each row by one item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import Moving, axis_of, ints, need
from dpfedge_opencl.ops.text import C_TYPES
from dpfedge_opencl.plan import Kernel, Tensor

__all__ = ["CumSum"]


@op("CumSum")
class CumSum(Moving):
    """Sums of what stands before each element, with or without itself, from either end."""

    contents = (1,)

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Floats and integers."""
        return None if dtypes[0] in ("f32", "f16", "i32", "i64", "u32", "u64") else f"dtype {dtypes[0]}"

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        """The input's."""
        return [(need(inputs).dtype, need(inputs).shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        """An item for each row."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        if not math.prod(data.shape):
            return
        axis = axis_of((ints(to.value(node.inputs[1])) or [0])[0], len(data.shape))
        inner = math.prod(data.shape[axis + 1 :])
        rows = math.prod(data.shape[:axis]) * inner
        kernel = _kernel(data.dtype, bool(node.attrs.get("exclusive", 0)), bool(node.attrs.get("reverse", 0)))
        sizes = [np.uint32(size) for size in (data.shape[axis], inner)]
        to.launch(kernel, [Tensor(data.name), Tensor(out.name), *sizes], [rows], (1,) if to.facts.cpu else None)


@lru_cache(maxsize=32)
def _kernel(dtype: str, exclusive: bool, reverse: bool) -> Kernel:
    kind = C_TYPES[dtype]
    load, store = (
        ("vload_half(at, from)", "vstore_half(sum, at, to)") if dtype == "f16" else ("from[at]", "to[at] = sum")
    )
    total = "float" if dtype == "f16" else kind
    step = [f"{store};", f"sum += {load};"] if exclusive else [f"sum += {load};", f"{store};"]
    place = "size - 1 - i" if reverse else "i"
    source = f"""
__kernel void cumsum(__global uchar *from_base, const ulong from_at, __global uchar *to_base, const ulong to_at,
                     const uint size, const uint inner) {{
    __global const {kind} *from = (__global const {kind} *)(from_base + from_at);
    __global {kind} *to = (__global {kind} *)(to_base + to_at);
    const uint row = get_global_id(0);
    const ulong start = (ulong)(row / inner) * size * inner + row % inner;
    {total} sum = 0;
    for (uint i = 0; i < size; i++) {{
        const ulong at = start + (ulong)({place}) * inner;
        {step[0]}
        {step[1]}
    }}
}}
"""
    return Kernel("cumsum", source)
