# SPDX-License-Identifier: Apache-2.0
"""Parts of the last axis that only chains read need no kernel of their own: the chain reads them where they lie.

Gated activations are so: one product for gate and value, split, and multiplied again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from dpfedge.backend.api import Array
from dpfedge_opencl.lower_shapes import Shapes
from dpfedge_opencl.ops.api import Node

__all__ = ["read_parts"]


def read_parts(nodes: Sequence[Node], outputs: Set[str], shapes: Shapes, constants: Mapping[str, Array]) -> list[Node]:
    """The nodes without splits whose parts only chains read."""
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    gone: set[int] = set()
    for split in nodes:
        if split.op != "Split" or split.inputs[0] in constants or any(name in outputs for name in split.outputs):
            continue
        parts = _parts(split, shapes)
        users = [user for name in split.outputs for user in readers.get(name, ())]
        if parts is None or any(user.op != "Chain" for user in users):
            continue
        gone.add(id(split))
        for user in users:
            _read(user, split.inputs[0], parts)
    return [node for node in nodes if id(node) not in gone]


def _parts(split: Node, shapes: Shapes) -> Mapping[str, tuple[int, int]] | None:
    """Part → (start, size) where these do not change and lie along the last axis; None else."""
    found: dict[str, tuple[int, int]] = {}
    start = 0
    whole = shapes.get(split.inputs[0])
    for name in split.outputs:
        both = shapes.get(name)
        if whole is None or both is None or not both[0]:
            return None
        rank, sizes = len(both[0]), {one[-1] for one in both}
        if split.attrs.get("axis", 0) not in (-1, rank - 1) or len(sizes) > 1 or both[0][-1] < 2:
            return None
        found[name] = (start, both[0][-1])
        start += both[0][-1]
    return found if whole is not None and {one[-1] for one in whole} == {start} else None


def _read(chain: Node, whole: str, parts: Mapping[str, tuple[int, int]]) -> None:
    """Let a chain read the parts of `whole` instead of values of their own."""
    mine = [[index, *parts[name]] for index, name in enumerate(chain.inputs) if name in parts]
    chain.attrs["parts"] = [*chain.attrs.get("parts", ()), *mine]
    chain.inputs = tuple(whole if name in parts else name for name in chain.inputs)
