# SPDX-License-Identifier: Apache-2.0
"""Key/value memory for a fixed number of sequences: allocated once, lent by longest common prefix; it chooses no token.

A place is written by the graph in place (past = present), or stays in the device's own memory from run to run; what it
holds is just the list of its tokens: rolling back is forgetting the tail of that list. Memory pages nobody wrote to
cost nothing.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, Executable, keeps_links
from dpfedge.errors import Busy, ModelError, RunCancelled
from dpfedge.tensors import TensorSpec

__all__ = ["Place", "Pool", "Prefix", "common_prefix", "past_ports"]

_PAST, _PRESENT = "past_key_values.", "present."


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences share at their start."""
    size = min(len(first), len(second))
    return next((index for index in range(size) if first[index] != second[index]), size)


def _present(past: str) -> str:
    return _PRESENT + past.removeprefix(_PAST)


def past_ports(graph: Executable) -> list[TensorSpec]:
    """The inputs of `graph` that are key/value memory, in the graph's order."""
    return [spec for spec in graph.inputs if spec.name.startswith(_PAST)]


class Prefix:
    """The keys and values of tokens that many sequences begin with; f32[1, heads, tokens, dim] each."""

    def __init__(self, tokens: Sequence[int], memory: Sequence[Array]) -> None:
        """`memory` in the order of `past_ports`; it is only read, and may be mapped from a package."""
        self.tokens, self.memory = tuple(tokens), memory

    @classmethod
    def of(cls, place: Place) -> Prefix:
        """A copy of what `place` holds."""
        return cls(place.tokens, [array[:, :, : len(place.tokens)].copy() for array in place.held()])


