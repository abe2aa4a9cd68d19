# SPDX-License-Identifier: Apache-2.0
"""MatMulNBits and GatherBlockQuantized: matrices of 4 and 8 bit codes in blocks.

Where the target multiplies bytes (feature `vnni` or `int8_dot`), activations are rounded to 24 bits per block, three
digits of a byte each, whose step is a float32's at the block's largest; with `accuracy_level` 4 to 16 bits, two digits.
Elsewhere products are of floats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Facts, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.gemm import tiles
from dpfedge_opencl.ops.source import (
    divided,
    epilogue_options,
    i32,
    kernel,
    launch,
    own_and_extras,
    registers,
    signed_dot,
    tensors,
    tuned,
    vector,
)

__all__ = ["BLOCKED", "GatherBlockQuantized", "MatMulNBits", "blocks_of", "codes_of"]

BLOCKED = "com.microsoft.MatMulNBits"
_LANES = 16


def codes_of(packed: Array, bits: int) -> Array:
    """Codes of `bits` bits as bytes, the first in the lowest bits, along the last axis."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], -1)


def blocks_of(codes: Array, bits: int) -> Array:
    """[N, blocks, block] codes as [N / 16][block][vector][16][4 bytes] (see nbits.cl)."""
    columns, blocks, size = codes.shape
    padded = np.pad(codes, ((0, -columns % _LANES), (0, 0), (0, 0)))
    if bits == 4:
        sub = min(size, 32)
        halves = padded.reshape(-1, blocks, size // sub, 2, sub // 2)
        padded = (halves[:, :, :, 0] | (halves[:, :, :, 1] << 4)).reshape(len(padded), blocks, -1)
    parts = padded.reshape(-1, _LANES, blocks, padded.shape[-1] // 4, 4)
    return np.ascontiguousarray(parts.transpose(0, 2, 3, 1, 4))


def _by_panel(numbers: Array) -> Array:
    """[N, blocks] as [N / 16][block][16]."""
    padded = np.pad(numbers.astype(np.float32), ((0, -len(numbers) % _LANES), (0, 0)))
    return np.ascontiguousarray(padded.reshape(-1, _LANES, padded.shape[1]).transpose(0, 2, 1))


@op(BLOCKED)
class MatMulNBits:
    """A·Wᵀ with W = (codes - zero)·scale.

    What `lower_simplify` makes of an importer's correction are two inputs more: channels of A (6) and the floats [L, N]
    they are multiplied by besides (7)."""

    epilogue = "last"
    loud = True

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        attrs = node.attrs
        bits, block = int(attrs.get("bits", 4)), int(attrs["block_size"])
        given = [lowering.weight(name) is not None for name in own_and_extras(node)[0][1:] if name]
        if not all(given) or any(own_and_extras(node)[0][4:6]):
            return "computed codes, g_idx or bias"
        if bits not in (4, 8) or attrs["K"] % block or block > 256:
            return f"bits {bits}, K {attrs['K']}, block_size {block}; it takes 4 or 8 bits and whole blocks"
        return None if dtypes[0] == "f32" else f"dtype {dtypes[0]}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        attrs, (own, extras) = node.attrs, own_and_extras(node)
        codes, scales = lowering.weight(own[1]), lowering.weight(own[2])
        assert codes is not None
        assert scales is not None
        bits, rows, blocks = int(attrs.get("bits", 4)), int(attrs["N"]), attrs["K"] // attrs["block_size"]
        scales = scales.reshape(rows, blocks).astype(np.float32)
        names = [
            lowering.add(node, "codes", blocks_of(codes_of(codes.reshape(rows, blocks, -1), bits), bits)),
            lowering.add(node, "scales", _by_panel(scales)),
        ]
        zeros = lowering.weight(own[3]) if len(own) > 3 and own[3] else None
        if zeros is not None:
            whole = zeros.reshape(rows, -1)
            whole = codes_of(whole, bits)[:, :blocks] if zeros.dtype == np.uint8 else whole
            middle = np.float32(1 << (bits - 1))
            names.append(lowering.add(node, "offsets", _by_panel((middle - whole.astype(np.float32)) * scales)))
        else:
            names.append("")
        names += self._loud(node, own, lowering)
        node.inputs = (own[0], *names, *extras)
        attrs["digits"] = _digits(attrs.get("accuracy_level", 0) == 4, lowering)

    def _loud(self, node: Node, own: Sequence[str], lowering: Lowering) -> tuple[str, str]:
        found = lowering.weight(own[7]) if len(own) > 7 else None
        node.attrs["loud"] = 0 if found is None else len(found)
        if found is None:
            return "", ""
        wide = np.pad(found.astype(np.float32), ((0, 0), (0, -found.shape[1] % _LANES)))
        return own[6], lowering.add(node, "loud", wide)

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        a = need(inputs)
        return [("f32", (*a.shape[:-1], int(node.attrs["N"])))]

    def emit(self, node: Node, to: Emitting) -> None:
        attrs, (own, extras) = node.attrs, own_and_extras(node)
        m = math.prod(to.value(own[0]).shape[:-1])
        if not m:
            return
        offsets, lanes = bool(own[3]), vector(to.facts)
        shape = (m, attrs["N"], attrs["K"], attrs.get("bits", 4))
        rows, vectors, *group = tuned(to.facts, node, "nbits", shape, _tiles(to.facts, m, lanes))
        prepared = _rounded(to, node, own[0], m, offsets)
        made = kernel(
            "nbits", "nbits", to.facts, BITS=attrs.get("bits", 4), BLOCK=attrs["block_size"], MR=rows, NR=vectors,
            V=lanes, DIGITS=attrs["digits"], OFFSETS=int(offsets), LOUD=attrs["loud"],
            SIGNED_DOT=signed_dot(to.facts), ROWS=1, ZEROS=0, INDEX="int",
            **epilogue_options(node, "last", lanes),
        )  # fmt: skip
        more = [name or own[2] for name in own[3:6]]
        names = (own[0], *prepared, *own[1:3], *more, *extras, node.outputs[0])
        args = [*tensors(names), i32(m), i32(attrs["N"]), i32(attrs["K"])]
        sizes = (divided(m, rows), divided(attrs["N"], vectors * lanes))
        launch(to, made, args, sizes, group, m * attrs["N"] * attrs["K"])


def _digits(may_round: bool, lowering: Lowering) -> int:
    """How many bytes an activation becomes; 0: it stays a float."""
    if not {"vnni", "int8_dot"} & lowering.features:
        return 0
    if may_round:
        return 2
    # a CPU's dot product that no kernel here names is done in steps, and floats are faster than three of them
    return 0 if "vnni" not in lowering.features and lowering.arch.startswith(("x86", "arm")) else 3


def _tiles(facts: Facts, m: int, lanes: int) -> tuple[tuple[int, ...], ...]:
    """As `gemm.tiles`; a row has two sums for each vector, beside the result."""
    panel = _LANES // lanes
    if not facts.cpu or registers(facts) < 32:
        return tiles(facts, m, 1, 4)
    if m == 1:
        return (1, panel, 1, 1), (1, 2 * panel, 1, 1)
    return tiles(facts, m, panel, 8 if panel == 1 else 4)


def _rounded(to: Emitting, node: Node, a: str, m: int, offsets: bool) -> tuple[str, str, str]:
    """A in digits of a byte, what sums start from, steps and sums of its blocks, as far as the product needs them."""
    attrs = node.attrs
    block, blocks, digits = attrs["block_size"], m * attrs["K"] // attrs["block_size"], attrs["digits"]
    if not digits and not offsets:
        return a, a, a
    rounded = to.scratch("i8", (m, digits * attrs["K"])) if digits else a
    starts = to.scratch("i32", (blocks, digits)) if digits else a
    numbers = to.scratch("f32", (blocks, 2))
    each = 16 if to.facts.cpu else 1
    made = kernel(
        "nbits", "round_blocks", to.facts, LOUD=0, BITS=attrs.get("bits", 4), BLOCK=block, MR=1, NR=1, DIGITS=digits,
        OFFSETS=0, ROWS=each, ZEROS=0, INDEX="int",
        **epilogue_options(Node("", "", (), (), {}), "last", vector(to.facts)),
    )  # fmt: skip
    launch(to, made, [*tensors((a, rounded, starts, numbers)), i32(blocks)], (divided(blocks, each),))
    return rounded, starts, numbers


@op("com.microsoft.GatherBlockQuantized")
class GatherBlockQuantized:
    """Rows of a matrix of codes, as floats."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        attrs, codes = node.attrs, lowering.weight(node.inputs[0])
        whole = codes is not None and codes.ndim == 2 and codes.dtype == np.uint8
        axes = attrs.get("gather_axis", 0) == 0 and attrs.get("quantize_axis", 1) in (-1, 1)
        if not whole or not axes or attrs.get("bits", 4) not in (4, 8) or dtypes[2] != "f32":
            return "it takes a constant matrix of u8 codes, quantised along its last axis, with f32 scales"
        return None if dtypes[1] in ("i32", "i64") else f"indices of {dtypes[1]}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        codes, at = need(inputs), need(inputs, 1)
        return [("f32", (*at.shape, codes.shape[1] * 8 // int(node.attrs.get("bits", 4))))]

    def emit(self, node: Node, to: Emitting) -> None:
        codes, at = to.value(node.inputs[0]), to.value(node.inputs[1])
        zeros = len(node.inputs) > 3 and bool(node.inputs[3])
        count, width = math.prod(at.shape), to.value(node.outputs[0]).shape[-1]
        made = kernel(
            "nbits", "gather_blocks", to.facts, LOUD=0, BITS=node.attrs.get("bits", 4), BLOCK=32, MR=1, NR=1, DIGITS=0,
            OFFSETS=0, ROWS=1, ZEROS=int(zeros), INDEX="long" if at.dtype == "i64" else "int",
            **epilogue_options(Node("", "", (), (), {}), "last", 4),
        )  # fmt: skip
        names = (*node.inputs[:3], node.inputs[3] if zeros else node.inputs[2], node.outputs[0])
        numbers = (count, codes.shape[0], width, int(node.attrs.get("block_size", 128)))
        if count:
            launch(to, made, [*tensors(names), *(i32(one) for one in numbers)], (count,))
