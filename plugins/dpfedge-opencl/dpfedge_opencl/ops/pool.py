# SPDX-License-Identifier: Apache-2.0
"""MaxPool and AveragePool over windows in one and two dimensions; pools over all of an image are in reduce.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.halves import only_floats, widened, writing
from dpfedge_opencl.ops.source import i32, kernel, launch, tensors
from dpfedge_opencl.ops.windows import window

__all__ = ["Pool"]


@op("MaxPool", "AveragePool")
class Pool:
    """The largest or the mean of each window."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if any(node.outputs[1:]):
            return "indices"
        if len(node.attrs["kernel_shape"]) > 2:
            return f"{len(node.attrs['kernel_shape'])} dimensions; it takes 1 and 2"
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        found = window(node, x.shape[2:], ())
        return [(x.dtype, (*x.shape[:2], *found.result[4 - len(x.shape) :]))]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        found = window(node, shape[2:], ())
        rows = shape[0] * shape[1] * found.result[0]
        counted = int(node.attrs.get("count_include_pad", 0))
        made = kernel("pool", "pool", to.facts, MAX=int(node.op == "MaxPool"), PADDED=counted)
        numbers = (
            rows, *found.sizes, *found.result, *found.kernel, *found.strides, *found.dilations, *found.before,
            *found.after,
        )  # fmt: skip
        with writing(to, node.outputs[0]) as y:
            names = (widened(to, node.inputs[0]), y)
            if math.prod(to.value(node.outputs[0]).shape):
                launch(to, made, [*tensors(names), *(i32(one) for one in numbers)], (rows,))
