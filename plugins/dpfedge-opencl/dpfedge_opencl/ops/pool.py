# SPDX-License-Identifier: Apache-2.0
"""MaxPool and AveragePool over windows in one and two dimensions; pools over all of an image are in reduce.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.halves import only_floats, widened, writing
from dpfedge_opencl.ops.source import divided, i32, kernel, launch, masked, tensors
from dpfedge_opencl.ops.windows import Window, window

__all__ = ["Pool"]

_ROWS = 8
"""Rows of an item."""
_TAPS = 25
"""Of a window, up to which a kernel of its own is made for the window's size."""


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
        largest, taps = node.op == "MaxPool", math.prod(found.kernel)
        whole = found.before == found.after == (0, 0) and not node.attrs.get("ceil_mode")
        if (largest or whole) and masked(to.facts) and found.strides[1] < 3 and taps <= _TAPS:
            self._wide(node, to, found, rows)
            return
        made = kernel("pool", "pool", to.facts, MAX=int(largest), PADDED=counted)
        numbers = (
            rows, *found.sizes, *found.result, *found.kernel, *found.strides, *found.dilations, *found.before,
            *found.after,
        )  # fmt: skip
        with writing(to, node.outputs[0]) as y:
            names = (widened(to, node.inputs[0]), y)
            if math.prod(to.value(node.outputs[0]).shape):
                launch(to, made, [*tensors(names), *(i32(one) for one in numbers)], (rows,))

    def _wide(self, node: Node, to: Emitting, found: Window, rows: int) -> None:
        """Vectors of columns, where lanes of a load can be left out."""
        made = kernel(
            "pool", "pool_wide", to.facts, MAX=int(node.op == "MaxPool"), PADDED=0, ROWS=_ROWS, KH=found.kernel[0],
            KW=found.kernel[1], SW=found.strides[1],
        )  # fmt: skip
        numbers = (rows, *found.sizes, *found.result, found.strides[0], *found.dilations, *found.before)
        with writing(to, node.outputs[0]) as y:
            names = (widened(to, node.inputs[0]), y)
            if math.prod(to.value(node.outputs[0]).shape):
                launch(to, made, [*tensors(names), *(i32(one) for one in numbers)], (divided(rows, _ROWS),))
