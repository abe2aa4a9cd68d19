# SPDX-License-Identifier: Apache-2.0
"""Operators that change the order or the extent of values: views where memory allows, else walks with steps.

Transpose, Slice, Split, Concat, Expand; Pad with a constant, Tile and ConstantOfShape. Indices are in `index.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.hostvalues import numpy_dtype
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import Moving, axis_of, contiguous, have, ints, need
from dpfedge_opencl.ops.copies import copy
from dpfedge_opencl.ops.fill import fill
from dpfedge_opencl.ops.strided import move
from dpfedge_opencl.ops.table import pad_table, pick

__all__ = ["Concat", "Expand", "Heads", "Pad", "Slice", "Split", "Tile", "Transpose"]

_Shapes = Sequence[tuple[str, tuple[int, ...]]]


def _view(to: Emitting, node: Node, output: int, start: int, sizes: Sequence[int], steps: Sequence[int]) -> bool:
    """Make an output a view of input 0 where its elements lie one behind the other there."""
    name = node.outputs[output]
    value = to.value(name)
    whole = all(size == 1 or step == at for size, step, at in zip(sizes, steps, contiguous(sizes), strict=True))
    return whole and to.alias(name, node.inputs[0], start * DTYPE_BYTES[value.dtype])


@op("Transpose")
class Transpose(Moving):
    """A view where only axes of size 1 change places."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The sizes in another order."""
        data = need(inputs)
        return [(data.dtype, tuple(data.shape[axis] for axis in self._order(node, data)))]

    def _order(self, node: Node, data: Value) -> Sequence[int]:
        found = node.attrs.get("perm") or list(reversed(range(len(data.shape))))
        if sorted(found) != list(range(len(data.shape))):
            raise ValueError(f"perm {found} of {len(data.shape)} axes")
        return list(found)

    def emit(self, node: Node, to: Emitting) -> None:
        """A walk in the order of the result."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        whole = contiguous(data.shape)
        steps = [whole[axis] for axis in self._order(node, data)]
        if not _view(to, node, 0, 0, out.shape, steps):
            move(to, data.name, out.name, out.dtype, out.shape, steps, contiguous(out.shape))


@op("Heads")
class Heads(Moving):
    """A part of the last axis as several axes, in another order: how one product of several projections is parted.

    Attributes: `start` of the part, its `sizes`, and `perm` of all axes. Fusion makes it (`fuse_parts`).
    """

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The sizes in another order."""
        data = need(inputs)
        if node.attrs["start"] + math.prod(node.attrs["sizes"]) > data.shape[-1]:
            raise ValueError(f"a part from {node.attrs['start']} of {data.shape[-1]}")
        sizes = (*data.shape[:-1], *node.attrs["sizes"])
        return [(data.dtype, tuple(sizes[axis] for axis in node.attrs["perm"]))]

    def emit(self, node: Node, to: Emitting) -> None:
        """A walk in the order of the result."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        whole = (*contiguous(data.shape)[:-1], *contiguous(node.attrs["sizes"]))
        steps = [whole[axis] for axis in node.attrs["perm"]]
        if not _view(to, node, 0, node.attrs["start"], out.shape, steps):
            move(to, data.name, out.name, out.dtype, out.shape, steps, contiguous(out.shape), node.attrs["start"])


@op("Slice")
class Slice(Moving):
    """Parts along axes, forwards or backwards."""

    contents = (1, 2, 3, 4)

    def _ranges(self, data: Value, parts: Sequence[Value | None]) -> list[tuple[int, int, int]]:
        """(start, step, count) for each axis."""
        starts, ends, axes, steps = (ints(one) for one in parts)
        if starts is None or ends is None:
            raise ValueError("a slice needs starts and ends")
        axes = list(range(len(starts))) if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
        found = [(0, 1, size) for size in data.shape]
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            place = axis_of(axis, len(data.shape))
            size = data.shape[place]
            stop: int | None = end
            if step < 0 and end < -size:
                stop = None
            first, last, step = slice(start, stop, step).indices(size)
            found[place] = (first, step, max(0, -(-(last - first) // step)))
        return found

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The counts."""
        data = need(inputs)
        parts = [inputs[at] if at < len(inputs) else None for at in range(1, 5)]
        return [(data.dtype, tuple(count for _, _, count in self._ranges(data, parts)))]

    def emit(self, node: Node, to: Emitting) -> None:
        """A view where the part lies in one piece."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        parts = [to.value(name) if (name := have(node, at)) else None for at in range(1, 5)]
        ranges, whole = self._ranges(data, parts), contiguous(data.shape)
        start = sum(first * step for (first, _, _), step in zip(ranges, whole, strict=True))
        steps = [step * size for (_, step, _), size in zip(ranges, whole, strict=True)]
        if not _view(to, node, 0, start, out.shape, steps):
            move(to, data.name, out.name, out.dtype, out.shape, steps, contiguous(out.shape), start)


@op("Split")
class Split(Moving):
    """Parts along one axis: views where it is the outermost that counts."""

    contents = (1,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """One for each output."""
        data = need(inputs)
        axis = axis_of(node.attrs.get("axis", 0), len(data.shape))
        sizes = ints(inputs[1] if len(inputs) > 1 else None)
        if sizes is None:
            each = -(-data.shape[axis] // len(node.outputs))
            sizes = [max(0, min(each, data.shape[axis] - each * index)) for index in range(len(node.outputs))]
        if sum(sizes) != data.shape[axis] or len(sizes) < len(node.outputs):
            raise ValueError(f"parts {sizes} of {data.shape[axis]}")
        return [(data.dtype, (*data.shape[:axis], size, *data.shape[axis + 1 :])) for size in sizes]

    def emit(self, node: Node, to: Emitting) -> None:
        """A walk for each part that is no view."""
        data = to.value(node.inputs[0])
        axis = axis_of(node.attrs.get("axis", 0), len(data.shape))
        whole, start = contiguous(data.shape), 0
        for index, name in enumerate(node.outputs):
            if name:
                out = to.value(name)
                if not _view(to, node, index, start, out.shape, whole):
                    move(to, data.name, name, out.dtype, out.shape, whole, contiguous(out.shape), start)
                start += out.shape[axis] * whole[axis]


@op("Concat")
class Concat(Moving):
    """Every input is laid into its part of the result."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Of one dtype."""
        return super().supports(node, dtypes, lowering)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The sum along the axis."""
        first = need(inputs)
        axis = axis_of(node.attrs["axis"], len(first.shape))
        sizes = [need(inputs, index).shape for index in range(len(inputs))]
        if any(len(one) != len(first.shape) for one in sizes):
            raise ValueError("inputs of different rank")
        return [(first.dtype, (*first.shape[:axis], sum(one[axis] for one in sizes), *first.shape[axis + 1 :]))]

    def emit(self, node: Node, to: Emitting) -> None:
        """One walk for each input that was not written to its place at once."""
        out = to.value(node.outputs[0])
        axis = axis_of(node.attrs["axis"], len(out.shape))
        whole, start = contiguous(out.shape), 0
        apart = math.prod(out.shape[:axis]) == 1
        for name in node.inputs:
            part = to.value(name)
            if apart and to.within(out.name, name, start * DTYPE_BYTES[out.dtype]):
                start += part.shape[axis] * whole[axis]
                continue
            move(to, name, out.name, out.dtype, part.shape, contiguous(part.shape), whole, 0, start)
            start += part.shape[axis] * whole[axis]


@op("Expand")
class Expand(Moving):
    """Values repeated along axes of size 1."""

    contents = (1,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """What both broadcast to."""
        data = need(inputs)
        sizes = np.broadcast_shapes(data.shape, tuple(ints(need(inputs, 1)) or ()))
        return [(data.dtype, tuple(int(size) for size in sizes))]

    def emit(self, node: Node, to: Emitting) -> None:
        """Steps of 0; a view where nothing is repeated."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        shape = (1,) * (len(out.shape) - len(data.shape)) + data.shape
        steps = [0 if size == 1 else step for size, step in zip(shape, contiguous(shape), strict=True)]
        if shape == out.shape and to.alias(out.name, data.name):
            return
        move(to, data.name, out.name, out.dtype, out.shape, steps, contiguous(out.shape))


