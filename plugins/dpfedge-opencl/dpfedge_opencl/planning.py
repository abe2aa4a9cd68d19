# SPDX-License-Identifier: Apache-2.0
"""Where the values of a plan lie: steps and the memory that values share in, slots and the size of the arena out.

It knows no operator. What the host worked out and a step reads is laid into the plan's own data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from dpfedge.backend.api import Array
from dpfedge_opencl.memoryplan import assign
from dpfedge_opencl.ops.api import Value
from dpfedge_opencl.plan import CpuCall, Home, Launch, Slot

__all__ = ["Placing", "Root", "outermost"]

_ALIGN = 64


@dataclass(slots=True, eq=False)
class Root:
    """A piece of memory that one value or several lie in."""

    home: Home
    name: str
    """The port of `input`, the section of `weight`, else the value it was made for."""
    size: int = 0
    output: str = ""
    """The graph's output that it is; "" for none."""
    fixed: Slot | None = None
    """Its place, once that is settled."""
    inside: tuple[Root, int] | None = None
    """The memory that it is a part of, and where in it."""
    first: int = -1
    """The steps it lives from and to."""
    last: int = -1


def outermost(root: Root) -> tuple[Root, int]:
    """The memory that holds a root, and where in it that begins."""
    at = 0
    while root.inside is not None:
        root, more = root.inside
        at += more
    return root, at


class Placing:
    """The places of one stretch's values."""

    def __init__(
        self, values: Mapping[str, Value], contents: Mapping[str, Array], roots: Mapping[str, tuple[Root, int]],
        stretch: int,
    ) -> None:  # fmt: skip
        self._values, self._contents, self._roots = values, contents, roots
        self._stretch = stretch
        self.data = bytearray()
        self.data_places: dict[str, int] = {}
        """Value → its offset in the plan's data."""

    def place(
        self, steps: Sequence[Launch | CpuCall], kept: Set[str], unknown: Set[str], outputs: Sequence[str]
    ) -> tuple[dict[str, Slot], int]:
        """(slot of every value that a step or a port names, bytes of arena); values in `kept` live on behind it.

        `unknown` are outputs of the last step that get no place: nobody knows their sizes.
        """
        roots = self._roots
        names: dict[str, None] = {}
        mine: list[Root] = []
        for index, step in enumerate(steps):
            for name in step.inputs + step.outputs if isinstance(step, CpuCall) else step.names:
                names[name] = None
                found = roots.get(name)
                if found is not None and (root := outermost(found[0])[0]).fixed is None:
                    if root.first < 0:
                        root.first = index
                        mine.append(root)
                    root.last = index
        for name in unknown:
            names.pop(name, None)
        for name in kept:
            if (found := roots.get(name)) is not None and (root := outermost(found[0])[0]).fixed is None:
                root.last = len(steps)
        arena = self._assign([root for root in mine if root.name not in unknown])
        names.update((name, None) for name in outputs if name in self._values)
        return {name: slot for name in names if (slot := self._slot(name)) is not None}, arena

    def _assign(self, touched: Sequence[Root]) -> int:
        mine = []
        for root in touched:
            if root.output:
                root.fixed = Slot("output", 0, "", (), root.output)
            elif root.home == "input":
                root.fixed = Slot("input", 0, "", (), root.name)
            else:
                mine.append(root)
        offsets, size = assign([one.size for one in mine], [one.first for one in mine], [one.last for one in mine])
        for root, offset in zip(mine, offsets, strict=True):
            root.fixed = Slot("arena", offset, "", (), "", self._stretch)
        return size

    def _slot(self, name: str) -> Slot | None:
        value = self._values[name]
        found = self._roots.get(name)
        if found is None:
            return Slot("plan", self._data(name), value.dtype, value.shape, "", self._stretch)
        root, offset = found
        if root.inside is not None:
            root, more = outermost(root)
            offset += more
        if root.fixed is None:
            if root.output:
                return Slot("output", offset, value.dtype, value.shape, root.output)
            return Slot("input", offset, value.dtype, value.shape, root.name) if root.home == "input" else None
        at = root.fixed
        if at.home == "weight" and not offset:
            return at
        return Slot(at.home, at.offset + offset, value.dtype, value.shape, at.of, at.stretch)

    def _data(self, name: str) -> int:
        if name not in self.data_places:
            self.data += bytes(-len(self.data) % _ALIGN)
            self.data_places[name] = len(self.data)
            self.data += self._contents[name].tobytes()
        return self.data_places[name]
