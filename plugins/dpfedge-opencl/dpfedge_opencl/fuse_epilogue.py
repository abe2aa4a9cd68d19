# SPDX-License-Identifier: Apache-2.0
"""Chains that follow a kernel which can compute them itself become its epilogue: no launch, no pass over memory.

Which operators can is said by their classes (`epilogue`, see `ops.api.Op`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set

from dpfedge_opencl.lower_shapes import Shapes
from dpfedge_opencl.ops.api import OPS, Node

__all__ = ["give_epilogues"]

_EXTRA = 4


def give_epilogues(nodes: Sequence[Node], outputs: Set[str], shapes: Shapes, dtypes: Mapping[str, str]) -> list[Node]:
    """The nodes without the chains that another kernel took over; that kernel runs where the chain did."""
    users: dict[str, int] = {}
    for node in nodes:
        for name in set(node.inputs):
            users[name] = users.get(name, 0) + 1
    makers = {out: node for node in nodes for out in node.outputs}
    gone: set[int] = set()
    moved: dict[int, Node] = {}
    for chain in nodes:
        if chain.op != "Chain" or len(chain.outputs) != 1:
            continue
        for name in reversed(chain.inputs):
            maker = makers.get(name)
            if maker is None or id(maker) in gone or users[name] != 1 or name in outputs:
                continue
            if _takes(maker, chain, name, shapes, dtypes):
                gone.add(id(maker))
                moved[id(chain)] = _joined(maker, chain, name, shapes)
                break
    return [moved.get(id(node), node) for node in nodes if id(node) not in gone]


def _takes(maker: Node, chain: Node, name: str, shapes: Shapes, dtypes: Mapping[str, str]) -> bool:
    kind = getattr(OPS.get(maker.op), "epilogue", None)
    result = chain.outputs[0]
    if not kind or "epilogue" in maker.attrs or len(maker.outputs) != 1 or name != maker.outputs[0]:
        return False
    if name not in shapes or result not in shapes or shapes[name] != shapes[result]:
        return False
    steps, operand_dtypes, _ = json.loads(chain.attrs["chain"])
    if {*operand_dtypes, *(step[3] for step in steps)} != {"f32"} or len(chain.inputs) > 1 + _EXTRA:
        return False
    return all(_kind(one, name, kind, shapes) is not None for one in chain.inputs if one != name)


def _kind(operand: str, name: str, kind: str, shapes: Shapes) -> str | None:
    if operand not in shapes:
        return None
    if shapes[operand] == shapes[name]:
        return "same"
    found = set()
    for mine, whole in zip(shapes[operand], shapes[name], strict=True):
        if len(mine) > len(whole):
            return None
        padded = (1,) * (len(whole) - len(mine)) + mine
        axis = 1 if kind == "channel" else len(whole) - 1
        if all(size == 1 for size in padded):
            found.add("scalar")
        elif all(size == (whole[axis] if place == axis else 1) for place, size in enumerate(padded)):
            found.add("channel")
        else:
            return None
    return found.pop() if len(found) == 1 else None


def _joined(maker: Node, chain: Node, name: str, shapes: Shapes) -> Node:
    """The kernel with the chain behind it, at the chain's place."""
    kind = OPS[maker.op].epilogue  # type: ignore[attr-defined]
    steps, dtypes, results = json.loads(chain.attrs["chain"])
    extra = [one for one in chain.inputs if one != name]
    new = {chain.inputs.index(name): 0}
    new.update((chain.inputs.index(one), 1 + place) for place, one in enumerate(extra))
    steps = [[op, [new.get(at, at) for at in args], attrs, dtype] for op, args, attrs, dtype in steps]
    if results[0] != len(dtypes) + len(steps) - 1:  # the last step is the result
        steps.append(["Identity", [results[0]], {}, "f32"])
    kinds = [_kind(one, name, kind, shapes) for one in extra]
    epilogue = {"steps": steps, "kinds": kinds}
    inputs = (*maker.inputs, *extra)
    return Node(maker.op, maker.name, inputs, chain.outputs, {**maker.attrs, "epilogue": epilogue})
