# SPDX-License-Identifier: Apache-2.0
"""What most operators that only move values share: defaults of the protocol, axes, contents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpfedge_opencl.ops.api import Lowering, Node, Value
from dpfedge_opencl.ops.text import C_TYPES

__all__ = ["Moving", "axis_of", "contiguous", "have", "ints", "need"]


class Moving:
    """An operator for every dtype that kernels hold; it packs nothing."""

    contents: tuple[int, ...] = ()
    alone = True

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Any dtype that OpenCL 1.2 devices have."""
        bad = dtypes[0] not in C_TYPES and dtypes[0] != "f64"
        return f"dtype {dtypes[0] or 'unknown'}" if bad else None

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Nothing to pack."""


def need(inputs: Sequence[Value | None], index: int = 0) -> Value:
    """An input that must be there; ValueError when it is not."""
    if index >= len(inputs) or (found := inputs[index]) is None:
        raise ValueError(f"input {index} is missing")
    return found


def have(node: Node, index: int) -> str:
    """The name of an input; "" when it is absent."""
    return node.inputs[index] if index < len(node.inputs) else ""


def ints(value: Value | None) -> list[int] | None:
    """The contents of an input that decides sizes; None when it is absent."""
    if value is None:
        return None
    if value.known is None:
        raise ValueError(f"{value.name} is not known before a run")
    return [int(one) for one in np.atleast_1d(value.known)]


def axis_of(axis: int, rank: int) -> int:
    """An axis that may count from the end; ValueError when there is none."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} of {rank}")
    return axis + rank if axis < 0 else axis


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index of each axis to the next."""
    found, step = [], 1
    for size in reversed(shape):
        found.append(step)
        step *= size
    return tuple(reversed(found))
