# SPDX-License-Identifier: Apache-2.0
"""What a walk over a graph knows of its values, what it begins with, and what it keeps of each node for the next walk.

A node whose inputs have the shapes of an earlier walk gives the launches it gave then: most of a decoder's do on each
step. Nothing here knows an operator.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.graph import Graph
from dpfedge_opencl.hostvalues import numpy_dtype
from dpfedge_opencl.ops.api import Facts, Node, Value
from dpfedge_opencl.plan import Launch, Slot
from dpfedge_opencl.planning import Root

__all__ = ["Memo", "Record", "State", "constants_of"]

_KEPT = 4  # shapes of a node that are remembered: those of a step, of a prompt, and two more


def constants_of(graph: Graph) -> State:
    """What every plan of a graph begins with; made once."""
    found = graph.base.get("constants")
    if isinstance(found, State):
        return found
    state = State({}, {}, {}, frozenset())
    for name, one in graph.constants.items():
        known = None
        if one.data is not None:
            known = state.contents[name] = np.frombuffer(one.data, numpy_dtype(one.dtype)).reshape(one.shape)
        state.values[name] = Value(name, one.dtype, one.shape, known, one.place is not None)
        if one.place is not None:
            section, offset, _ = one.place
            fixed = Slot("weight", offset, one.dtype, one.shape, section)
            state.roots[name] = (Root("weight", section, fixed=fixed), 0)
    graph.base["constants"] = state
    return state


@dataclass(slots=True)
class State:
    """What one stretch leaves to the next."""

    values: dict[str, Value]
    contents: dict[str, Array]
    """What the host knows, the late values among it."""
    roots: dict[str, tuple[Root, int]]
    """Value → the memory it lies in, and where in it."""
    shared: frozenset[tuple[str, str]]
    tainted: set[str] = field(default_factory=set)
    """Values of the host that change with the sizes of `late` inputs."""
    late: list[Node] = field(default_factory=list)
    """The nodes that make them, in the order in which they were walked."""

    def copy(self, shared: frozenset[tuple[str, str]]) -> State:
        return State(
            dict(self.values), dict(self.contents), dict(self.roots), shared, set(self.tainted), list(self.late)
        )


@dataclass(slots=True)
class Record:
    """What a node did for one set of shapes: in the order in which a walk repeats it."""

    values: list[tuple[str, Value, int]] = field(default_factory=list)
    """Its outputs and scratches, with their bytes."""
    constants: list[tuple[str, Value, Array]] = field(default_factory=list)
    aliases: list[tuple[str, str, int, bool]] = field(default_factory=list)
    """Views it asked for, and the answers."""
    parts: list[tuple[str, str, int, bool]] = field(default_factory=list)
    """Inputs it asked to be written into its output, and the answers."""
    aware: set[str] = field(default_factory=set)
    launches: list[Launch] = field(default_factory=list)


_Key = tuple[object, ...]


class Memo:
    """Records of every node of a graph on one device."""

    def __init__(self, graph: Graph, facts: Facts) -> None:
        self.facts = facts
        self._constants = graph.constants
        self._records: dict[str, dict[_Key, Record]] = {}
        self._lock = threading.Lock()  # bindings of one executable plan in threads of their own

    @staticmethod
    def of(graph: Graph, facts: Facts) -> Memo:
        """The one that belongs to the graph and the device."""
        found = graph.base.get("memo")
        if not isinstance(found, Memo) or found.facts is not facts:
            found = graph.base["memo"] = Memo(graph, facts)
        return found

    def key(self, inputs: Sequence[Value | None], shared: frozenset[tuple[str, str]]) -> _Key:
        """What an operator's answers depend on; contents that the host worked out are among it."""
        constants = self._constants
        parts: list[object] = [shared] if shared else []
        for one in inputs:
            if one is None or one.name in constants:
                continue
            parts.append(one.shape if one.known is None else (one.shape, one.known.tobytes()))
        return tuple(parts)

    def find(self, node: Node, key: _Key) -> Record | None:
        """What the node did for this key."""
        found = self._records.get(node.name)
        return None if found is None else found.get(key)

    def keep(self, node: Node, key: _Key, record: Record) -> None:
        """Remember it, and forget the oldest of too many."""
        with self._lock:
            found = self._records.setdefault(node.name, {})
            if len(found) >= _KEPT:
                del found[next(iter(found))]
            found[key] = record
