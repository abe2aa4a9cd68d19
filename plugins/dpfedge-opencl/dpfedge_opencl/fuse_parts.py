# SPDX-License-Identifier: Apache-2.0
"""Parts of the last axis need no kernel of their own where their readers can read them where they lie.

Chains can: gated activations are one product for gate and value, split, and multiplied again. So can the move that
makes heads of a projection, as queries, keys and values come from one product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from dpfedge.backend.api import Array
from dpfedge_opencl.lower_shapes import Shapes
from dpfedge_opencl.ops.api import Node

__all__ = ["read_parts"]


def read_parts(nodes: Sequence[Node], outputs: Set[str], shapes: Shapes, constants: Mapping[str, Array]) -> list[Node]:
    """The nodes without splits whose parts are read by chains, or moved once more anyway."""
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    gone: set[int] = set()
    for split in nodes:
        if split.op != "Split" or split.inputs[0] in constants or any(name in outputs for name in split.outputs):
            continue
        parts = _parts(split, shapes)
        users = [(name, user) for name in split.outputs for user in readers.get(name, ())]
        if parts is None:
            continue
        moves = {id(user): _mover(name, user, readers, outputs, shapes) for name, user in users if user.op != "Chain"}
        if None in moves.values():
            continue
        gone.add(id(split))
        for name, user in users:
            if (mover := moves.get(id(user))) is None:
                _read(user, split.inputs[0], parts)
                continue
            gone.add(id(user))
            sizes = list(shapes[user.outputs[0]][0][-2:])
            attrs = {"start": parts[name][0], "sizes": sizes, "perm": mover.attrs["perm"]}
            mover.op, mover.inputs, mover.attrs = "Heads", (split.inputs[0],), attrs
    return [node for node in nodes if id(node) not in gone]


def _mover(
    name: str, reshape: Node, readers: Mapping[str, Sequence[Node]], outputs: Set[str], shapes: Shapes
) -> Node | None:
    """The one Transpose behind a Reshape that makes two axes of the last one; None for another pattern."""
    if reshape.op != "Reshape" or reshape.inputs[0] != name or reshape.outputs[0] in outputs:
        return None
    before, after = shapes.get(name), shapes.get(reshape.outputs[0])
    found = readers.get(reshape.outputs[0], ())
    if before is None or after is None or len(found) != 1 or found[0].op != "Transpose" or "perm" not in found[0].attrs:
        return None
    same = all(
        one[:-2] == other[:-1] and one[-2] * one[-1] == other[-1] for one, other in zip(after, before, strict=True)
    )
    return found[0] if same and after[0][-2:] == after[1][-2:] else None


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