class Place:
    """The memory of one sequence, bound to the graph once. `tokens` are the ids whose keys and values it holds.

    The graph's ports are those of family `decoder` in `dpfedge/compiler/GRAPHS.md`.
    """

    def __init__(self, graph: Executable, chunk: int) -> None:
        self.tokens: list[int] = []
        self.used = 0
        self._fresh = False
        self._ids = np.zeros((1, chunk), np.int64)
        self._one = self._ids[:, :1]
        self._binding = graph.bind()
        self._ports = [spec.name for spec in past_ports(graph)]
        # where the device has memory of its own, keys and values stay there from run to run; elsewhere in this memory
        self._linked, self._away = keeps_links(graph), False
        self.memory: list[Array] = []
        for spec in past_ports(graph):
            array, present = _untouched(_sizes(spec), spec.numpy), _present(spec.name)
            if self._linked:
                self._binding.link(present, spec.name)
            else:
                self._binding.set_output(present, array)
            self._binding.set_input(spec.name, array)
            self.memory.append(array)
        self._mask = np.ones((1, self.memory[0].shape[2]), np.int64)
        shape = next(spec.dims for spec in graph.outputs if spec.name == "logits")
        self._logits = np.zeros((1, 1, int(shape[-1])), np.float32)
        self._binding.set_output("logits", self._logits)

    def logits(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        """f32[vocabulary] behind the last token, once; the caller may change it in place."""
        self._fresh = False
        row: np.ndarray[Any, np.dtype[np.float32]] = self._logits[0, 0]
        return row

    def holds(self, tokens: Sequence[int]) -> bool:
        """Whether these are the tokens held and the logits behind them were not used yet."""
        return self._fresh and self.tokens == list(tokens)

    def keep(self, count: int) -> None:
        """Forget everything behind the first `count` tokens."""
        self._fresh = self._fresh and count >= len(self.tokens)
        del self.tokens[count:]

    def run(self, tokens: Sequence[int]) -> None:
        """Append `tokens` (at most a chunk) and compute the logits behind the last one."""
        count = len(tokens)
        self._ids[0, :count] = tokens
        self._binding.set_input("input_ids", self._one if count == 1 else self._ids[:, :count])
        self._binding.set_input("attention_mask", self._mask[:, : len(self.tokens) + count])
        self._fresh = False
        try:
            self._binding.run()
        except RunCancelled:
            raise  # only behind what is held was anything written
        except BaseException:
            self.tokens.clear()  # how much was written is unknown
            raise
        self.tokens.extend(tokens)
        self._fresh, self._away = True, self._linked

    def held(self) -> list[Array]:
        """Keys and values as this process reads them, in the order of `past_ports`."""
        return [self._binding.output(_present(name)) for name in self._ports] if self._away else self.memory

    def load(self, prefix: Prefix) -> None:
        """Become a sequence that holds just `prefix`."""
        for mine, theirs in zip(self.memory, prefix.memory, strict=True):
            mine[:, :, : theirs.shape[2]] = theirs
        if self._linked:
            for name, array in zip(self._ports, self.memory, strict=True):
                self._binding.set_input(name, array)
            self._away = False
        self.tokens[:] = prefix.tokens
        self._fresh = False


class Pool:
    """All places of the stage."""

    def __init__(self, graph: Executable, *, places: int, chunk: int) -> None:
        self.context = _context(graph)
        self._free = [Place(graph, chunk) for _ in range(places)]
        self._size, self._clock = places, 0
        self.prefix: Prefix | None = None

    def take(self, tokens: Sequence[int]) -> Place:
        """The free place that shares most with `tokens`, or one filled from the kept prefix; Busy if none is free."""
        if not self._free:
            raise Busy("every place for an answer is taken", where="stage llm", found=self._size, remedy="try again")
        shared = [common_prefix(place.tokens, tokens) for place in self._free]
        kept = common_prefix(self.prefix.tokens, tokens) if self.prefix else 0
        if self.prefix and kept > max(shared):
            place = min(self._free, key=lambda free: free.used)
            place.load(self.prefix)
        else:
            # Of equals the longest unused one: others may still be wanted.
            place = min(zip(shared, self._free, strict=True), key=lambda pair: (-pair[0], pair[1].used))[1]
        self._free.remove(place)
        return place

    def give(self, place: Place) -> None:
        """End a loan; what the place holds stays for the next request with that beginning."""
        self._clock += 1
        place.used = self._clock
        self._free.append(place)

    @property
    def free(self) -> int:
        """How many places are not lent."""
        return len(self._free)


def _context(graph: Executable) -> int:
    """The tokens a place has room for; ModelError for a graph with other ports."""
    inputs, outputs = ({spec.name for spec in specs} for specs in (graph.inputs, graph.outputs))
    past = {name for name in inputs if name.startswith(_PAST)}
    wanted = {"input_ids", "attention_mask"} | past
    made = {"logits"} | {_present(name) for name in past}
    if not past or inputs != wanted or outputs != made:
        odd = sorted((inputs ^ wanted) | (outputs ^ made)) or ["no past_key_values.N.key"]
        raise ModelError(
            "not a decoder with key/value memory",
            where=f"graph {graph.name}",
            found=", ".join(odd),
            allowed="the ports of family decoder in dpfedge/compiler/GRAPHS.md",
        )
    return next(_sizes(spec)[2] for spec in graph.inputs if spec.name in past)


def _untouched(sizes: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros whose pages take memory only once written; `np.zeros` may clear, and so touch, memory used before."""
    pages = mmap.mmap(-1, math.prod(sizes) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        pages.madvise(mmap.MADV_NOHUGEPAGE)  # one short sequence would otherwise make whole 2 MB pages resident
    return np.frombuffer(pages, dtype).reshape(sizes)


def _sizes(spec: TensorSpec) -> tuple[int, ...]:
    sizes = tuple(dim for dim in spec.dims if isinstance(dim, int))
    if len(sizes) != len(spec.dims) or len(sizes) != 4:
        raise ModelError("key/value memory needs fixed sizes", where=f"port {spec.name}", found=spec.dims)
    return sizes
