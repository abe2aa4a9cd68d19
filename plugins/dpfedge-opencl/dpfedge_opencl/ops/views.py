# SPDX-License-Identifier: Apache-2.0
"""Operators that change the shape and no value: views, copied only where two ports of the graph would share memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfedge_opencl.ops.api import Emitting, Node, Value, op
from dpfedge_opencl.ops.base import Moving, axis_of, ints, need
from dpfedge_opencl.ops.copies import copy

__all__ = ["Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"]

_Shapes = Sequence[tuple[str, tuple[int, ...]]]


class _View(Moving):
    def emit(self, node: Node, to: Emitting) -> None:
        """Nothing, or a copy."""
        out = to.value(node.outputs[0])
        if not to.alias(out.name, node.inputs[0]):
            copy(to, node.inputs[0], out.name)


@op("Identity")
class Identity(_View):
    """The input."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The input's."""
        return [(need(inputs).dtype, need(inputs).shape)]


@op("Reshape")
class Reshape(_View):
    """Other sizes; 0 keeps one, -1 is what is left."""

    contents = (1,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The wanted sizes, filled in."""
        data = need(inputs)
        sizes = ints(need(inputs, 1)) or []
        if not node.attrs.get("allowzero", 0):
            sizes = [data.shape[index] if size == 0 else size for index, size in enumerate(sizes)]
        count = math.prod(data.shape)
        if -1 in sizes:
            rest = math.prod(size for size in sizes if size != -1)
            sizes[sizes.index(-1)] = count // rest if rest else 0
        if math.prod(sizes) != count:
            raise ValueError(f"{count} elements as {sizes}")
        return [(data.dtype, tuple(sizes))]


@op("Flatten")
class Flatten(_View):
    """Two axes."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The products before and from an axis."""
        data = need(inputs)
        axis = int(node.attrs.get("axis", 1))
        axis += len(data.shape) if axis < 0 else 0
        return [(data.dtype, (math.prod(data.shape[:axis]), math.prod(data.shape[axis:])))]


@op("Squeeze")
class Squeeze(_View):
    """Without axes of size 1."""

    contents = (1,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """All of them, or those named."""
        data = need(inputs)
        axes = ints(inputs[1] if len(inputs) > 1 else None)
        rank = len(data.shape)
        gone = {index for index, size in enumerate(data.shape) if size == 1}
        if axes is not None:
            asked = {axis_of(axis, rank) for axis in axes}
            if not asked <= gone:
                raise ValueError(f"axes {axes} of {list(data.shape)} are not all 1")
            gone = asked
        return [(data.dtype, tuple(size for index, size in enumerate(data.shape) if index not in gone))]


@op("Unsqueeze")
class Unsqueeze(_View):
    """With axes of size 1."""

    contents = (1,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """At the places of the result."""
        data = need(inputs)
        axes = ints(need(inputs, 1)) or []
        rank = len(data.shape) + len(axes)
        places = {axis_of(axis, rank) for axis in axes}
        rest = iter(data.shape)
        return [(data.dtype, tuple(1 if index in places else next(rest) for index in range(rank)))]
