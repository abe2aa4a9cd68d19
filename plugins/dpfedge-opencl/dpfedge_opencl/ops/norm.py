# SPDX-License-Identifier: Apache-2.0
"""Layer, root-mean-square, skip, instance and batch normalisation: a work item for each row, or each channel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import have, need
from dpfedge_opencl.ops.halves import only_floats, widened, widened_weight, writing
from dpfedge_opencl.ops.source import i32, kernel, launch, tensors

__all__ = ["BatchNorm", "InstanceNorm", "LayerNorm", "SkipNorm"]


def _widen_all(node: Node, lowering: Lowering) -> None:
    for index in range(1, len(node.inputs)):
        widened_weight(node, lowering, index)


def _normalise(to: Emitting, names: dict[str, str], size: tuple[int, int], epsilon: float, **options: int) -> None:
    """`names`: x, skip, bias, scale, shift, total, y; absent ones are not read."""
    made = kernel("rows", "norm", to.facts, **{"SKIP": 0, "SUMMED": 0, "SHIFT": 0, "PER_ROW": 0, **options})
    order = ("x", "skip", "bias", "scale", "shift", "total", "y")
    arguments = tensors([names.get(role) or names["x"] for role in order])
    channels = i32(names.get("channels", "1"))
    if size[0] and size[1]:
        launch(to, made, [*arguments, *(i32(one) for one in size), np.float32(epsilon), channels], (size[0],))


@op("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
class LayerNorm:
    """Over the last axes from `axis` on; the simplified form divides by the root mean square."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if any(node.outputs[1:]):
            return "outputs for training"
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        _widen_all(node, lowering)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [(x.dtype, x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        axis = int(node.attrs.get("axis", -1)) % len(shape)
        size = (math.prod(shape[:axis]), math.prod(shape[axis:]))
        x, scale, shift = (widened(to, have(node, index)) for index in range(3))
        with writing(to, node.outputs[0]) as y:
            names = {"x": x, "scale": scale, "shift": shift, "y": y}
            epsilon = float(node.attrs.get("epsilon", 1e-5))
            _normalise(to, names, size, epsilon, CENTRED=int(node.op == "LayerNormalization"), SHIFT=int(bool(shift)))


@op("com.microsoft.SkipLayerNormalization", "com.microsoft.SkipSimplifiedLayerNormalization")
class SkipNorm:
    """A norm of x + skip + bias, and that sum as the fourth output."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if any(node.outputs[1:3]):
            return "outputs for training"
        return None if all(one in ("", "f32") for one in dtypes) else f"dtypes {dtypes}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        full = ("f32", x.shape)
        return [full, ("f32", (0,)), ("f32", (0,)), full][: len(node.outputs)]

    def emit(self, node: Node, to: Emitting) -> None:
        simple = node.op.endswith("SkipSimplifiedLayerNormalization")
        bias, shift = (have(node, 3), "") if simple else (have(node, 4), have(node, 3))
        total = node.outputs[3] if len(node.outputs) > 3 else ""
        shape = to.value(node.inputs[0]).shape
        skip = to.value(node.inputs[1])
        names = {"x": node.inputs[0], "skip": node.inputs[1], "bias": bias, "scale": node.inputs[2], "shift": shift}
        if math.prod(skip.shape) != math.prod(shape):  # one skip for every row of a batch
            names["skip"] = _repeated(to, node.inputs[1], math.prod(skip.shape), math.prod(shape))
        names |= {"total": total, "y": node.outputs[0]}
        _normalise(
            to, names, (math.prod(shape[:-1]), shape[-1]), float(node.attrs.get("epsilon", 1e-12)),
            CENTRED=int(not simple), SKIP=2 if bias else 1, SUMMED=int(bool(total)), SHIFT=int(bool(shift)),
        )  # fmt: skip


def _repeated(to: Emitting, name: str, count: int, total: int) -> str:
    made = kernel("pack", "repeat", to.facts, ROWS=1, WIDTH=1)
    space = to.scratch("f32", (total,))
    launch(to, made, [*tensors((name, space)), i32(count), i32(total // count)], (total // count,))
    return space


@op("InstanceNormalization")
class InstanceNorm:
    """Each channel of each example by itself."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        _widen_all(node, lowering)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [(x.dtype, x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        x, scale, shift = (widened(to, name) for name in node.inputs)
        with writing(to, node.outputs[0]) as y:
            names = {"x": x, "scale": scale, "shift": shift, "y": y, "channels": str(shape[1])}
            size = (shape[0] * shape[1], math.prod(shape[2:]))
            _normalise(to, names, size, float(node.attrs.get("epsilon", 1e-5)), CENTRED=1, PER_ROW=1, SHIFT=1)


@op("BatchNormalization")
class BatchNorm:
    """As it is used: one factor and one addend for each channel, made when the graph is lowered."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if node.attrs.get("training_mode") or any(node.outputs[1:]):
            return "training mode"
        if any(lowering.weight(name) is None for name in node.inputs[1:]):
            return "computed statistics"
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        found = [lowering.weight(name) for name in node.inputs[1:5]]
        scale, shift, mean, var = (np.asarray(one, np.float64) for one in found)
        factor = scale / np.sqrt(var + float(node.attrs.get("epsilon", 1e-5)))
        names = [
            lowering.add(node, role, values.astype(np.float32))
            for role, values in (("factor", factor), ("addend", shift - mean * factor))
        ]
        node.inputs = (node.inputs[0], *names)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [(x.dtype, x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        made = kernel("rows", "per_channel", to.facts, CENTRED=0, SKIP=0, SUMMED=0, SHIFT=0, PER_ROW=0)
        channels = shape[1] if len(shape) > 1 else 1
        size = (shape[0] * channels, math.prod(shape[2:]), channels)
        if len(shape) == 2:  # rows of channels: each element is a row of one
            size = (math.prod(shape), 1, channels)
        with writing(to, node.outputs[0]) as y:
            names = (widened(to, node.inputs[0]), *node.inputs[1:], y)
            if size[0] and size[1]:
                launch(to, made, [*tensors(names), *(i32(one) for one in size)], (size[0],))
