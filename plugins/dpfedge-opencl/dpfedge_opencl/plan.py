# SPDX-License-Identifier: Apache-2.0
"""What the compiler half and the runtime half of this backend share: a graph made concrete for one set of shapes.

It holds types only. A tensor reaches a kernel as two arguments, `__global uchar *base, const ulong offset` (bytes):
sub-buffers are forbidden on memory imported with cl_arm_import_memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from dpfedge.backend.api import Array

__all__ = ["CpuCall", "Home", "Kernel", "Late", "Launch", "Plan", "Scalar", "Slot", "Tensor", "Then"]

Home = Literal["input", "output", "weight", "arena", "plan", "cpu"]
Scalar = np.int32 | np.uint32 | np.int64 | np.uint64 | np.float32


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel function: a complete OpenCL C 1.2 source and the options it is built with."""

    entry: str
    source: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensor:
    """A kernel argument that is memory: the value of this name, from its first byte on."""

    name: str


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel to be enqueued."""

    kernel: Kernel
    args: tuple[Tensor | Scalar, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    node: str
    """The graph's node it computes, for messages and profiles."""
    work: int = 0
    """Multiplications, or other steps of that size; 0 where they are as many as the elements it touches."""
    names: tuple[str, ...] = field(init=False, compare=False)
    """The values among its arguments."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(one.name for one in self.args if isinstance(one, Tensor)))


@dataclass(frozen=True, slots=True)
class CpuCall:
    """A part of the graph that the CPU plugin runs over the same memory; its outputs lie where `Plan.slots` says."""

    segment: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a value lies: in the caller's input or output, in a weight section, at `offset` of the arena, or at
    `offset` of `Plan.data`."""

    home: Home
    offset: int
    dtype: str
    shape: tuple[int, ...]
    of: str = ""
    """The port's name (`input`, `output`), the section's (`weight`), or that of the CPU call's output (`cpu`)."""
    stretch: int = 0
    """Whose arena or `Plan.data` it is: each stretch of a run has its own."""


class Then(Protocol):
    """What follows a CPU call whose outputs have sizes that nobody knew before it ran."""

    values: tuple[str, ...]
    """Inputs of the graph and outputs of CPU calls whose contents decide it; of the last call the shapes do anyway."""

    def __call__(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Plan:
        """The next stretch, for these shapes of the last call's outputs and these contents."""


class Late(Protocol):
    """What of `Plan.data` follows from sizes that the plan does not depend on (how full a cache is)."""

    def __call__(self, shapes: Mapping[str, tuple[int, ...]]) -> Sequence[tuple[int, bytes]]:
        """(offset in `Plan.data`, bytes) to be written before a run with inputs of these shapes."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One stretch of a run, mostly all of it: its steps in order, every value's place, the bytes of arena they need."""

    steps: tuple[Launch | CpuCall, ...]
    slots: Mapping[str, Slot]
    arena_bytes: int
    shapes: Mapping[str, tuple[int, ...]]
    """Output → its shape, of those that are known by its end."""
    then: Then | None = None
    """The stretch that follows the last step, a CPU call."""
    data: bytes = b""
    """What the host worked out of the shapes and kernels or CPU calls read; written once, where the plan is made."""
    late: Late | None = None
