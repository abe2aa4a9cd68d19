# SPDX-License-Identifier: Apache-2.0
"""Memory objects of arrays that are used more than once: the caller's, while they live; ours, when a result is let go.

Nothing is copied, and nothing of the caller's is kept alive. It checks no shape.
"""

from __future__ import annotations

import sys
import weakref

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.memory import Memory, Span

__all__ = ["Results", "Wraps"]

_WRAPS = 16
_RESULTS = 2  # one that the caller still holds, and one that is written
_RESULT_BYTES = 1 << 20  # a run that writes more takes far longer than wrapping it
_OURS = 3  # references to a result that nobody holds: of the list, of a loop over it, of the call that counts


class Wraps:
    """The latest memory objects of the caller's arrays, by place; each goes when the array's owner does."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._known: dict[tuple[int, int, bool], tuple[weakref.ref[Array], Span]] = {}

    def span(self, array: Array, address: int) -> Span:
        """The array for kernels; whoever uses it holds the array."""
        key = (address, array.nbytes, array.flags.writeable)
        owner = array.base if isinstance(array.base, np.ndarray) else array
        known = self._known
        found = known.get(key)
        if found is not None and found[0]() is owner:
            return found[1]
        span = self._memory.wrap(array, write=key[2], address=address)
        if self._memory.in_place:
            span.keep = None
        if len(known) >= _WRAPS:
            known.pop(next(iter(tuple(known))), None)  # an owner may end meanwhile

        def ended(reference: weakref.ref[Array]) -> None:
            if (now := known.get(key)) is not None and now[0] is reference:
                known.pop(key, None)

        known[key] = (weakref.ref(owner, ended), span)
        return span


class Results:
    """Arrays for one output that the caller gets views of; one that no view is left of is written again."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._kept: list[tuple[Array, Span, int]] = []

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> tuple[Array, Span, int]:
        """(array that nobody else sees, its memory object, its address)."""
        kept = self._kept
        for entry in kept:
            whole = entry[0]
            if sys.getrefcount(whole) == _OURS and whole.shape == shape:
                return whole.view(), entry[1], entry[2]

        made = np.empty(shape, dtype)
        address = int(made.__array_interface__["data"][0])
        span = self._memory.wrap(made, write=True, address=address)
        if made.nbytes > _RESULT_BYTES:
            return made, span, address
        if self._memory.in_place:
            span.keep = None
        if len(kept) >= _RESULTS:
            del kept[0]
        kept.append((made, span, address))
        return made.view(), span, address
