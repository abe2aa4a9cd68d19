# SPDX-License-Identifier: Apache-2.0
"""Conv and FusedConv in one and two dimensions: any stride, dilation and number of groups, with bias and epilogue.

Weights are constants, packed when the graph is lowered. An input with pads or strides is copied once into planes with
borders (`to_phases` of pack.cl), so that one kernel without conditions serves every window (conv.cl).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Facts, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.halves import arithmetic, only_floats, stored, widened, widened_weight, writing
from dpfedge_opencl.ops.source import (
    divided,
    epilogue_options,
    i32,
    kernel,
    launch,
    masked,
    own_and_extras,
    registers,
    tensors,
    tuned,
    vector,
)
from dpfedge_opencl.ops.windows import Window, window

__all__ = ["Planes", "channels_of_tile", "over", "pack_taps", "planes", "positions_of_tile"]

_ALIGN = 16
_ITEM = 400  # cycles
_GROUPS = ((4, 16), (8, 8), (2, 32), (1, 64))
"""Rows and positions of a work-group on a GPU."""
_FEW = (1, 4, 9, 12)
"""Output positions up to which vectors hold channels, and how many an item makes then."""


def channels_of_tile(arch: str, channels: int) -> int:
    """Output channels of an item: what wastes least, 1 for a depthwise convolution."""
    if channels == 1:
        return 1
    return 8 if arch.startswith("x86-64") and (channels % 8 in (0, 5, 6, 7) or channels > 28) else 4


def positions_of_tile(facts: Facts, rows: int, lanes: int, count: int, depth: int) -> int:
    """Vectors of an item, for `count` positions that are sums of `depth` products: those with the least cycles.

    A CPU does two products of vectors a cycle, or two loads, and waits four cycles for a sum; an item has its price."""

    def cycles(vectors: int) -> float:
        each = max(rows * vectors, rows + vectors, 8) / 2
        return divided(count, vectors * lanes) * (each * depth + _ITEM)

    return min(range(_most(facts, rows), 0, -1), key=cycles)


def _most(facts: Facts, rows: int) -> int:
    """Vectors of an item that registers suffice for."""
    return {1: 4, 4: 4, 8: 3}[rows] if masked(facts) else {1: 4, 4: 2, 8: 1}[rows]


def pack_taps(weights: Array, rows: int) -> Array:
    """[groups, channels out, channels in, taps] as [group][out / rows][tap][in][rows], with zeros at the end."""
    groups, out, channels, taps = weights.shape
    padded = np.pad(weights.astype(np.float32, copy=False), ((0, 0), (0, -out % rows), (0, 0), (0, 0)))
    return np.ascontiguousarray(padded.reshape(groups, -1, rows, channels, taps).transpose(0, 1, 4, 3, 2))


@dataclass(frozen=True, slots=True)
class Planes:
    """An input as the kernel reads it: the value, elements a plane and a phase take, a row, and where it begins."""

    name: str
    plane: int
    phase: int
    row: int
    copied: bool


def planes(
    to: Emitting, x: str, count: int, sizes: tuple[int, int], before: tuple[int, int], rows: tuple[int, int],
    strides: tuple[int, int], slack: int,
) -> Planes:  # fmt: skip
    """Copy `count` planes of `sizes` into ones of `rows` (height, width) for each phase of the strides."""
    phase = rows[0] * rows[1]
    plane = divided(phase * strides[0] * strides[1] + slack, _ALIGN) * _ALIGN
    if plane % 1024 == 0:
        plane += _ALIGN  # planes a page apart would share a few sets of the cache
    name = to.scratch("f32", (count * plane + slack,))
    lines = rows[0] * strides[0] * strides[1]
    each = 16 if to.facts.cpu else 1
    wide = masked(to.facts) and strides[1] < 3
    made = kernel("pack", "to_phases", to.facts, ROWS=each, WIDTH=1, **({"SW": strides[1]} if wide else {}))
    numbers = (*sizes, *(strides[:1] if wide else strides), *rows, *before, plane, lines, count)
    launch(to, made, [*tensors((x, name)), *(i32(one) for one in numbers)], (divided(lines, each), count), (1, 64))
    return Planes(name, plane, phase, rows[1], True)


@op("Conv", "com.microsoft.FusedConv")
class Conv:
    """Convolution, and its fused form whose activation becomes an epilogue."""

    epilogue = "channel"

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        weights = lowering.weight(node.inputs[1])
        if weights is None:
            return "computed weights"
        if weights.ndim not in (3, 4):
            return f"{weights.ndim - 2} dimensions; it takes 1 and 2"
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        _fused(node)
        for index in range(1, len(node.inputs)):
            widened_weight(node, lowering, index)
        weights = lowering.weight(node.inputs[1])
        assert weights is not None
        groups = int(node.attrs.get("group", 1))
        out, channels, *sizes = weights.shape
        rows = channels_of_tile(lowering.arch, out // groups)
        if rows == 1 and channels > 1 and math.prod(sizes) == 1:
            rows = 4  # a sum over channels, mostly at few positions: those kernels hold channels in vectors
        taps = pack_taps(weights.reshape(groups, out // groups, channels, -1), rows)
        node.inputs = (node.inputs[0], lowering.add(node, "taps", stored(taps, lowering.features)), *node.inputs[2:])
        node.attrs.update(group=groups, channels=out, kernel_shape=[int(one) for one in sizes], rows=rows)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        found = window(node, x.shape[2:], node.attrs["kernel_shape"])
        return [(x.dtype, (x.shape[0], node.attrs["channels"], *found.result[4 - len(x.shape) :]))]

    def emit(self, node: Node, to: Emitting) -> None:
        if 0 in to.value(node.outputs[0]).shape:
            return
        own, extras = own_and_extras(node)
        value = to.value(own[0])
        found = window(node, value.shape[2:], node.attrs["kernel_shape"])
        with writing(to, node.outputs[0]) as output:
            x, bias, *more = (widened(to, name) for name in (own[0], own[2] if len(own) > 2 else "", *extras))
            _convolve(to, node, found, value.shape[:2], (x, own[1], bias or x, *more, output), bool(bias))


def _work(node: Node, found: Window, batch: Sequence[int]) -> int:
    """Multiplications of a convolution of (examples, channels)."""
    per_output = batch[1] // int(node.attrs["group"]) * math.prod(found.kernel)
    return batch[0] * int(node.attrs["channels"]) * math.prod(found.result) * per_output


def _each_by_itself(
    to: Emitting, node: Node, found: Window, batch: Sequence[int], names: Sequence[str], biased: bool
) -> None:
    """A depthwise convolution where a CPU can leave out lanes of a vector: no copy with borders is needed."""
    rows, lanes = min(4, found.result[0]), vector(to.facts)
    vectors = min(3, divided(found.result[1], lanes))
    made = kernel(
        "depthwise", "depthwise", to.facts, V=lanes, ROWS=rows, NR=vectors, KH=found.kernel[0], KW=found.kernel[1],
        DH=found.dilations[0], SH=found.strides[0], SW=found.strides[1], BIAS=int(biased),
        **epilogue_options(node, "channel", lanes),
    )  # fmt: skip
    numbers = (batch[1], batch[0] * batch[1], *found.sizes, *found.result, found.dilations[1], *found.before)
    sizes = (divided(found.result[0], rows), batch[0] * batch[1])
    launch(to, made, [*tensors(names), *(i32(one) for one in numbers)], sizes, (1, 64), _work(node, found, batch))


def _at_few(
    to: Emitting, node: Node, found: Window, batch: Sequence[int], names: Sequence[str], few: int,
    options: Mapping[str, str | int],
) -> None:  # fmt: skip
    """Vectors of channels at a few positions."""
    groups, rows, area = node.attrs["group"], node.attrs["rows"], math.prod(found.result)
    out, channels = node.attrs["channels"] // groups, batch[1] // groups
    border = int(found.before != (0, 0) or found.after != (0, 0))
    whole = int(few == area and found.kernel == (1, 1) == found.strides and not border)
    tiles = _tiles_of_channels(to.facts, few, divided(out, rows))
    made = kernel(
        "few", "conv_few", to.facts, V=rows, TILES=tiles, FEW=few, BORDER=border, WHOLE=whole, **options,
        **epilogue_options(node, "last" if few == 1 else "channel", rows),
    )  # fmt: skip
    numbers = (
        groups, out, channels, *found.sizes, *found.result, *found.kernel, *found.dilations, *found.strides,
        *found.before,
    )  # fmt: skip
    sizes = (divided(out, rows * tiles), divided(area, few), batch[0] * groups)
    launch(to, made, [*tensors(names), *(i32(one) for one in numbers)], sizes, (16, 4, 1), _work(node, found, batch))


def _tiles_of_channels(facts: Facts, few: int, most: int) -> int:
    """Tiles of channels of an item: enough sums on a CPU that none waits for the one before, and work for all units."""
    if not facts.cpu:
        return 1
    room = (registers(facts) - 2) // (few + 1)
    return max(1, min(room, divided(16, few), 4, most // (2 * facts.compute_units)))


def _convolve(
    to: Emitting, node: Node, found: Window, batch: Sequence[int], names: Sequence[str], biased: bool
) -> None:
    groups, rows, area = node.attrs["group"], node.attrs["rows"], math.prod(found.result)
    out, channels = node.attrs["channels"] // groups, batch[1] // groups
    if out == channels == 1 and masked(to.facts) and found.strides[1] < 3 and math.prod(found.kernel) <= 81:
        _each_by_itself(to, node, found, batch, names, biased)
        return
    options = {"BIAS": int(biased), **arithmetic(to.facts, to.value(names[1]))}
    few = next((size for size in _FEW if size >= area), 0) if rows > 1 else 0
    if few:
        _at_few(to, node, found, batch, names, few, options)
        return
    lanes = _lanes(to, area)
    most = _most(to.facts, rows) * lanes
    read = _read(to, found, names[0], batch[0] * batch[1], most)
    count = (found.result[0] - 1) * read.row + found.result[1]
    shape = (batch[0] * groups, out, channels, *found.kernel, count)
    usual = (
        positions_of_tile(to.facts, rows, lanes, count, channels * math.prod(found.kernel)),
        int(out * math.prod(found.kernel) > count),
        *_GROUPS[0],
    )
    vectors, across, *group = tuned(to.facts, node, "conv", shape, _candidates(to, usual, _most(to.facts, rows)))
    tile = vectors * lanes
    numbers = (
        groups, out, channels, read.plane, read.row, *found.result, *found.kernel, *found.dilations, *found.strides,
        read.phase, 0, count, int(not read.copied), 1, 1, 0, 0, across,
    )  # fmt: skip
    made = kernel(
        "conv", "conv", to.facts, V=lanes, MR=rows, NR=vectors, PHASED=0, **options,
        **epilogue_options(node, "channel", lanes),
    )  # fmt: skip
    sizes = over(across, divided(out, rows), divided(count, tile), batch[0] * groups)
    args = [*tensors((read.name, *names[1:])), *(i32(one) for one in numbers)]
    local = over(across, group[0], group[1], 1) if rows > 1 else over(across, 1, 64, 1)
    launch(to, made, args, sizes, local, _work(node, found, batch))


def _candidates(to: Emitting, usual: tuple[int, ...], most: int) -> tuple[tuple[int, ...], ...]:
    """(vectors, which operand's tiles change first, rows and positions of a group), the usual one first."""
    if to.facts.cpu:
        others: list[tuple[int, ...]] = [
            (vectors, across, *_GROUPS[0]) for vectors in range(most, 0, -1) for across in (0, 1)
        ]
    else:
        others = [(*usual[:2], *group) for group in _GROUPS]
    return (usual, *(one for one in others if one != usual))


def over(across: int, rows: int, positions: int, rest: int) -> tuple[int, int, int]:
    """A grid whose first dimension is that of rows, or (across) that of positions."""
    return (positions, rows, rest) if across else (rows, positions, rest)


def _lanes(to: Emitting, area: int) -> int:
    lanes = vector(to.facts)
    while lanes > 4 and area <= lanes:  # a vector that is mostly past the end
        lanes //= 2
    return lanes


def _read(to: Emitting, found: Window, x: str, count: int, tile: int) -> Planes:
    """The input itself where no window leaves it; else its copy with borders."""
    (height, width), (sh, sw), spans = found.sizes, found.strides, (
        (found.kernel[0] - 1) * found.dilations[0], (found.kernel[1] - 1) * found.dilations[1],
    )  # fmt: skip
    plain = found.strides == (1, 1) and found.before == (0, 0) == found.after
    positions = (found.result[0] - 1) * width + found.result[1]
    if plain and positions >= tile:
        return Planes(x, height * width, 0, width, False)
    rows = (found.result[0] + spans[0] // sh, found.result[1] + spans[1] // sw)
    return planes(to, x, count, found.sizes, found.before, rows, found.strides, tile)


def _fused(node: Node) -> None:
    """FusedConv: its activation and addend become an epilogue."""
    activation = node.attrs.pop("activation", "")
    params = [float(one) for one in node.attrs.pop("activation_params", ())]
    added = len(node.inputs) > 3 and bool(node.inputs[3])
    node.inputs = tuple(name for index, name in enumerate(node.inputs) if index != 3 or name)
    if not activation and not added:
        return
    steps: list[list[object]] = [["Add", [0, 1], {}, "f32"]] if added else []
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}
    if activation:
        attrs = dict(zip(names.get(activation, ()), params, strict=False))
        steps.append([activation, [2 if added else 0], attrs, "f32"])
    node.attrs["epilogue"] = {"steps": steps, "kinds": ["same"] if added else []}