@op("Tile")
class Tile(Moving):
    """The whole repeated along each axis."""

    contents = (1,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """Sizes times repeats."""
        data = need(inputs)
        times = ints(need(inputs, 1)) or []
        return [(data.dtype, tuple(size * count for size, count in zip(data.shape, times, strict=True)))]

    def emit(self, node: Node, to: Emitting) -> None:
        """Each axis as two, of which the outer does not move."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        if data.shape == out.shape and to.alias(out.name, data.name):
            return
        sizes: list[int] = []
        steps: list[int] = []
        for size, whole, step in zip(data.shape, out.shape, contiguous(data.shape), strict=True):
            sizes += [whole // size if size else 0, size]
            steps += [0, step]
        move(to, data.name, out.name, out.dtype, sizes, steps, contiguous(sizes))


@op("Pad")
class Pad(Moving):
    """Values around: a constant, or those inside, mirrored or repeated. Negative pads cut."""

    contents = (1, 3)

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """A value that is computed is read on the device only for constants of the graph."""
        value = have(node, 2)
        if value and lowering.weight(value) is None:
            return "its value is computed"
        return super().supports(node, dtypes, lowering)

    def _pads(self, data: Value, pads: Value | None, axes: Value | None) -> list[tuple[int, int]]:
        found = ints(pads) or []
        places = ints(axes)
        places = list(range(len(data.shape))) if places is None else places
        both = [(0, 0)] * len(data.shape)
        for index, axis in enumerate(places):
            both[axis_of(axis, len(data.shape))] = (found[index], found[index + len(places)])
        return both

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """Sizes with pads."""
        data = need(inputs)
        pads = self._pads(data, need(inputs, 1), inputs[3] if len(inputs) > 3 else None)
        return [(data.dtype, tuple(size + sum(both) for size, both in zip(data.shape, pads, strict=True)))]

    def emit(self, node: Node, to: Emitting) -> None:
        """A fill and a walk for a constant; a table of places for the rest."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        pads = self._pads(data, to.value(node.inputs[1]), to.value(one) if (one := have(node, 3)) else None)
        if not any(any(both) for both in pads) and to.alias(out.name, data.name):
            return
        mode = node.attrs.get("mode", "constant")
        if mode != "constant":
            tables = [pad_table(size, both, mode) for size, both in zip(data.shape, pads, strict=True)]
            pick(to, data.name, out.name, tables, data.shape)
            return
        value = to.value(one).known if (one := have(node, 2)) else None
        fill(to, out.name, 0 if value is None else value.reshape(-1)[0].item())
        cut = [max(0, -before) for before, _ in pads]
        put = [max(0, before) for before, _ in pads]
        sizes = [max(0, size + min(0, both[0]) + min(0, both[1])) for size, both in zip(data.shape, pads, strict=True)]
        steps, whole = contiguous(data.shape), contiguous(out.shape)
        start, target = _dot(cut, steps), _dot(put, whole)
        move(to, data.name, out.name, out.dtype, sizes, steps, whole, start, target)


def _dot(first: Sequence[int], second: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(first, second, strict=True))


@op("ConstantOfShape")
class ConstantOfShape(Moving):
    """One value everywhere."""

    contents = (0,)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """What its input says."""
        return [(node.attrs.get("dtype", "f32"), tuple(ints(need(inputs)) or ()))]

    def emit(self, node: Node, to: Emitting) -> None:
        """A fill."""
        fill(to, node.outputs[0], node.attrs.get("value", 0))


@op("Range")
class Range(Moving):
    """Numbers with a step; the host writes them, as it knows their count anyway."""

    contents = (0, 1, 2)

    def _numbers(self, parts: Sequence[Value]) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        start, limit, delta = (one.known for one in parts)
        if start is None or limit is None or delta is None:
            raise ValueError("its count is not known before a run")
        ends = [one.reshape(-1)[0].item() for one in (start, limit, delta)]
        return np.arange(*ends, dtype=numpy_dtype(parts[0].dtype))

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The count."""
        parts = [need(inputs, index) for index in range(3)]
        return [(parts[0].dtype, self._numbers(parts).shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        """A copy of the host's numbers."""
        numbers = self._numbers([to.value(name) for name in node.inputs])
        name = to.constant(numbers)
        if not to.alias(node.outputs[0], name):
            copy(to, name, node.outputs[0])
