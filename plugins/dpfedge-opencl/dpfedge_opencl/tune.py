# SPDX-License-Identifier: Apache-2.0
"""The auto-tuner: the tile and work-group that each shape of a graph runs fastest with, found when it is sealed.

It chooses only among candidates that give the same bits (`ops.source.tuned`): a seal must not change a result. Found
are parameters, `family shape` → numbers, for `Facts.tuning`; the same graph always gives the same keys.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.kernels import Kernels
from dpfedge_opencl.plan import Launch, Plan, Tensor
from dpfedge_opencl.prepared import Prepared
from dpfedge_opencl.runtime import Runtime
from dpfedge_opencl.stream import Batch, Stream

__all__ = ["Offers", "Stopwatch", "tune"]

_GAIN = 0.97
"""What a candidate must be of the usual one's time to be taken: timing is not that exact."""
_ALIGN = 4096
Seconds = Callable[[Plan, str], float]


class Offers(dict[str, Any]):
    """Parameters that note what was asked for: an operator offers its candidates as it is made concrete."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        super().__init__(known)
        self.candidates: dict[str, tuple[tuple[tuple[int, ...], ...], str]] = {}
        """Key → (candidates, the first node that asked)."""

    def offer(self, key: str, candidates: tuple[tuple[int, ...], ...], node: str) -> None:
        """Remember what there is to choose from."""
        self.candidates.setdefault(key, (candidates, node))


def tune(plan: Callable[[Mapping[str, Any]], Plan], seconds: Seconds, most: float = 60.0) -> dict[str, list[int]]:
    """The parameters that are better than the usual ones; nothing more is tried after `most` seconds.

    `plan` makes the graph concrete with given parameters; `seconds` says how long one node's kernels of a plan take."""
    offers = Offers({})
    usual = plan(offers)
    best: dict[str, list[int]] = {}
    until = time.monotonic() + most
    for key, (candidates, node) in sorted(offers.candidates.items()):
        if len(candidates) < 2 or time.monotonic() > until:
            continue
        least = seconds(usual, node) * _GAIN
        for candidate in candidates[1:]:
            taken = seconds(plan({key: list(candidate)}), node)
            if taken < least:
                best[key], least = list(candidate), taken
    return best


class Stopwatch:
    """Times a node's kernels by themselves, on memory of their own that holds zeros."""

    def __init__(self, runtime: Runtime, times: int = 15) -> None:
        self._runtime, self._times = runtime, times
        self._stream, self._kernels = Stream(runtime, runtime.where), Kernels(runtime.native)

    def __call__(self, plan: Plan, node: str) -> float:
        """The least seconds of several runs of the node's launches."""
        launches = [step for step in plan.steps if isinstance(step, Launch) and step.node == node]
        places, size = _places(plan, launches)
        slots = {name: replace(plan.slots[name], home="arena", offset=at, stretch=0) for name, at in places.items()}
        alone = Plan(tuple(launches), slots, size, {})
        memory = self._runtime.memory.allocate(size)
        prepared = Prepared(alone, self._runtime, self._kernels, self._stream.handle, self._runtime.where)
        prepared.point(("arena", 0), memory.span)
        found = math.inf
        for _ in range(self._times):
            started = time.perf_counter()
            for batch in prepared.steps:
                assert isinstance(batch, Batch)
                self._stream.run(batch)
            found = min(found, time.perf_counter() - started)
        prepared.end()
        return found


def _places(plan: Plan, launches: Sequence[Launch]) -> tuple[dict[str, int], int]:
    """Where each value of these launches lies in one buffer, and its size; aliases get memory of their own."""
    places: dict[str, int] = {}
    size = _ALIGN
    for launch in launches:
        for one in launch.args:
            if isinstance(one, Tensor) and one.name not in places:
                slot = plan.slots[one.name]
                places[one.name] = size
                size += math.prod(slot.shape) * DTYPE_BYTES[slot.dtype] + _ALIGN
                size += -size % _ALIGN
    return places, size
