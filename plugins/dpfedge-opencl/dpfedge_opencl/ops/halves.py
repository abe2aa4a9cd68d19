# SPDX-License-Identifier: Apache-2.0
"""Halves: tensors of them on kernels of floats, and weights of them for devices that compute with halves.

Inputs are widened, outputs narrowed, in memory of the node's own. Constants are widened when the graph is lowered; for
a target with the feature `fp16` packed weights become halves, which any device can read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Facts, Lowering, Node, Value
from dpfedge_opencl.ops.source import i32, items, kernel, launch, tensors

__all__ = [
    "ARITHMETIC",
    "FLOATS",
    "OfFloats",
    "arithmetic",
    "floats",
    "only_floats",
    "stored",
    "widened",
    "widened_weight",
    "writing",
]

FLOATS = ("f32", "f16")
ARITHMETIC = 1
"""What a kernel's FP16 is where halves are computed with; tests set 2, floats in their place (prelude.cl)."""
_MOST = 65504.0  # the largest half


def only_floats(dtypes: Sequence[str], *positions: int) -> str | None:
    """Why these inputs (all: none named) cannot be taken: they are no f32 or f16."""
    chosen = [dtypes[at] for at in positions if at < len(dtypes)] if positions else list(dtypes)
    wrong = sorted({dtype for dtype in chosen if dtype not in ("", *FLOATS)})
    return f"dtype {', '.join(wrong)}; it takes f32 and f16" if wrong else None


class OfFloats:
    """An operator of f32 and f16 that packs nothing."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Every input is one of the two."""
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Nothing to pack."""


def widened_weight(node: Node, lowering: Lowering, index: int) -> None:
    """Make a constant input of halves one of floats."""
    if index >= len(node.inputs) or not node.inputs[index]:
        return
    array = lowering.weight(node.inputs[index])
    if array is not None and array.dtype == np.float16:
        name = lowering.add(node, f"in{index}", array.astype(np.float32))
        node.inputs = (*node.inputs[:index], name, *node.inputs[index + 1 :])


def stored(array: Array, features: frozenset[str]) -> Array:
    """Packed weights as they go into the package: halves for a device that computes with them, where all fit."""
    if "fp16" in features and np.abs(array).max(initial=0.0) < _MOST:
        return array.astype(np.float16)
    return array


def arithmetic(facts: Facts, weights: Value) -> dict[str, str | int]:
    """Options of a kernel that multiplies by these packed weights."""
    half = weights.dtype == "f16"
    return {"WEIGHTS_HALF": int(half), "FP16": ARITHMETIC if half and facts.fp16 else 0}


def _convert(to: Emitting, entry: str, source: str, target: str, count: int) -> None:
    each, number = items(to.facts, count, 4096)
    made = kernel("halves", entry, to.facts, ROWS=each)
    launch(to, made, [*tensors((source, target)), i32(count)], (number,))


def widened(to: Emitting, name: str) -> str:
    """`name`, or its values as floats in memory of this node."""
    if not name or to.value(name).dtype != "f16":
        return name
    value = to.value(name)
    made = to.scratch("f32", value.shape)
    _convert(to, "widen", name, made, math.prod(value.shape))
    return made


def floats(to: Emitting, names: Sequence[str]) -> list[str]:
    """`widened` of each."""
    return [widened(to, name) for name in names]


@contextmanager
def writing(to: Emitting, name: str) -> Iterator[str]:
    """Memory of floats for output `name`, which gets them, narrowed where it holds halves, at the block's end."""
    value = to.value(name)
    if value.dtype != "f16":
        yield name
        return
    made = to.scratch("f32", value.shape)
    yield made
    _convert(to, "narrow", made, name, math.prod(value.shape))
