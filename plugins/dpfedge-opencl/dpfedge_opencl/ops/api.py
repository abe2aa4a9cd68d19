# SPDX-License-Identifier: Apache-2.0
"""What an operator of this backend is, and the registry of them. It holds no kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dpfedge.backend.api import Array
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["OPS", "Emitting", "Facts", "Lowering", "Node", "Op", "Value", "op"]


@dataclass(frozen=True, slots=True)
class Facts:
    """What choosing a kernel needs to know of a device."""

    arch: str
    cpu: bool
    """A CPU behind OpenCL (PoCL): wide vectors, no use for small work-groups."""
    compute_units: int
    vector_width: int
    """Preferred floats per vector: 16 on AVX-512, 4 on Mali."""
    max_work_group: int
    fp16: bool = False
    int8_dot: bool = False
    target: str = ""
    """Instruction sets that the CPU has and its compiler leaves out where a function does not ask for them."""
    tuning: Mapping[str, Any] = field(default_factory=dict)
    """Kernel family and shape → parameters, as the auto-tuner found them when the package was sealed."""


@dataclass(slots=True)
class Node:
    """One operator of a lowered graph. Names of values are unique; "" is an optional input that is absent."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A value as an operator sees it: dtype (`f32`, `i64`, …), concrete shape, and its contents where the host knows
    them (constants, weights, and what follows from shapes alone)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    known: Array | None = None
    weight: bool = False


class Lowering(Protocol):
    """What an operator may do when a graph is lowered, once, at compile time."""

    arch: str
    features: frozenset[str]

    def weight(self, name: str) -> Array | None:
        """The constant's contents; None when `name` is computed."""

    def add(self, node: Node, role: str, array: Array) -> str:
        """A new constant in the package (a weight packed for this operator); its name."""


class Emitting(Protocol):
    """What an operator sees and does when a graph is made concrete for one set of shapes on one device."""

    facts: Facts

    def value(self, name: str) -> Value:
        """An input or output of the node."""

    def scratch(self, dtype: str, shape: Sequence[int]) -> str:
        """Memory for the time of this node."""

    def constant(self, array: Array) -> str:
        """Values that the host made for this plan, where kernels can read them."""

    def alias(self, output: str, input: str, offset: int = 0) -> bool:
        """Ask that `output` be the memory of `input`, from byte `offset` on; False when that cannot be (then copy).

        It can never be when both are ports of the graph, or the output is a port and the input a weight."""

    def within(self, output: str, input: str, offset: int) -> bool:
        """Ask that `input`, computed by another node, be written into `output` from byte `offset` on from the start."""

    def shares(self, output: str, input: str) -> bool:
        """Whether the caller bound both to the same memory (a key/value cache written in place)."""

    def launch(
        self,
        kernel: Kernel,
        args: Sequence[Tensor | Scalar],
        global_size: Sequence[int],
        local_size: Sequence[int] | None = None,
        work: int = 0,
    ) -> None:
        """Enqueue a kernel behind those before it; `work` is its multiplications where they are not as many
        as the elements that it touches."""


class Op(Protocol):
    """An operator. `supports` and `lower` work at compile time, `shape` and `emit` at load time without `onnx`.

    A class may have two attributes besides. `contents: tuple[int, ...]`, the inputs whose values `shape` or `emit` read
    (`Value.known`): a node gets here only where these are constants or follow from shapes. And `epilogue`: `channel`
    says that it computes the attribute `epilogue` (`ops/epilogue.py`) behind itself, with axis 1 or the last one
    (`last`) for what has one value per channel; nothing is given to a class without it. A class whose `shape` is right
    for every node, also for one that it refuses and that was not lowered, has `alone = True`: then sizes of what the
    CPU plugin computes are known before a run."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Why this node cannot run here (it goes to the CPU plugin then); None when it can.

        `dtypes` are those of its inputs, "" for one that is absent."""

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Change the node in place: pack its weights, choose its layout."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        """dtype and shape of each output."""

    def emit(self, node: Node, to: Emitting) -> None:
        """Its launches."""


OPS: dict[str, Op] = {}
"""Operator name (`Conv`, `com.microsoft.MatMulNBits`) → what it is here."""


def op(*names: str) -> Callable[[type[Op]], type[Op]]:
    """Register a class under the names it serves."""

    def register(made: type[Op]) -> type[Op]:
        for name in names:
            assert name not in OPS, name
            OPS[name] = made()
        return made

    return register
