# SPDX-License-Identifier: Apache-2.0
"""Softmax and LogSoftmax along one axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfedge_opencl.ops.api import Emitting, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.halves import OfFloats, widened, writing
from dpfedge_opencl.ops.source import i32, kernel, launch, tensors

__all__ = ["Softmax"]


@op("Softmax", "LogSoftmax")
class Softmax(OfFloats):
    """exp(x - max) / sum; a row of -inf gives zeros over zero, NaN, as everywhere."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [(x.dtype, x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        axis = int(node.attrs.get("axis", -1)) % len(shape)
        inner = math.prod(shape[axis + 1 :])
        rows = math.prod(shape[:axis]) * inner
        made = kernel("rows", "softmax", to.facts, SOFTMAX=1, LOG=int(node.op == "LogSoftmax"))
        with writing(to, node.outputs[0]) as y:
            args = [*tensors((widened(to, node.inputs[0]), y)), i32(rows), i32(shape[axis]), i32(inner)]
            if rows and shape[axis]:
                launch(to, made, args, (rows,))
