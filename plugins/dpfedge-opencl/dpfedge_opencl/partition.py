# SPDX-License-Identifier: Apache-2.0
"""Which node runs where: on the host (shape arithmetic), as kernels of this backend, or on the CPU plugin.

It decides and orders; it lowers nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from dpfedge.backend.api import Array
from dpfedge_opencl.hostvalues import GROWING, HOST, SHAPES
from dpfedge_opencl.ops.api import OPS, Lowering, Node

__all__ = ["CONTENTS", "Part", "Where", "contents", "late_inputs", "parts", "sort_out"]

Where = Literal["host", "kernel", "cpu"]
CONTENTS: Mapping[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Slice": (1, 2, 3, 4),
    "Pad": (1, 3), "Split": (1,), "Resize": (1, 2, 3), "Range": (0, 1, 2), "ConstantOfShape": (0,), "CumSum": (1,),
    "TopK": (1,), "Clip": (1, 2), "OneHot": (1,), "Trilu": (1,),
    **{f"Reduce{kind}": (1,) for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp",
                                          "SumSquare")},
}  # fmt: skip
"""Operator → inputs whose contents decide its result's shape, or its kernel."""
_HEAVY = frozenset({
    "Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "com.microsoft.FusedConv", "com.microsoft.MatMulNBits",
    "com.microsoft.MatMulIntegerToFloat", "com.microsoft.DynamicQuantizeMatMul", "com.microsoft.FusedMatMul",
    "com.microsoft.GroupQueryAttention", "com.microsoft.MultiHeadAttention", "MatMulInteger", "ConvInteger",
})  # fmt: skip
_LARGE = 1 << 14  # elements of a constant that the host does not compute with


def contents(op: str) -> tuple[int, ...]:
    """Inputs whose contents decide the result's shape or the kernel."""
    return CONTENTS.get(op, ()) or tuple(getattr(OPS.get(op), "contents", ()))


@dataclass(slots=True)
class Part:
    """Nodes in a row that run in one place."""

    where: Where
    nodes: list[Node]


def sort_out(
    nodes: Sequence[Node], dtypes: Mapping[str, str], constants: Mapping[str, Array], lowering: Lowering
) -> tuple[dict[str, Where], dict[str, str]]:
    """(node → where it runs, node on the CPU → why); nodes are in an order in which they can run."""
    small = {name for name, array in constants.items() if array.size <= _LARGE}
    known = set(small)
    able: set[str] = set()
    for node in nodes:
        if _computable(node, known):
            known.update(node.outputs)
            able.add(node.name)
    needed = _needed(nodes, able)
    places: dict[str, Where] = {}
    reasons: dict[str, str] = {}
    host: set[str] = set(small)
    for node in nodes:
        on_host = node.name in able and (node.op in SHAPES or all(one in host for one in node.inputs if one))
        if on_host and (node.name in needed or node.op not in GROWING):
            places[node.name] = "host"
            host.update(node.outputs)
            continue
        reason = _refusal(node, dtypes, host, lowering)
        places[node.name] = "kernel" if reason is None else "cpu"
        if reason is not None:
            reasons[node.name] = reason
    return places, reasons


def _computable(node: Node, known: Set[str]) -> bool:
    if node.op in SHAPES:
        return True
    return node.op in HOST and bool(node.inputs) and all(one in known for one in node.inputs if one)


def _needed(nodes: Sequence[Node], able: Set[str]) -> set[str]:
    """Nodes of the host whose results decide shapes, by way of others or at once."""
    wanted: set[str] = set()
    found: set[str] = set()
    for node in reversed(nodes):
        if node.name in able and wanted.intersection(node.outputs):
            found.add(node.name)
            if node.op not in SHAPES:
                wanted.update(one for one in node.inputs if one)
            continue
        wanted.update(
            node.inputs[place] for place in contents(node.op) if place < len(node.inputs) and node.inputs[place]
        )
    return found


def _refusal(node: Node, dtypes: Mapping[str, str], host: Set[str], lowering: Lowering) -> str | None:
    operator = OPS.get(node.op)
    if operator is None:
        return f"{node.op}: no kernel"
    for place in contents(node.op):
        if place < len(node.inputs) and node.inputs[place] and node.inputs[place] not in host:
            return f"{node.op}: its size or its kernel depends on data (input {place})"
    reason = operator.supports(node, [dtypes.get(one, "") if one else "" for one in node.inputs], lowering)
    return None if reason is None else f"{node.op}: {reason}"


def parts(nodes: Sequence[Node], places: dict[str, Where]) -> list[Part]:
    """The nodes that do not run on the host, in as few rows of one place as a greedy order finds.

    Light kernels between two parts of the CPU join them: `places` changes for those.
    """
    while True:
        found = _rows(nodes, places)
        changed = False
        for before, one, after in zip(found, found[1:], found[2:], strict=False):
            light = one.where == "kernel" and not any(node.op in _HEAVY for node in one.nodes)
            if light and before.where == after.where == "cpu":
                places.update((node.name, "cpu") for node in one.nodes)
                changed = True
        if not changed:
            return found


def _rows(nodes: Sequence[Node], places: Mapping[str, Where]) -> list[Part]:
    """Rows of one place. A node waits for those that its host nodes read, too."""
    working = [node for node in nodes if places[node.name] != "host"]
    sources = _sources(nodes, places)
    waiting = {node.name: len(sources[node.name]) for node in working}
    users: dict[str, list[int]] = {node.name: [] for node in working}
    for index, node in enumerate(working):
        for source in sources[node.name]:
            users[source].append(index)
    ready: dict[Where, list[int]] = {"kernel": [], "cpu": []}
    for index, node in enumerate(working):
        if not waiting[node.name]:
            ready[places[node.name]].append(index)
    found: list[Part] = []
    now: Where = "kernel"
    while any(ready.values()):
        if not ready[now]:
            now = "cpu" if now == "kernel" else "kernel"
        node = working[heapq.heappop(ready[now])]
        if not found or found[-1].where != now:
            found.append(Part(now, []))
        found[-1].nodes.append(node)
        for user in users[node.name]:
            waiting[working[user].name] -= 1
            if not waiting[working[user].name]:
                heapq.heappush(ready[places[working[user].name]], user)
    return found


def _sources(nodes: Sequence[Node], places: Mapping[str, Where]) -> dict[str, set[str]]:
    """Node → nodes off the host that it waits for, directly or by way of the host."""
    behind: dict[str, set[str]] = {}  # value → what it waits for
    found = {}
    for node in nodes:
        needs = set().union(*(behind.get(one, set()) for one in node.inputs))
        found[node.name] = needs
        result = needs if places[node.name] == "host" else {node.name}
        behind.update((out, result) for out in node.outputs if out)
    return found


def late_inputs(
    nodes: Sequence[Node], places: Mapping[str, Where], inputs: Iterable[str], outputs: Set[str]
) -> set[str]:
    """Inputs of which only sizes are read, and those by nothing that decides a shape or a launch."""
    found = set()
    for name in inputs:
        tainted = {name}
        for node in nodes:
            touched = [place for place, one in enumerate(node.inputs) if one in tainted]
            if not touched:
                continue
            if places[node.name] == "host" and not set(touched) & set(contents(node.op)):
                tainted.update(node.outputs)
            elif name in node.inputs or places[node.name] == "cpu" or set(touched) & set(contents(node.op)):
                break
        else:
            if name not in outputs and len(tainted) > 1:
                found.add(name)
    return found
