# SPDX-License-Identifier: Apache-2.0
"""ConvTranspose in one and two dimensions, without dilation: an output phase for each offset modulo the stride.

Each phase is a convolution of the input (conv.cl, PHASED) whose taps are every stride-th of the kernel's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.conv import channels_of_tile, over, pack_taps, planes, positions_of_tile
from dpfedge_opencl.ops.halves import arithmetic, only_floats, stored, widened, widened_weight, writing
from dpfedge_opencl.ops.source import divided, epilogue_options, i32, kernel, launch, tensors, vector

__all__ = ["ConvTranspose"]


def _two(values: Sequence[int], fill: int) -> tuple[int, int]:
    return (fill, int(values[0])) if len(values) == 1 else (int(values[0]), int(values[1]))


def _phases(weights: Array, groups: int, strides: tuple[int, int]) -> tuple[Array, tuple[int, int]]:
    """[in, out / groups, kh, kw] as [phase · group, out, in, tap] and the taps of a phase in both directions."""
    channels, out, *sizes = weights.shape
    kh, kw = _two(sizes, 1)
    taps = (divided(kh, strides[0]), divided(kw, strides[1]))
    whole = np.zeros((groups, channels // groups, out, taps[0] * strides[0], taps[1] * strides[1]), np.float32)
    whole[..., :kh, :kw] = weights.reshape(groups, channels // groups, out, kh, kw)
    parts = whole.reshape(groups, channels // groups, out, taps[0], strides[0], taps[1], strides[1])
    ordered = parts.transpose(4, 6, 0, 2, 1, 3, 5)  # phase h, phase w, group, out, in, tap h, tap w
    return ordered.reshape(-1, out, channels // groups, taps[0] * taps[1]), taps


@op("ConvTranspose")
class ConvTranspose:
    """Transposed convolution with constant weights."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        weights = lowering.weight(node.inputs[1])
        if weights is None or weights.ndim not in (3, 4):
            return "computed weights, or more than two dimensions"
        if any(one != 1 for one in node.attrs.get("dilations") or ()):
            return f"dilations {node.attrs['dilations']}; it takes 1"
        if str(node.attrs.get("auto_pad") or "NOTSET") != "NOTSET" or node.attrs.get("output_shape"):
            return "auto_pad, output_shape"
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        for index in range(1, len(node.inputs)):
            widened_weight(node, lowering, index)
        weights = lowering.weight(node.inputs[1])
        assert weights is not None
        rank, groups = weights.ndim - 2, int(node.attrs.get("group", 1))
        strides = _two(node.attrs.get("strides") or [1] * rank, 1)
        split, taps = _phases(weights, groups, strides)
        rows = channels_of_tile(lowering.arch, weights.shape[1])
        node.inputs = (
            node.inputs[0],
            lowering.add(node, "taps", stored(pack_taps(split, rows), lowering.features)),
            *node.inputs[2:],
        )
        pads = [int(one) for one in node.attrs.get("pads") or [0] * (2 * rank)]
        more = _two(node.attrs.get("output_padding") or [0] * rank, 0)
        before, after = _two(pads[:rank], 0), _two(pads[rank:], 0)
        kernel_size = _two(weights.shape[2:], 1)
        node.attrs.update(
            group=groups, channels=weights.shape[1] * groups, rows=rows, taps=list(taps), strides=list(strides),
            before=list(before), grow=[kernel_size[i] - before[i] - after[i] + more[i] for i in (0, 1)],
        )  # fmt: skip

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        sizes = _two(x.shape[2:], 1)
        grown = tuple((sizes[i] - 1) * node.attrs["strides"][i] + node.attrs["grow"][i] for i in (0, 1))
        return [(x.dtype, (x.shape[0], node.attrs["channels"], *grown[4 - len(x.shape) :]))]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        result = _two(to.value(node.outputs[0]).shape[2:], 1)
        biased = len(node.inputs) > 2 and bool(node.inputs[2])
        with writing(to, node.outputs[0]) as output:
            x = widened(to, node.inputs[0])
            _spread_out(to, node, shape, result, (x, node.inputs[1], node.inputs[2] if biased else x, output), biased)


def _spread_out(
    to: Emitting, node: Node, shape: tuple[int, ...], result: tuple[int, int], names: tuple[str, ...], biased: bool
) -> None:
    groups, rows, lanes = node.attrs["group"], node.attrs["rows"], vector(to.facts)
    (sh, sw), (jh, jw), (top, left) = node.attrs["strides"], node.attrs["taps"], node.attrs["before"]
    high, wide = divided(result[0] + top, sh), divided(result[1] + left, sw)
    grid = (high + jh - 1, wide + jw - 1)
    count, out = (high - 1) * grid[1] + wide, node.attrs["channels"] // groups
    tile, across = (
        positions_of_tile(to.facts, rows, lanes, count, shape[1] // groups * jh * jw) * lanes,
        int(out * jh * jw > count),
    )
    read = planes(to, names[0], shape[0] * shape[1], _two(shape[2:], 1), (jh - 1, jw - 1), grid, (1, 1), tile)
    made = kernel(
        "conv", "conv", to.facts, BIAS=int(biased), MR=rows, NR=tile // lanes, V=lanes, PHASED=1,
        **arithmetic(to.facts, to.value(names[1])),
        **epilogue_options(node, "channel", lanes),
    )  # fmt: skip
    numbers = (
        groups, out, shape[1] // groups, read.plane, read.row, *result, jh, jw, -1, -1, 1, 1, read.phase,
        (jh - 1) * read.row + jw - 1, count, 0, sh, sw, top, left, across,
    )  # fmt: skip
    sizes = over(across, divided(out, rows), divided(count, tile), shape[0] * groups * sh * sw)
    args = [*tensors((read.name, *names[1:])), *(i32(one) for one in numbers)]
    work = shape[0] * shape[1] * count * out * sh * sw * jh * jw
    launch(to, made, args, sizes, over(across, 4, 16, 1), work)
